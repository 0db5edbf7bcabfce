#include "driver.h"

#include <cstdio>

#include <cuda_runtime_api.h>

std::string driver_version(std::string_view text) {
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue ..." or "... Open Kernel Module for x86_64  ..."
    constexpr std::string_view digits_and_dots = "0123456789.";
    std::string_view line = text.substr(0, text.find('\n'));
    while (!line.empty()) {
        const std::string_view word = line.substr(0, line.find(' '));
        if (word.find('.') != word.npos && word.find_first_not_of(digits_and_dots) == word.npos) return std::string(word);
        line.remove_prefix(word.size() < line.size() ? word.size() + 1 : line.size());
    }
    return {};
}

std::string cuda_version(int number) {
    return number > 0 ? std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10) : std::string();
}

std::string installed_driver() {
    // No stream: they make the program need a newer C library than Amazon Linux 2023 has.
    std::FILE* const file = std::fopen("/proc/driver/nvidia/version", "r");
    if (file == nullptr) return {};
    char text[512];
    const std::size_t got = std::fread(text, 1, sizeof text, file);
    std::fclose(file);
    return driver_version({text, got});
}

Driver ask_driver() {
    Driver driver;
    cudaDriverGetVersion(&driver.cuda);
    driver.error = cudaGetDeviceCount(&driver.devices);
    return driver;
}
