/* A network plugin is told the GPU of the thread that makes a communicator, wherever that is made then. The plugin of net_gpu.c
   refuses with what it was told. */
#include "device.h"

static cclComm_t comm;

static cclUniqueId id(void) {
    cclUniqueId made;
    OK(cclGetUniqueId(&made));
    return made;
}

static void enter(int device) {
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxPushCurrent_v2(context));
}

static void leave_device(void) {
    CUcontext context;
    CU(cuCtxPopCurrent_v2(&context));
}

static void in_a_group(void) {
    enter(1);
    OK(cclGroupStart());
    OK(cclCommInitRank(&comm, 1, id(), 0));
    leave_device();
    REFUSED(cclInvalidUsage, "GPU 0000:3c:00.0", cclGroupEnd());
}

static void in_background(void) {
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclResult_t state = cclInProgress;
    config.blocking = 0;
    enter(1);
    EXPECT(cclInProgress, cclCommInitRankConfig(&comm, 1, id(), 0, &config));
    leave_device();
    for (int i = 0; i < 6000 && state == cclInProgress; i++) {
        usleep(10000);
        OK(cclCommGetAsyncError(comm, &state));
    }
    CHECK(state == cclInvalidUsage);
    CHECK(strstr(cclGetLastError(comm), "GPU 0000:3c:00.0") != NULL);
    OK(cclCommDestroy(comm));
}

int main(void) {
    CHECK(setenv("CCL_NET_PLUGIN", PLUGIN, 1) == 0 && setenv("CCL_TRANSPORT", "loop", 1) == 0);
    CU(cuInit(0));
    REFUSED(cclInvalidUsage, "GPU none", cclCommInitRank(&comm, 1, id(), 0));
    enter(0);
    REFUSED(cclInvalidUsage, "GPU 0000:3b:00.0", cclCommInitRank(&comm, 1, id(), 0));
    REFUSED(cclInvalidUsage, "GPU 0000:3b:00.0", cclCommInitAll(&comm, 1, NULL));
    REFUSED(cclInvalidUsage, "GPU 0000:3c:00.0", cclCommInitAll(&comm, 1, (int[]){1}));
    fakeFail("cuDeviceGetPCIBusId", CUDA_ERROR_INVALID_DEVICE);
    REFUSED(cclInvalidUsage, "GPU none", cclCommInitRank(&comm, 1, id(), 0));
    fakeFail("", 0);
    leave_device();
    in_a_group();
    in_background();
    return 0;
}
