#include "failure.h"

#include <cuda_runtime_api.h>

#include "json.h"

namespace {

std::string named(int error) {
    const auto code = static_cast<cudaError_t>(error);
    return std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ')';
}

}  // namespace

std::string Failure::json() const {
    json::Object out;
    out.text("kind", kind).text("message", message);
    if (!fix.empty()) out.text("fix", fix);
    return out.str();
}

Failure driver_failure(const Driver& driver, int toolkit) {
    switch (driver.error) {
        case cudaErrorInsufficientDriver:
            if (driver.cuda > 0) {
                return {"insufficient_driver",
                        "the driver supports CUDA " + cuda_version(driver.cuda) + ", this program was built with CUDA " +
                            cuda_version(toolkit),
                        "install a newer driver, or build cuda-smoke with CUDA " + cuda_version(driver.cuda)};
            }
            return {"no_driver",
                    driver.version.empty()
                        ? "no NVIDIA driver here: libcuda.so.1 cannot be loaded"
                        : "the kernel runs driver " + driver.version + ", but libcuda.so.1 cannot be loaded here",
                    "install the driver; in a container, start it with the NVIDIA runtime (docker run --gpus all)"};
        case cudaSuccess:
        case cudaErrorNoDevice:
            return {"no_device", "the driver shows no GPU",
                    "look at CUDA_VISIBLE_DEVICES, at the GPUs the container was given, and at nvidia-smi on the host"};
        case cudaErrorSystemNotReady:
            return {"system_not_ready", named(driver.error), "start the fabric manager: systemctl start nvidia-fabricmanager"};
        case cudaErrorSystemDriverMismatch:
            return {"driver_mismatch", named(driver.error), "restart the machine: library and kernel module differ"};
        default:
            return {"driver_error", named(driver.error), ""};
    }
}

Failure device_failure(int error, const std::string& text, const std::string& toolkit) {
    switch (error) {
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorUnsupportedPtxVersion:
        case cudaErrorJitCompilerNotFound:
            return {"no_kernel_image", "this program holds no code for the GPU; " + text,
                    "cuda-smoke --list tells what it holds; build it with a CUDA that has the GPU (this one: " + toolkit + ')'};
        default:
            return {"device_error", text, ""};
    }
}
