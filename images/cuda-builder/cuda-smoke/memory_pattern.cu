#include <algorithm>
#include <cstdio>

#include "runtime.h"
#include "tests.h"

namespace {

using Word = std::uint64_t;
constexpr int kWordBits = 64;

struct WalkingOne {
    int pass;
    __device__ Word operator()(const Word*, std::size_t index) const {
        return Word{1} << ((index + static_cast<std::size_t>(pass)) % kWordBits);
    }
};

struct WalkingZero {
    int pass;
    __device__ Word operator()(const Word* at, std::size_t index) const { return ~WalkingOne{pass}(at, index); }
};

struct OwnAddress {
    __device__ Word operator()(const Word* at, std::size_t) const { return reinterpret_cast<Word>(at); }
};

struct Random {
    Word seed, flip;
    // SplitMix64: any word of the sequence without the ones before it.
    __device__ Word operator()(const Word*, std::size_t index) const {
        Word z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return (z ^ (z >> 31)) ^ flip;
    }
};

struct Fault {
    std::size_t index;
    Word expected, found;
};

constexpr int kFaultsTold = 8;

struct Tally {
    unsigned long long errors;
    Fault faults[kFaultsTold];
};

template <class Pattern>
__global__ void fill(Word* words, std::size_t count, Pattern pattern) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] = pattern(words + i, i);
}

template <class Pattern>
__global__ void verify(const Word* words, std::size_t count, Pattern pattern, Tally* tally) {
    const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        const Word expected = pattern(words + i, i);
        const Word found = words[i];
        if (found == expected) continue;
        const unsigned long long slot = atomicAdd(&tally->errors, 1ull);
        if (slot < kFaultsTold) tally->faults[slot] = Fault{i, expected, found};
    }
}

std::string hex(Word word) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(word));
    return text;
}

std::string faults_json(Tally& tally) {
    Fault* const end = tally.faults + std::min<unsigned long long>(tally.errors, kFaultsTold);
    std::sort(tally.faults, end, [](const Fault& a, const Fault& b) { return a.index < b.index; });
    json::Array out;
    for (const Fault* fault = tally.faults; fault != end; ++fault) {
        json::Object told;
        told.number("offset", fault->index * sizeof(Word))
            .text("expected", hex(fault->expected))
            .text("found", hex(fault->found));
        out.add(told.str());
    }
    return out.str();
}

// Passes of one pattern until all are done or one finds errors, so that no fault is counted twice.
template <class PatternOfPass>
Finding passes(std::size_t bytes, int wanted, PatternOfPass pattern_of) {
    const DeviceArray<Word> words(std::max<std::size_t>(bytes / sizeof(Word), 1));
    const DeviceArray<Tally> device_tally(1);
    Tally tally{};
    int done = 0;
    const Stopwatch time{};
    while (done < wanted && tally.errors == 0) {
        const auto pattern = pattern_of(done++);
        using Pattern = std::decay_t<decltype(pattern)>;
        device_tally.fill_bytes(0);
        launch(fill<Pattern>, words.size(), words.data(), words.size(), pattern);
        launch(verify<Pattern>, words.size(), words.data(), words.size(), pattern, device_tally.data());
        synchronize();
        device_tally.to_host(&tally);
    }
    Finding finding;
    finding.bandwidth_gb_s = 2.0 * done * static_cast<double>(words.bytes()) / time.seconds() / 1e9;
    finding.details.number("bytes", words.bytes()).number("passes", done).number("errors", tally.errors);
    if (tally.errors > 0) {
        finding.error = std::to_string(tally.errors) + " of " + std::to_string(words.size()) +
                        " words read back wrong in pass " + std::to_string(done) + " of " + std::to_string(wanted);
        finding.details.raw("faults", faults_json(tally));
    }
    return finding;
}

}  // namespace

std::vector<Test> memory_tests(std::size_t bytes, std::uint64_t seed) {
    return {
        {"memory_walking_ones", [=] { return passes(bytes, kWordBits, [](int pass) { return WalkingOne{pass}; }); }},
        {"memory_walking_zeros", [=] { return passes(bytes, kWordBits, [](int pass) { return WalkingZero{pass}; }); }},
        {"memory_address", [=] { return passes(bytes, 1, [](int) { return OwnAddress{}; }); }},
        {"memory_random",
         [=] {
             Finding finding =
                 passes(bytes, 2, [seed](int pass) { return Random{seed, pass == 0 ? Word{0} : ~Word{0}}; });
             finding.details.text("seed", std::to_string(seed));
             return finding;
         }},
    };
}
