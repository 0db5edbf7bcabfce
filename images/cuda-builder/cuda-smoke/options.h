// The command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

constexpr const char* kUsage = R"(usage: cuda-smoke [tests] [options]
Tests NVIDIA GPUs and prints one JSON document.

tests (all of them where none is named):
  --all                all tests
  --query              no test, only what the driver says of each GPU
  --vector-add         add two vectors and check every sum
  --memory             write patterns to memory and read them back

options:
  --device N           this GPU, numbered as nvidia-smi does (unless CUDA_DEVICE_ORDER is set); may be given again
  --memory-size SIZE   memory to test on each GPU: 512M, 8G, or 90% of what is free (default: 80%, at most 8G)
  --seed N             of the random pattern (default: of the clock; the report tells it)
  --timeout SECONDS    of the whole run (default: 300)
  --list               the architectures this program was compiled for; needs no GPU
  --help

exit status: 0 all is well, 1 a test failed, 2 the command line is wrong, 3 no driver or GPU that can be used
)";

struct UsageError {
    std::string text;
};

struct MemorySize {
    std::size_t exact = 0;  // 0: a share of what is free
    int percent = 80;
    std::size_t most = std::size_t{8} << 30;

    std::size_t of(std::size_t free_bytes) const;
};

struct Options {
    bool vector_add = false;
    bool memory = false;
    bool list = false;
    bool help = false;
    std::vector<int> devices;  // empty: all
    MemorySize memory_size;
    std::uint64_t seed = 0;
    int timeout_seconds = 300;
};

// Throws UsageError.
Options parse(int argc, char** argv);
