/* What the tests of device memory share: a rank with its device, its stream and buffers of int32. */
#ifndef DEVICE_H
#define DEVICE_H

#include "../c/ranks.h"
#include "fake.h"

#include <pthread.h>

#define CU(call) CHECK((call) == CUDA_SUCCESS)

/* Whether the program was built to have the data stay on the devices; its first call tells the library. */
static inline int is_direct(void) {
#ifdef DIRECT
    CHECK(setenv("CCL_CUDA_DIRECT", "on", 1) == 0);
    return 1;
#else
    return 0;
#endif
}

typedef struct {
    int ranks, me;
    cclComm_t comm;
    CUcontext context;
    CUstream stream;
} Rank;

/* Whether all ranks are to be on device 0. */
static int on_one_device;

/* Makes a rank on device `me` modulo their number; the device's context is the thread's current one. */
static inline Rank join(cclUniqueId id, int ranks, int me) {
    Rank rank = {.ranks = ranks, .me = me};
    int devices;
    CU(cuInit(0));
    CU(cuDeviceGetCount(&devices));
    CU(cuDevicePrimaryCtxRetain(&rank.context, on_one_device ? 0 : me % devices));
    CU(cuCtxPushCurrent_v2(rank.context));
    CU(cuStreamCreate(&rank.stream, 1));
    OK(cclCommInitRank(&rank.comm, ranks, id, me));
    return rank;
}

static inline void leave(Rank *rank) {
    OK(cclCommDestroy(rank->comm));
    CU(cuStreamDestroy_v2(rank->stream));
    CU(cuCtxPopCurrent_v2(&rank->context));
}

enum { POISON = 0x5a5a5a5a };

/* Says where a rank is, if STAGES is set. */
static inline void stage(const Rank *rank, const char *name) {
    if (getenv("STAGES") != NULL) {
        fprintf(stderr, "rank %d of %d: %s\n", rank->me, rank->ranks, name);
    }
}

/* Copies to device memory, where all streams find it: the copy alone returns when it is on its way. */
static inline void put(void *at, const void *host, size_t bytes) {
    CU(cuMemcpyHtoD_v2((CUdeviceptr)at, host, bytes));
    CU(cuStreamSynchronize(NULL));
}

/* Device memory with a copy of so many int32. */
static inline int32_t *copy_of(const int32_t *host, size_t count) {
    CUdeviceptr at;
    CU(cuMemAlloc_v2(&at, (count == 0 ? 1 : count) * sizeof *host));
    put((void *)at, host, count * sizeof *host);
    return (int32_t *)at;
}

/* Device memory of `count` int32, none of them right. */
static inline int32_t *buffer(size_t count) {
    int32_t *host = malloc((count == 0 ? 1 : count) * sizeof *host);
    for (size_t i = 0; i < count; i++) {
        host[i] = POISON;
    }
    int32_t *at = copy_of(host, count);
    free(host);
    return at;
}

/* A copy of so many int32 in host memory. */
static inline int32_t *copied(const int32_t *at, size_t count) {
    int32_t *host = malloc((count == 0 ? 1 : count) * sizeof *host);
    CU(cuMemcpyDtoH_v2(host, (CUdeviceptr)at, count * sizeof *host));
    return host;
}

/* Whether ranks are threads. */
static int has_threads;

/* What they have released: to free memory waits for all streams of its context, and those of other threads wait for this one's. */
static struct {
    pthread_mutex_t lock;
    CUdeviceptr at[8192];
    size_t count;
} released = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void release(void *at) {
    if (!has_threads) {
        CU(cuMemFree_v2((CUdeviceptr)at));
        return;
    }
    pthread_mutex_lock(&released.lock);
    CHECK(released.count < sizeof released.at / sizeof *released.at);
    released.at[released.count++] = (CUdeviceptr)at;
    pthread_mutex_unlock(&released.lock);
}

/* Frees all that: the threads have ended. */
static inline void free_released(void) {
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxPushCurrent_v2(context));
    while (released.count > 0) {
        CU(cuMemFree_v2(released.at[--released.count]));
    }
    CU(cuCtxPopCurrent_v2(&context));
}

static inline void set(int32_t *at, size_t i, int32_t value) { put(at + i, &value, sizeof value); }

static inline int32_t get(const int32_t *at, size_t i) {
    int32_t value;
    CU(cuMemcpyDtoH_v2(&value, (CUdeviceptr)(at + i), sizeof value));
    return value;
}

/* Has the stream wait until the gate is opened. */
static inline int32_t *gate(CUstream stream) {
    int32_t *gate = buffer(1);
    set(gate, 0, 0);
    CU(cuStreamWaitValue32_v2(stream, (CUdeviceptr)gate, 1, 0));
    return gate;
}

/* The element i of what rank r sends. */
static inline int32_t of(int r, size_t i) { return (int32_t)((size_t)(r + 1) * 1000 + i % 977); }

static inline int32_t sum(int ranks, size_t i) {
    int32_t all = 0;
    for (int r = 0; r < ranks; r++) {
        all += of(r, i);
    }
    return all;
}

static inline int32_t *filled(int r, size_t count) {
    int32_t *host = malloc((count == 0 ? 1 : count) * sizeof *host);
    for (size_t i = 0; i < count; i++) {
        host[i] = of(r, i);
    }
    int32_t *at = copy_of(host, count);
    free(host);
    return at;
}

#endif
