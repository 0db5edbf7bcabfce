// The driver of this machine, asked without opening a GPU.
#pragma once

#include <string>
#include <string_view>

struct Driver {
    std::string version;  // "580.95.05"; empty where the kernel has no NVIDIA driver
    int cuda = 0;         // newest CUDA that it speaks, as 13000; 0 where there is no driver library
    int devices = 0;
    int error = 0;  // cudaError_t of counting the devices
};

// Starts the driver; all but `version`.
Driver ask_driver();

// The version of the kernel's driver.
std::string installed_driver();

// The version in the text of /proc/driver/nvidia/version, empty where there is none.
std::string driver_version(std::string_view text);

// 13020 as "13.2", 0 as nothing.
std::string cuda_version(int number);
