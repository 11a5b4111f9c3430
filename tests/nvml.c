/* A stand-in for NVIDIA's libnvidia-ml.so.1: four GPUs, whose links are those that NVML_STAND_IN names. Numbers are NVML's. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, VERSION_MISMATCH = 18 };
enum { TO_GPU = 0, TO_SWITCH = 2 };

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} Pci;

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
} Fabric;

/* A handle is the GPU's number and one more. */
static int number(void *device) { return (int)(size_t)device - 1; }

static int is(const char *machine) {
    const char *named = getenv("NVML_STAND_IN");
    return strcmp(named ? named : "mesh", machine) == 0;
}

int nvmlInit_v2(void) {
    return is("no driver") ? DRIVER_NOT_LOADED : is("other driver") ? VERSION_MISMATCH : SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 4;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return SUCCESS;
}

static int at(Pci *pci, unsigned bus) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000007:%02X:00.0", bus);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, Pci *pci) { return at(pci, number(device) + 1); }

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-%d", number(device));
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    *major = is("fabric") ? 10 : 8;
    *minor = 0;
    return SUCCESS;
}

/* In a mesh link 6 is down, 7 is not for data, and 8 is none of this GPU. */
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
    (void)device;
    unsigned links = is("mesh") ? 9 : is("switch") ? 12 : 18;
    if (link >= links)
        return INVALID_ARGUMENT;
    if (is("mesh") && link == 8)
        return NOT_SUPPORTED;
    *active = !(is("mesh") && link == 6);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, unsigned capability, unsigned *has) {
    (void)device;
    *has = capability == 0 && !(is("mesh") && link == 7);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) {
    (void)device, (void)link;
    *version = is("fabric") ? 7 : 4;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, Pci *pci) {
    if (is("mesh"))
        return at(pci, (number(device) + 1 + link / 2) % 4 + 1);
    if (is("switch"))
        return at(pci, 0x0a + link % 2);
    at(pci, 0);
    strcpy(pci->bus_id, "FFFFFFFF:FF:FF.0");
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *kind) {
    (void)device, (void)link;
    if (is("fabric"))
        return NOT_SUPPORTED;
    *kind = is("mesh") ? TO_GPU : TO_SWITCH;
    return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfoV(void *device, Fabric *fabric) {
    if (!is("fabric"))
        return NOT_SUPPORTED;
    if (fabric->version != (sizeof *fabric | 2u << 24))
        return INVALID_ARGUMENT;
    memset(fabric->cluster, 0xab, sizeof fabric->cluster);
    fabric->status = SUCCESS;
    fabric->clique = number(device) / 2;
    fabric->state = 3;
    return SUCCESS;
}
