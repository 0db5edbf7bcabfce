// The CUDA runtime with errors that cannot be overlooked and memory that frees itself.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <cuda_runtime.h>

struct CudaFailure {
    cudaError_t code;
    const char* doing;

    std::string text() const {
        return std::string(doing) + ": " + cudaGetErrorName(code) + " (" + cudaGetErrorString(code) + ')';
    }
};

inline void check(cudaError_t code, const char* doing) {
    if (code != cudaSuccess) {
        cudaGetLastError();
        throw CudaFailure{code, doing};
    }
}

// `count` elements of device memory.
template <class Element>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t count) : count_(count) {
        check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()), "allocating GPU memory");
    }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    Element* data() const { return data_; }
    std::size_t size() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(Element); }

    void from_host(const Element* host) const {
        check(cudaMemcpy(data_, host, bytes(), cudaMemcpyHostToDevice), "copying to the GPU");
    }
    void fill_bytes(int value) const { check(cudaMemset(data_, value, bytes()), "filling GPU memory"); }
    void to_host(Element* host) const {
        check(cudaMemcpy(host, data_, bytes(), cudaMemcpyDeviceToHost), "copying from the GPU");
    }

private:
    Element* data_ = nullptr;
    std::size_t count_;
};

constexpr unsigned kThreads = 256;

// Enough blocks to fill any GPU; kernels stride over the rest of `work`.
inline unsigned blocks_for(std::size_t work) {
    constexpr std::size_t most = 65535;
    const std::size_t wanted = (work + kThreads - 1) / kThreads;
    return static_cast<unsigned>(wanted < most ? wanted : most);
}

// Starts `kernel` over `work` items. A fault in it shows at the next synchronisation.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::size_t work, Arguments&&... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks_for(work));
    config.blockDim = dim3(kThreads);
    check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), "starting a kernel");
}

inline void synchronize() { check(cudaDeviceSynchronize(), "waiting for the GPU"); }
