// What the driver says of one GPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "json.h"

struct DeviceFacts {
    int index;
    std::string name, uuid, pci_bus_id, compute_capability;
    int multiprocessors;
    std::size_t memory_bytes, free_bytes;
    bool ecc;

    json::Object json() const;
};

// Makes this process use GPU `index` from here on. Throws CudaFailure, also where the program holds no code for it.
DeviceFacts open_device(int index);

// The architectures whose machine code the program holds, ascending, as 90 for 9.0.
std::vector<int> compiled_architectures();
