/* A made-up libnvidia-ml.so.1, for programs that a test starts: tests.support.nvml.library compiles it, and adds a
 * function that answers NotSupported for every other one that nvidia-ml-py knows.
 *
 * FAKE_NVML_COUNT      how many GPUs (1)           FAKE_NVML_LOST       index of the one that is off the bus
 * FAKE_NVML_NAME       NVIDIA H100 80GB HBM3       FAKE_NVML_PCI_ID     its device id in hex (2330)
 * FAKE_NVML_MEMORY_MIB 81559                       FAKE_NVML_COMPUTE    9.0
 * FAKE_NVML_PROCESSES  index:pid:MiB,...           FAKE_NVML_LINKS      NVLinks into a switch (18)
 * FAKE_NVML_DRIVER     580.95.05                   FAKE_NVML_CUDA       13000
 * FAKE_NVML_INIT       the code that starting fails with (0)
 * FAKE_NVML_HANG       seconds that starting takes (0)
 * FAKE_NVML_STATE      a folder that keeps what is set: limit-INDEX (milliwatts), clock-INDEX (MHz); without, no permission
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 64
#define MIB (1ULL << 20)
#define DEV struct device *d
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

typedef unsigned int uint;
typedef unsigned long long ull;
struct device { int index; };
struct memory { ull total, free, used; };
struct memory_v2 { uint version; ull total, reserved, free, used; };
struct pci { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; };
struct process { uint pid; ull memory; uint gpu_instance, compute_instance; };
struct field { uint id, scope; long long when, latency; uint type, code; union { ull number; double real; } value; };
struct pair { uint gpu, memory; };
struct temperature { uint version, sensor; int celsius; };
struct margin { uint version; int celsius; };

static struct device devices[MOST];

static const char *text(const char *name, const char *otherwise) {
    const char *found = getenv(name);
    return found && *found ? found : otherwise;
}
static ull number(const char *name, ull otherwise) {
    const char *found = getenv(name);
    return found && *found ? strtoull(found, 0, 10) : otherwise;
}
static int count(void) { return (int)number("FAKE_NVML_COUNT", 1); }
static int lost(int index) { return index == (int)number("FAKE_NVML_LOST", MOST); }
static uint pci_id(void) { return (uint)strtoul(text("FAKE_NVML_PCI_ID", "2330"), 0, 16); }
static ull total(void) { return number("FAKE_NVML_MEMORY_MIB", 81559) * MIB; }
static uint links(void) { return (uint)number("FAKE_NVML_LINKS", 18); }

/* What processes there are on a GPU; `into` may be null. */
static uint processes(int index, struct process *into, uint most) {
    uint found = 0;
    for (const char *at = text("FAKE_NVML_PROCESSES", ""); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : 0) {
        int gpu; uint pid; ull mib = 0;
        if (sscanf(at, "%d:%u:%llu", &gpu, &pid, &mib) < 2 || gpu != index) continue;
        if (into && found < most) into[found] = (struct process){pid, mib * MIB, ~0u, ~0u};
        found++;
    }
    return found;
}
static ull used(int index) {
    struct process all[256];
    uint found = processes(index, all, 256);
    ull sum = 0;
    for (uint n = 0; n < found && n < 256; n++) sum += all[n].memory;
    return sum;
}

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    sleep((uint)number("FAKE_NVML_HANG", 0));
    return (int)number("FAKE_NVML_INIT", 0);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "made up"; }
