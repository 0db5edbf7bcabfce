#include "device.h"

#include <cstdio>
#include <string>

#include "runtime.h"

namespace {

__global__ void nothing() {}

int attribute(cudaDeviceAttr which, int index) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, index), "asking for an attribute of the GPU");
    return value;
}

std::string uuid_text(const cudaUUID_t& uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += two;
    }
    return text;
}

}  // namespace

DeviceFacts open_device(int index) {
    check(cudaSetDevice(index), "choosing the GPU");
    check(cudaFree(nullptr), "opening the GPU");

    cudaFuncAttributes code{};
    check(cudaFuncGetAttributes(&code, nothing), "loading the program's code");

    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
    char bus[32] = "";
    check(cudaDeviceGetPCIBusId(bus, sizeof bus, index), "asking for the GPU's PCI address");

    DeviceFacts facts{};
    facts.index = index;
    facts.name = properties.name;
    facts.uuid = uuid_text(properties.uuid);
    facts.pci_bus_id = bus;
    facts.compute_capability = std::to_string(properties.major) + '.' + std::to_string(properties.minor);
    facts.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, index);
    facts.ecc = attribute(cudaDevAttrEccEnabled, index) != 0;
    check(cudaMemGetInfo(&facts.free_bytes, &facts.memory_bytes), "asking for the GPU's memory");
    return facts;
}

std::vector<int> compiled_architectures() {
    std::vector<int> architectures = {__CUDA_ARCH_LIST__};
    for (int& each : architectures) each /= 10;
    return architectures;
}

json::Object DeviceFacts::json() const {
    json::Object out;
    out.text("name", name)
        .text("uuid", uuid)
        .text("pci_bus_id", pci_bus_id)
        .text("compute_capability", compute_capability)
        .number("multiprocessors", multiprocessors)
        .number("memory_bytes", memory_bytes)
        .number("free_bytes", free_bytes)
        .boolean("ecc", ecc);
    return out;
}
