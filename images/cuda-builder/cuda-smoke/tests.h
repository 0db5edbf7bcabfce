// The tests of one GPU, which run on the one that this process has opened.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "json.h"

struct Finding {
    std::string error;          // empty: all is well
    double bandwidth_gb_s = 0;  // 0: not measured
    json::Object details;       // what this test alone has to tell
};

// `run` throws CudaFailure where the runtime or the GPU gave up.
struct Test {
    std::string name;
    std::function<Finding()> run;
};

// c = a + b, every element compared with the exact sum by the host.
Test vector_add_test(std::size_t free_bytes);

// Patterns written over `bytes` of GPU memory and read back: walking ones and zeros (each bit of each 64-bit word alone
// against all others), each word's own address, random numbers and their complement.
std::vector<Test> memory_tests(std::size_t bytes, std::uint64_t seed);

class Stopwatch {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    }

private:
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};