int nvmlSystemGetDriverVersion(char *out, uint size) { snprintf(out, size, "%s", text("FAKE_NVML_DRIVER", "580.95.05")); return OK; }
int nvmlSystemGetNVMLVersion(char *out, uint size) { snprintf(out, size, "13.%s", text("FAKE_NVML_DRIVER", "580.95.05")); return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { *out = (int)number("FAKE_NVML_CUDA", 13000); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }
int nvmlDeviceGetCount_v2(uint *out) { *out = (uint)count(); return OK; }

static int give(int index, struct device **out) {
    if (index < 0 || index >= count() || index >= MOST) return INVALID;
    if (lost(index)) return LOST;
    devices[index].index = index;
    *out = &devices[index];
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(uint index, struct device **out) { return give((int)index, out); }
int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **out) {
    int index;
    return sscanf(uuid, "GPU-%d-", &index) == 1 ? give(index, out) : NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, struct device **out) {
    uint domain, bus;
    return sscanf(address, "%x:%x", &domain, &bus) == 2 ? give(((int)bus - 4) / 8, out) : NOT_FOUND;
}

#define NUMBER(name, value) int name(DEV, uint *out) { if (lost(d->index)) return LOST; *out = (uint)(value); return OK; }
#define STRING(name, ...) int name(DEV, char *out, uint size) { if (lost(d->index)) return LOST; snprintf(out, size, __VA_ARGS__); return OK; }

STRING(nvmlDeviceGetName, "%s", text("FAKE_NVML_NAME", "NVIDIA H100 80GB HBM3"))
STRING(nvmlDeviceGetUUID, "GPU-%08d-aaaa-bbbb-cccc-%012x", d->index, pci_id())
STRING(nvmlDeviceGetSerial, "16505220038%02d", d->index)
STRING(nvmlDeviceGetVbiosVersion, "96.00.89.00.01")
NUMBER(nvmlDeviceGetIndex, d->index)
NUMBER(nvmlDeviceGetMinorNumber, d->index)
NUMBER(nvmlDeviceGetArchitecture, 9)
NUMBER(nvmlDeviceGetNumGpuCores, 16896)
NUMBER(nvmlDeviceGetPowerUsage, 71432)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPersistenceMode, 1)
NUMBER(nvmlDeviceGetComputeMode, 0)
NUMBER(nvmlDeviceGetPerformanceState, 0)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, 7)
NUMBER(nvmlDeviceIsMigDeviceHandle, 0)

