// A stand-in for the CUDA runtime in host memory: kernels are loops, and the faults of the environment happen.
//
//   FAKE_CUDA_DRIVER=13000       what cudaDriverGetVersion says      FAKE_CUDA_DEVICES=1   GPUs
//   FAKE_CUDA_COUNT_ERROR=35     cudaGetDeviceCount fails so         FAKE_CUDA_MIB=8       memory of each, all of it free
// Faults of one GPU, by its index:
//   FAKE_CUDA_OPEN_ERROR=1:209   loading the program's code fails    FAKE_CUDA_SYNC_ERROR=1:214
//   FAKE_CUDA_HANG=1             it never answers a synchronisation  FAKE_CUDA_CRASH=1     it ends the process there
//   FAKE_CUDA_STUCK=1:4096:3     bit 3 of the byte at 4096 is always set
//   FAKE_CUDA_ALIAS=1:65536      the 64 KiB from 65536 on are the 64 KiB before it: an address line is broken
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#define __global__
#define __device__
#define __host__
#define __CUDA_ARCH_LIST__ 750, 900
#define CUDART_VERSION 13020

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorJitCompilerNotFound = 221,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorSystemNotReady = 802,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorUnknown = 999,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrEccEnabled };
struct cudaUUID_t {
    char bytes[16];
};
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor;
};
struct cudaFuncAttributes {
    int binaryVersion;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    dim3(unsigned x_ = 1) : x(x_) {}
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
};

inline dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace stand_in {

inline int current = 0;
inline unsigned char* memory = nullptr;
inline std::size_t taken = 0;
inline int live = 0;

inline long long setting(const char* name, long long otherwise) {
    const char* text = std::getenv(name);
    return text ? std::atoll(text) : otherwise;
}

// The numbers after "GPU:" of a fault of the GPU in use; false where it has none.
inline bool fault(const char* name, long long& first, long long& second) {
    const char* text = std::getenv(name);
    long long device = -1;
    return text && std::sscanf(text, "%lld:%lld:%lld", &device, &first, &second) >= 1 && device == current;
}

inline std::size_t bytes() { return static_cast<std::size_t>(setting("FAKE_CUDA_MIB", 8)) << 20; }

// What broken memory holds after any write.
inline void settle() {
    long long at = 0, bit = 0;
    if (fault("FAKE_CUDA_STUCK", at, bit)) memory[at] |= static_cast<unsigned char>(1u << bit);
    if (fault("FAKE_CUDA_ALIAS", at, bit)) std::memcpy(memory, memory + at, static_cast<std::size_t>(at));
}

}  // namespace stand_in

inline const char* cudaGetErrorName(cudaError_t code) {
    switch (code) {
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
        case cudaErrorECCUncorrectable: return "cudaErrorECCUncorrectable";
        case cudaErrorSystemNotReady: return "cudaErrorSystemNotReady";
        default: return "cudaErrorUnknown";
    }
}
inline const char* cudaGetErrorString(cudaError_t) { return "as the stand-in was told"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

inline cudaError_t cudaDriverGetVersion(int* version) {
    *version = static_cast<int>(stand_in::setting("FAKE_CUDA_DRIVER", 13000));
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    *count = static_cast<int>(stand_in::setting("FAKE_CUDA_DEVICES", 1));
    return static_cast<cudaError_t>(stand_in::setting("FAKE_CUDA_COUNT_ERROR", 0));
}
inline cudaError_t cudaSetDevice(int index) {
    stand_in::current = index;
    return index < stand_in::setting("FAKE_CUDA_DEVICES", 1) ? cudaSuccess : cudaErrorInvalidDevice;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int index) {
    std::snprintf(out->name, sizeof out->name, "Stand-in \"GPU\" %d", index);
    for (int i = 0; i < 16; ++i) out->uuid.bytes[i] = static_cast<char>(0xf0 + i + index);
    out->major = 9;
    out->minor = 0;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int index) {
    std::snprintf(out, static_cast<std::size_t>(size), "0000:%02X:00.0", 0x17 + index);
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr which, int) {
    *out = which == cudaDevAttrMultiProcessorCount ? 132 : 1;
    return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel*) {
    long long code = 0, unused = 0;
    return stand_in::fault("FAKE_CUDA_OPEN_ERROR", code, unused) ? static_cast<cudaError_t>(code) : cudaSuccess;
}

inline cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
    *total = stand_in::bytes();
    *free_bytes = *total - stand_in::taken;
    return cudaSuccess;
}
// From address 0 up, all of it given back when nothing is in use: the tests of one GPU meet the same faults.
inline cudaError_t cudaMalloc(void** out, std::size_t bytes) {
    if (!stand_in::memory) stand_in::memory = static_cast<unsigned char*>(std::calloc(stand_in::bytes(), 1));
    const std::size_t whole = (bytes + 255) / 256 * 256;
    if (stand_in::taken + whole > stand_in::bytes()) return cudaErrorMemoryAllocation;
    *out = stand_in::memory + stand_in::taken;
    stand_in::taken += whole;
    ++stand_in::live;
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* given) {
    if (given && --stand_in::live == 0) stand_in::taken = 0;
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
    std::memset(at, value, bytes);
    stand_in::settle();
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    std::memcpy(to, from, bytes);
    stand_in::settle();
    return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
    long long code = 0, unused = 0;
    if (stand_in::fault("FAKE_CUDA_CRASH", code, unused)) std::raise(SIGSEGV);
    if (stand_in::fault("FAKE_CUDA_HANG", code, unused)) {
        for (;;) pause();
    }
    return stand_in::fault("FAKE_CUDA_SYNC_ERROR", code, unused) ? static_cast<cudaError_t>(code) : cudaSuccess;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
    gridDim = config->gridDim;
    blockDim = config->blockDim;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments...);
    }
    stand_in::settle();
    return cudaSuccess;
}

template <class Number>
Number atomicAdd(Number* at, Number more) {
    const Number before = *at;
    *at += more;
    return before;
}
