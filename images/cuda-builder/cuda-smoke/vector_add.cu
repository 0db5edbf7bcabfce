#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime.h"
#include "tests.h"

namespace {

constexpr int kRepeats = 20;
constexpr std::size_t kElements = std::size_t{16} << 20;

__global__ void add(const float* a, const float* b, float* c, std::size_t count) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) c[i] = a[i] + b[i];
}

// Whole numbers below 2^23, so their sums are exact in single precision and == is the right comparison.
float term(std::size_t index, std::uint32_t factor) {
    return static_cast<float>((static_cast<std::uint32_t>(index) * factor) >> 9);
}

Finding vector_add(std::size_t count) {
    std::vector<float> host_a(count), host_b(count), host_c(count);
    for (std::size_t i = 0; i < count; ++i) {
        host_a[i] = term(i, 2654435761u);
        host_b[i] = term(i, 2246822519u);
    }
    DeviceArray<float> a(count), b(count), c(count);
    a.from_host(host_a.data());
    b.from_host(host_b.data());
    c.fill_bytes(0xff);

    launch(add, count, a.data(), b.data(), c.data(), count);
    synchronize();
    const Stopwatch time{};
    for (int i = 0; i < kRepeats; ++i) launch(add, count, a.data(), b.data(), c.data(), count);
    synchronize();
    const double seconds = time.seconds();
    c.to_host(host_c.data());

    std::size_t wrong = 0, first = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (host_c[i] == host_a[i] + host_b[i]) continue;
        if (wrong++ == 0) first = i;
    }
    Finding finding;
    finding.bandwidth_gb_s = 3.0 * static_cast<double>(a.bytes()) * kRepeats / seconds / 1e9;
    finding.details.number("elements", count).number("wrong", wrong);
    if (wrong > 0) {
        finding.error = std::to_string(wrong) + " of " + std::to_string(count) + " sums are wrong; element " +
                        std::to_string(first) + " is " + json::number(host_c[first]) + " and should be " +
                        json::number(host_a[first] + host_b[first]);
    }
    return finding;
}

}  // namespace

Test vector_add_test(std::size_t free_bytes) {
    const std::size_t count = std::clamp<std::size_t>(free_bytes / 2 / (3 * sizeof(float)), 1, kElements);
    return {"vector_add", [count] { return vector_add(count); }};
}