/* Settings outlive the process that made them, as a driver's do. */
static const char *setting(const char *name, int index) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s-%d", text("FAKE_NVML_STATE", ""), name, index);
    return path;
}
static int keep(const char *name, int index, uint value) {
    FILE *file = getenv("FAKE_NVML_STATE") ? fopen(setting(name, index), "w") : 0;
    if (!file) return NO_PERMISSION;
    fprintf(file, "%u", value);
    return fclose(file) ? NO_PERMISSION : OK;
}
int nvmlDeviceGetPowerManagementLimit(DEV, uint *out) {
    FILE *file = getenv("FAKE_NVML_STATE") ? fopen(setting("limit", d->index), "r") : 0;
    *out = 700000;
    if (file && fscanf(file, "%u", out) != 1) *out = 700000;
    if (file) fclose(file);
    return OK;
}
int nvmlDeviceSetPowerManagementLimit(DEV, uint value) { return keep("limit", d->index, value); }
int nvmlDeviceSetGpuLockedClocks(DEV, uint low, uint high) { (void)low; return keep("clock", d->index, high); }
int nvmlDeviceResetGpuLockedClocks(DEV) { return keep("clock", d->index, 0); }
int nvmlDeviceGetCurrentClocksEventReasons(DEV, ull *out) { (void)d; *out = 1; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(DEV, ull *out) { return nvmlDeviceGetCurrentClocksEventReasons(d, out); }
int nvmlDeviceGetTotalEnergyConsumption(DEV, ull *out) { (void)d; *out = 5400000123ULL; return OK; }
int nvmlDeviceGetTemperature(DEV, uint sensor, uint *out) { (void)sensor; if (lost(d->index)) return LOST; *out = 34; return OK; }
int nvmlDeviceGetTemperatureV(DEV, struct temperature *out) { if (lost(d->index)) return LOST; out->celsius = 34; return OK; }
int nvmlDeviceGetMarginTemperature(DEV, struct margin *out) { (void)d; out->celsius = 53; return OK; }
int nvmlDeviceGetCudaComputeCapability(DEV, int *major, int *minor) {
    (void)d;
    return sscanf(text("FAKE_NVML_COMPUTE", "9.0"), "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetPowerManagementLimitConstraints(DEV, uint *low, uint *high) { (void)d; *low = 200000; *high = 700000; return OK; }
int nvmlDeviceGetClockInfo(DEV, uint kind, uint *out) { (void)d; *out = kind == 2 ? 2619 : 345; return OK; }
int nvmlDeviceGetMaxClockInfo(DEV, uint kind, uint *out) { (void)d; *out = kind == 2 ? 2619 : 1980; return OK; }
int nvmlDeviceGetEccMode(DEV, uint *now, uint *then) { (void)d; *now = *then = 1; return OK; }
int nvmlDeviceGetMigMode(DEV, uint *now, uint *then) { (void)d; *now = *then = 0; return OK; }
int nvmlDeviceGetTotalEccErrors(DEV, uint kind, uint counter, ull *out) { (void)d; (void)kind; (void)counter; *out = 0; return OK; }
int nvmlDeviceGetMemoryErrorCounter(DEV, uint kind, uint counter, uint where, ull *out) {
    (void)d; (void)kind; (void)counter; (void)where; *out = 0; return OK;
}
int nvmlDeviceGetUtilizationRates(DEV, struct pair *out) {
    if (lost(d->index)) return LOST;
    *out = processes(d->index, 0, 0) ? (struct pair){87, 41} : (struct pair){0, 0};
    return OK;
}
int nvmlDeviceGetMemoryInfo(DEV, struct memory *out) {
    if (lost(d->index)) return LOST;
    *out = (struct memory){total(), total() - used(d->index) - 551 * MIB, used(d->index) + 551 * MIB};
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(DEV, struct memory_v2 *out) {
    if (lost(d->index)) return LOST;
    out->total = total(); out->reserved = 551 * MIB; out->used = used(d->index);
    out->free = out->total - out->reserved - out->used;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(DEV, struct pci *out) {
    *out = (struct pci){.bus = 4 + 8 * (uint)d->index, .id = pci_id() << 16 | 0x10de};
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    return OK;
}
int nvmlDeviceGetCpuAffinity(DEV, uint size, ull *out) { (void)d; memset(out, 0, size * sizeof *out); out[0] = 0xff; return OK; }
int nvmlDeviceGetMemoryAffinity(DEV, uint size, ull *out, uint scope) {
    (void)d; (void)scope; memset(out, 0, size * sizeof *out); out[0] = 1; return OK;
}
int nvmlDeviceGetNvLinkState(DEV, uint link, uint *out) { (void)d; if (link >= links()) return INVALID; *out = 1; return OK; }
int nvmlDeviceGetNvLinkRemoteDeviceType(DEV, uint link, uint *out) { (void)d; if (link >= links()) return INVALID; *out = 2; return OK; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(DEV, uint link, struct pci *out) {
    (void)d;
    if (link >= links()) return INVALID;
    *out = (struct pci){.bus = 0x80 + link % 4, .id = 0x22a310de};
    return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(DEV, struct device *other, uint *out) {
    *out = d->index / 4 == other->index / 4 ? 40 : 50;
    return OK;
}
int nvmlDeviceGetP2PStatus(DEV, struct device *other, uint kind, uint *out) {
    (void)d; (void)other; (void)kind;
    *out = links() ? 0 : 5;
    return OK;
}

static int field(uint id, ull *out) {
    switch (id) {
    case 1: *out = 1; return OK;
    case 3: case 4: case 6: case 94: case 142: case 143: case 144: case 145: case 161: case 162: case 163: case 230:
        *out = 0; return OK;
    case 82: *out = 41; return OK;
    case 83: *out = 5400000123ULL; return OK;
    case 91: *out = links(); return links() ? OK : NOT_SUPPORTED;
    case 165: *out = 1; return OK;
    case 185: case 186: *out = 71432; return OK;
    default: return NOT_SUPPORTED;
    }
}
int nvmlDeviceGetFieldValues(DEV, int many, struct field *values) {
    if (lost(d->index)) return LOST;
    for (int n = 0; n < many; n++) {
        values[n].type = 3;
        values[n].code = (uint)field(values[n].id, &values[n].value.number);
    }
    return OK;
}

static int running(DEV, uint *many, struct process *out) {
    uint found, given = *many;
    if (lost(d->index)) return LOST;
    *many = found = processes(d->index, out, given);
    return found && (!out || given < found) ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(DEV, uint *many, struct process *out) { return running(d, many, out); }
int nvmlDeviceGetComputeRunningProcesses_v2(DEV, uint *many, struct process *out) { return running(d, many, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(DEV, uint *many, struct process *out) { (void)d; (void)out; *many = 0; return OK; }
int nvmlDeviceGetGraphicsRunningProcesses_v2(DEV, uint *many, struct process *out) { (void)d; (void)out; *many = 0; return OK; }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(DEV, uint *many, struct process *out) { (void)d; (void)out; *many = 0; return OK; }
