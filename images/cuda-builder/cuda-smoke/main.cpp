// cuda-smoke: is this machine's CUDA fit for work? Prints one JSON document; options.h tells how it is called.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "device.h"
#include "driver.h"
#include "failure.h"
#include "json.h"
#include "options.h"
#include "runtime.h"
#include "supervise.h"
#include "tests.h"

namespace {

enum Status { kOk = 0, kTestFailed = 1, kBadUsage = 2, kUnusable = 3 };

const std::string kToolkit = cuda_version(CUDART_VERSION);

struct Report {
    Driver driver;
    json::Array devices;
    std::string error;  // rendered; empty where the driver can be used
    int status = kOk;

    std::string json() const {
        json::Object out;
        out.number("schema", 1)
            .text("toolkit", kToolkit)
            .text_or_null("driver", driver.version)
            .text_or_null("driver_cuda", cuda_version(driver.cuda))
            .raw("devices", devices.str())
            .boolean("ok", status == kOk);
        if (!error.empty()) out.raw("error", error);
        return out.str();
    }
};

std::string architectures_json() {
    const auto architectures = compiled_architectures();
    json::Array names;
    for (const int each : architectures) names.add(json::quoted(std::to_string(each)));
    json::Object out;
    out.number("schema", 1)
        .text("toolkit", kToolkit)
        .raw("architectures", names.str())
        .text("ptx", std::to_string(*std::max_element(architectures.begin(), architectures.end())));
    return out.str();
}

// The tests of one GPU in order; one that the CUDA runtime gave up is the last, since nothing after it could be told
// from its consequence.
std::string run_tests(const std::vector<Test>& tests, const std::function<void(const char*)>& at, bool& ok) {
    json::Array results;
    bool usable = true;
    for (const auto& test : tests) {
        at(test.name.c_str());
        const Stopwatch time{};
        Finding finding;
        try {
            finding = test.run();
        } catch (const CudaFailure& failure) {
            finding.error = failure.text();
            usable = false;
        }
        ok = ok && finding.error.empty();
        json::Object result;
        result.text("name", test.name).boolean("ok", finding.error.empty()).number("seconds", time.seconds());
        if (finding.bandwidth_gb_s > 0) result.number("bandwidth_gb_s", finding.bandwidth_gb_s);
        if (!finding.error.empty()) result.text("error", finding.error);
        results.add(result.members(finding.details).str());
        if (!usable) break;
    }
    return results.str();
}

json::Object device_head(int index) {
    json::Object out;
    out.number("index", index);
    return out;
}

std::string device_failed(int index, const Failure& failure) {
    return device_head(index).raw("tests", "[]").boolean("ok", false).raw("error", failure.json()).str();
}

Answer test_device(int index, const Options& options, const std::function<void(const char*)>& at) {
    try {
        at("opening the GPU");
        const DeviceFacts facts = open_device(index);
        std::vector<Test> tests;
        if (options.vector_add) tests.push_back(vector_add_test(facts.free_bytes));
        if (options.memory) {
            for (auto& each : memory_tests(options.memory_size.of(facts.free_bytes), options.seed))
                tests.push_back(std::move(each));
        }
        bool ok = true;
        const std::string results = run_tests(tests, at, ok);
        json::Object out = device_head(index);
        out.members(facts.json()).raw("tests", results).boolean("ok", ok);
        return {ok ? kOk : kTestFailed, out.str()};
    } catch (const CudaFailure& failure) {
        return {kUnusable, device_failed(index, device_failure(failure.code, failure.text(), kToolkit))};
    }
}

Failure unanswered(const Outcome& outcome, const Options& options) {
    const std::string where = outcome.step.empty() ? "" : " at " + outcome.step;
    if (outcome.end == Outcome::End::timed_out) {
        return {"timeout", "no answer after " + std::to_string(options.timeout_seconds) + " s" + where,
                "look at the kernel's log for Xid messages; a larger --timeout if the memory is large"};
    }
    return {"crash",
            outcome.signal ? "ended by signal " + std::to_string(outcome.signal) + where : "ended without a message" + where, ""};
}

// Counting GPUs starts the driver, after which a process can no longer be forked: so another one counts.
void count_devices(Report& report, const Options& options, Deadline deadline) {
    const Job count = [](const auto& at) {
        at("starting the driver");
        const Driver driver = ask_driver();
        return Answer{0, std::to_string(driver.cuda) + ' ' + std::to_string(driver.error) + ' ' +
                             std::to_string(driver.devices)};
    };
    const Outcome outcome = run_apart({count}, deadline).front();
    Driver& driver = report.driver;
    driver.version = installed_driver();
    if (outcome.end != Outcome::End::answered) {
        report.error = unanswered(outcome, options).json();
    } else {
        std::sscanf(outcome.answer.text.c_str(), "%d %d %d", &driver.cuda, &driver.error, &driver.devices);
        if (driver.error != cudaSuccess || driver.devices == 0)
            report.error = driver_failure(driver, CUDART_VERSION).json();
    }
    if (!report.error.empty()) report.status = kUnusable;
}

void test_devices(Report& report, const Options& options, const std::vector<int>& indices, Deadline deadline) {
    std::vector<Job> jobs;
    for (const int index : indices)
        jobs.push_back([index, &options](const auto& at) { return test_device(index, options, at); });
    const auto outcomes = run_apart(jobs, deadline);
    bool failed = false;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        const Outcome& outcome = outcomes[i];
        const bool answered = outcome.end == Outcome::End::answered;
        report.devices.add(answered ? outcome.answer.text : device_failed(indices[i], unanswered(outcome, options)));
        const int status = answered ? outcome.answer.status : kTestFailed;
        failed = failed || status == kTestFailed;
        report.status = std::max(report.status, status);
    }
    if (failed) report.status = kTestFailed;  // says more than that another GPU could not be used
}

std::vector<int> chosen(const Options& options, int devices) {
    if (!options.devices.empty()) {
        const int last = options.devices.back();
        if (last >= devices) {
            throw UsageError{"--device " + std::to_string(last) + ": there are " + std::to_string(devices) +
                             " GPUs here, numbered from 0"};
        }
        return options.devices;
    }
    std::vector<int> all(static_cast<std::size_t>(devices));
    for (int i = 0; i < devices; ++i) all[static_cast<std::size_t>(i)] = i;
    return all;
}

int print(const std::string& document, int status) {
    std::puts(document.c_str());
    if (std::fflush(stdout) == 0) return status;
    std::perror("cuda-smoke: cannot write the report");
    return kTestFailed;
}

int run(const Options& options) {
    if (options.help) return print(kUsage, kOk);
    if (options.list) return print(architectures_json(), kOk);
    const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_seconds);
    Report report;
    count_devices(report, options, deadline);
    if (report.status == kOk) test_devices(report, options, chosen(options, report.driver.devices), deadline);
    return print(report.json(), report.status);
}

}  // namespace

int main(int argc, char** argv) {
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    try {
        return run(parse(argc, argv));
    } catch (const UsageError& error) {
        std::fprintf(stderr, "cuda-smoke: %s\n%s", error.text.c_str(), kUsage);
        return kBadUsage;
    }
}
