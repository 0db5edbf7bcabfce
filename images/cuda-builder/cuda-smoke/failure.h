// Why a driver or a GPU cannot be used.
#pragma once

#include <string>

#include "driver.h"

struct Failure {
    std::string kind, message, fix;

    std::string json() const;
};

// Of counting the GPUs. `toolkit` is the CUDA that this program was built with, as 13020.
Failure driver_failure(const Driver& driver, int toolkit);

// Of opening one GPU: `error` is a cudaError_t, `text` what the runtime says of it.
Failure device_failure(int error, const std::string& text, const std::string& toolkit);
