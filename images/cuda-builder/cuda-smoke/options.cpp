#include "options.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <string_view>

namespace {

template <class Number>
Number number(std::string_view flag, std::string_view text, Number least, Number most) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
        throw UsageError{std::string(flag) + ": '" + std::string(text) + "' is not a whole number from " +
                         std::to_string(least) + " to " + std::to_string(most)};
    }
    return value;
}

MemorySize memory_size(std::string_view flag, std::string_view text) {
    constexpr std::size_t most = std::size_t{1} << 20;
    const char unit = text.empty() ? '\0' : text.back();
    const std::string_view digits = text.substr(0, text.empty() ? 0 : text.size() - 1);
    MemorySize size;
    switch (unit) {
        case '%':
            size.most = std::numeric_limits<std::size_t>::max();
            size.percent = number(flag, digits, 1, 100);
            return size;
        case 'M':
            size.exact = number<std::size_t>(flag, digits, 1, most) << 20;
            return size;
        case 'G':
            size.exact = number<std::size_t>(flag, digits, 1, most) << 30;
            return size;
        default:
            throw UsageError{std::string(flag) + ": '" + std::string(text) + "' is not a size; 512M, 8G and 90% are"};
    }
}

}  // namespace

std::size_t MemorySize::of(std::size_t free_bytes) const {
    return exact ? exact : std::min(free_bytes / 100 * static_cast<std::size_t>(percent), most);
}

Options parse(int argc, char** argv) {
    Options options;
    options.seed =
        static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1));
    bool named = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view flag = argv[i];
        const auto value = [&]() -> std::string_view {
            if (i + 1 == argc) throw UsageError{std::string(flag) + " needs a value"};
            return argv[++i];
        };
        if (flag == "--all") {
            named = options.vector_add = options.memory = true;
        } else if (flag == "--query") {
            named = true;
        } else if (flag == "--vector-add") {
            named = options.vector_add = true;
        } else if (flag == "--memory") {
            named = options.memory = true;
        } else if (flag == "--device") {
            options.devices.push_back(number(flag, value(), 0, 1023));
        } else if (flag == "--memory-size") {
            options.memory_size = memory_size(flag, value());
        } else if (flag == "--seed") {
            options.seed = number<std::uint64_t>(flag, value(), 0, std::numeric_limits<std::uint64_t>::max());
        } else if (flag == "--timeout") {
            options.timeout_seconds = number(flag, value(), 1, 86400);
        } else if (flag == "--list") {
            options.list = true;
        } else if (flag == "--help" || flag == "-h") {
            options.help = true;
        } else {
            throw UsageError{"unknown argument '" + std::string(flag) + "'"};
        }
    }
    if (!named) options.vector_add = options.memory = true;
    std::sort(options.devices.begin(), options.devices.end());
    options.devices.erase(std::unique(options.devices.begin(), options.devices.end()), options.devices.end());
    return options;
}
