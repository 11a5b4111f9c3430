/* All operations on device memory, by ranks that are threads and by ranks that are processes, against what they must give. */
#include "device.h"

enum { RANKS = 3 };

static int direct;

static const size_t COUNTS[] = {1, 7, 1000, 40009};
static const cclDataType_t TYPE = cclInt32;

/* Each of so many elements of device memory is what `wanted` is for its number i. */
#define EACH(count, at, wanted)                                                                                        \
    do {                                                                                                               \
        size_t count_ = (count);                                                                                       \
        int32_t *all_ = copied(at, count_);                                                                            \
        for (size_t i = 0; i < count_; i++) {                                                                          \
            CHECK(all_[i] == (wanted));                                                                                \
        }                                                                                                              \
        free(all_);                                                                                                    \
    } while (0)

static void to_all(Rank *k, size_t n, CUstream s) {
    size_t all = n * (size_t)k->ranks;
    int32_t *send = filled(k->me, n), *recv = buffer(n), *wide = buffer(all);
    int root = (int)(n % (size_t)k->ranks);
    /* In the order of the stream: the second takes what the first gives. */
    OK(cclAllReduce(send, recv, n, TYPE, cclSum, k->comm, s));
    OK(cclAllReduce(recv, recv, n, TYPE, cclMax, k->comm, s));
    OK(cclAllGather(send, wide, n, TYPE, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(n, recv, sum(k->ranks, i));
    EACH(all, wide, of((int)(i / n), i % n));
    EACH(n, send, of(k->me, i));
    /* In place, and broadcasts. */
    int32_t *mine = filled(k->me, n), *host = copied(mine, n), *poison = buffer(all), *start = copied(poison, all);
    memcpy(start + (size_t)k->me * n, host, n * sizeof *host);
    put(wide, start, all * sizeof *start);
    free(host), free(start), release(mine), release(poison);
    OK(cclAllGather(wide + (size_t)k->me * n, wide, n, TYPE, k->comm, s));
    OK(cclBroadcast(k->me == root ? send : NULL, recv, n, TYPE, root, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(all, wide, of((int)(i / n), i % n));
    EACH(n, recv, of(root, i));
    set(recv, 0, k->me);
    OK(cclBcast(recv, 1, TYPE, root, k->comm, s));
    CU(cuStreamSynchronize(s));
    CHECK(get(recv, 0) == root);
    release(send), release(recv), release(wide);
}

static void in_parts(Rank *k, size_t n, CUstream s) {
    size_t all = n * (size_t)k->ranks, mine = n * (size_t)k->me;
    int root = (int)((n + 1) % (size_t)k->ranks), is_root = k->me == root;
    int32_t *send = filled(k->me, all), *recv = buffer(n), *wide = buffer(all);
    OK(cclReduceScatter(send, recv, n, TYPE, cclSum, k->comm, s));
    OK(cclAlltoAll(send, wide, n, TYPE, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(n, recv, sum(k->ranks, mine + i));
    EACH(all, wide, of((int)(i / n), mine + i % n));
    OK(cclReduce(send, is_root ? wide : NULL, all, TYPE, cclSum, root, k->comm, s));
    OK(cclScatter(is_root ? send : NULL, recv, n, TYPE, root, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(is_root ? all : 0, wide, sum(k->ranks, i));
    EACH(n, recv, of(root, mine + i));
    OK(cclGather(recv, is_root ? wide : NULL, n, TYPE, root, k->comm, s));
    /* In place. */
    OK(cclReduceScatter(send, send + mine, n, TYPE, cclSum, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(is_root ? all : 0, wide, of(root, i));
    EACH(all, send, (i / n == (size_t)k->me ? sum(k->ranks, i) : of(k->me, i)));
    /* On some ranks in place, on others not. */
    int32_t *both = filled(k->me, all), *to = k->me % 2 == 0 ? both : wide;
    OK(cclAlltoAll(both, to, n, TYPE, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(all, to, of((int)(i / n), mine + i % n));
    release(both);
    release(send), release(recv), release(wide);
}

/* Blocks with gaps, which stay as they are. */
static void vectors(Rank *k, CUstream s) {
    size_t n = 50, counts[RANKS], displs[RANKS], all = RANKS * 2 * n;
    for (size_t r = 0; r < RANKS; r++) {
        counts[r] = n + r, displs[r] = 2 * n * r + 3;
    }
    size_t mine = counts[k->me];
    int32_t *send = filled(k->me, all), *recv = buffer(all);
    OK(cclAllGatherV(send, mine, recv, counts, displs, TYPE, k->comm, s));
    CU(cuStreamSynchronize(s));
    for (size_t i = 0; i < all; i++) {
        size_t r = i / (2 * n), at = i - displs[r];
        CHECK(get(recv, i) == (i >= displs[r] && at < counts[r] ? of((int)r, at) : POISON));
    }
    OK(cclReduceScatterV(send, counts, displs, recv, mine, TYPE, cclSum, k->comm, s));
    CU(cuStreamSynchronize(s));
    EACH(mine, recv, sum(k->ranks, displs[k->me] + i));
    release(send), release(recv);
}

static void messages(Rank *k, CUstream s) {
    size_t n = 30011;
    int to = (k->me + 1) % k->ranks, from = (k->me + k->ranks - 1) % k->ranks;
    int32_t *send = filled(k->me, n), *recv = buffer(n + 10);
    /* The receive first: a group's operations need one another. */
    OK(cclGroupStart());
    OK(cclRecv(recv, n, TYPE, from, k->comm, s));
    OK(cclSend(send, n, TYPE, to, k->comm, s));
    OK(cclGroupEnd());
    CU(cuStreamSynchronize(s));
    EACH(n, recv, of(from, i));
    EACH(10, recv + n, POISON);
    /* A message that is shorter than there is room for; a send's stream does not wait for the receiver. */
    cclRecvInfo_t info = {.count = 0};
    OK(cclSendTag(send, 5, TYPE, to, 9, k->comm, s));
    OK(cclRecvTag(recv, n, TYPE, CCL_ANY_SOURCE, CCL_ANY_TAG, &info, k->comm, s));
    CU(cuStreamSynchronize(s));
    CHECK(info.source == from && info.tag == 9 && info.count == 5);
    EACH(n, recv, of(from, i));
    release(send), release(recv);
}

/* The caller waits for nothing, and the operation for what is before it in the stream. */
static void order(Rank *k) {
    int32_t *data = filled(k->me, 100), *before = gate(k->stream);
    OK(cclAllReduce(data, data, 100, TYPE, cclSum, k->comm, k->stream));
    OK(cclBarrier(k->comm, k->stream));
    CHECK(cuStreamQuery(k->stream) == CUDA_ERROR_NOT_READY);
    set(before, 0, 1);
    CU(cuStreamSynchronize(k->stream));
    EACH(100, data, sum(k->ranks, i));
    release(data), release(before);
}

/* More than a window holds. All parts begin at packs: the rest takes the stand-in long. */
static void large(Rank *k) {
    size_t n = (32u << 20) + 4816, part = n / (size_t)k->ranks;
    uint8_t *host = malloc(n), *send = (uint8_t *)buffer(n / 4 + 1), *recv = (uint8_t *)buffer(n / 4 + 1);
    for (size_t i = 0; i < n; i++) {
        host[i] = (uint8_t)(i % 61 + (size_t)k->me);
    }
    put(send, host, n);
    OK(cclAllReduce(send, recv, n, cclUint8, cclSum, k->comm, k->stream));
    OK(cclReduceScatter(recv, send, part, cclUint8, cclMax, k->comm, k->stream));
    OK(cclAllGather(send, recv, part, cclUint8, k->comm, k->stream));
    OK(cclBroadcast(recv, recv, n, cclUint8, 1, k->comm, k->stream));
    CU(cuStreamSynchronize(k->stream));
    CU(cuMemcpyDtoH_v2(host, (CUdeviceptr)recv, n));
    for (size_t i = 0; i < n; i++) {
        CHECK(host[i] == (uint8_t)((size_t)k->ranks * (i % 61) + (size_t)(k->ranks * (k->ranks - 1) / 2)));
    }
    free(host), release(send), release(recv);
}

/* All types and operations give what they give in host memory, to the bit. */
static void types(cclUniqueId id, cclUniqueId other, int ranks, int me) {
    enum { COUNT = 1003 };
    static const int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 2, 2};
    Rank k = join(id, ranks, me);
    /* The other one goes by windows no more. */
    CHECK(setenv("CCL_CUDA_DIRECT", "off", 1) == 0);
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.reproducible = 1;
    cclComm_t on_host;
    OK(cclCommInitRankConfig(&on_host, ranks, other, me, &config));
    uint8_t data[8 * COUNT], want[8 * COUNT], got[8 * COUNT];
    int32_t *send = buffer(2 * COUNT), *recv = buffer(2 * COUNT);
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(0x30 + (i * 7 + (size_t)me * 3) % 11); /* no type's NaN */
    }
    put(send, data, sizeof data);
    stage(&k, "types");
    for (int type = 0; type < 14; type++) {
        int is_float = type >= 6 && type <= 11;
        for (int op = 0; op < (is_float ? 5 : 8); op++) {
            OK(cclAllReduce(send, recv, COUNT, type, op, k.comm, k.stream));
            OK(cclAllReduce(data, want, COUNT, type, op, on_host, NULL));
            CU(cuStreamSynchronize(k.stream));
            CU(cuMemcpyDtoH_v2(got, (CUdeviceptr)recv, sizeof got));
            CHECK(memcmp(got, want, (size_t)SIZES[type] * COUNT) == 0);
        }
    }
    release(send), release(recv);
    OK(cclCommDestroy(on_host));
    stage(&k, "large");
    large(&k);
    leave(&k);
}

/* Ranks need not have the same kind of memory. */
static void mixed(Rank *k) {
    enum { COUNT = 5000 };
    int32_t host[COUNT], *device = filled(k->me, COUNT);
    if (k->me == 1) {
        for (size_t i = 0; i < COUNT; i++) {
            host[i] = of(k->me, i);
        }
        OK(cclAllReduce(host, host, COUNT, TYPE, cclSum, k->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(host[i] == sum(k->ranks, i));
        }
    } else {
        OK(cclAllReduce(device, device, COUNT, TYPE, cclSum, k->comm, k->stream));
        CU(cuStreamSynchronize(k->stream));
        EACH(COUNT, device, sum(k->ranks, i));
    }
    release(device);
}

/* Short and many: pinned memory is used again and again, and calls on several streams go on side by side. */
static void many(Rank *k) {
    enum { CALLS = 200 };
    CUstream other;
    CU(cuStreamCreate(&other, 1));
    int32_t *one = filled(0, 2), *two = filled(0, 2);
    set(one, 0, 0), set(two, 0, 0);
    for (int call = 0; call < CALLS; call++) {
        OK(cclAllReduce(one, one, 1, TYPE, cclMax, k->comm, k->stream));
        OK(cclAllReduce(two, two, 2, TYPE, cclMax, k->comm, other));
    }
    CU(cuStreamSynchronize(k->stream));
    CU(cuStreamSynchronize(other));
    CHECK(get(one, 0) == 0 && get(two, 1) == of(0, 1));
    release(one), release(two);
    CU(cuStreamDestroy_v2(other));
}

/* Much pinned memory is idle when a rank's stream waits for one that needs more: the driver unpins none until the stream goes on. */
static void large_and_late(Rank *k) {
    enum { LARGE = 17 << 20, PART = 300000 };
    int last = k->ranks - 1;
    int32_t *data = buffer(LARGE);
    OK(cclAllReduce(data, data, PART, TYPE, cclMax, k->comm, k->stream));
    OK(cclBroadcast(data, data, LARGE, TYPE, 0, k->comm, k->stream));
    CU(cuStreamSynchronize(k->stream));
    OK(cclBarrier(k->comm, NULL));
    usleep(k->me == last ? 100000 : 0);
    OK(cclGather(data, data + PART, PART, TYPE, last, k->comm, k->stream));
    CU(cuStreamSynchronize(k->stream));
    CHECK(get(data, LARGE - 1) == POISON);
    release(data);
}

static void work(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
        stage(&k, "to_all");
        to_all(&k, COUNTS[c], k.stream);
        stage(&k, "in_parts");
        in_parts(&k, COUNTS[c], k.stream);
    }
    stage(&k, "vectors");
    vectors(&k, k.stream);
    stage(&k, "messages");
    messages(&k, k.stream);
    stage(&k, "order");
    order(&k);
    if (!direct) {
        stage(&k, "mixed");
        mixed(&k);
    }
    stage(&k, "many");
    many(&k);
    stage(&k, "large_and_late");
    large_and_late(&k);
    /* No elements and no buffers: still in the stream's order. */
    OK(cclAllReduce(NULL, NULL, 0, TYPE, cclSum, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    leave(&k);
}

/* The special streams are the context's: by processes, which have one each. */
static void special(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    for (uintptr_t stream = 0; stream < 3; stream++) {
        stage(&k, "special");
        to_all(&k, 100, (CUstream)stream);
        in_parts(&k, 100, (CUstream)stream);
        messages(&k, (CUstream)stream);
    }
    leave(&k);
}

/* Makes all ranks, which have these devices, in one thread. */
static void by_devices(cclUniqueId unused, int ranks, int me) {
    enum { COUNT = 1000 };
    static const int DEVICES[RANKS] = {1, 0, 1};
    cclComm_t comms[RANKS] = {NULL}, copy;
    int32_t host[COUNT], *data[RANKS];
    CUstream streams[RANKS];
    CUcontext context;
    int device;
    (void)unused, (void)ranks, (void)me;
    REFUSED(cclInvalidArgument, "no CUDA device 2 for rank 1", cclCommInitAll(comms, RANKS, (int[RANKS]){1, 2, 0}));
    REFUSED(cclInvalidArgument, "no CUDA device -1 for rank 0", cclCommInitAll(comms, RANKS, (int[RANKS]){-1, 2, 0}));
    CHECK(comms[0] == NULL && comms[RANKS - 1] == NULL);
    OK(cclCommInitAll(comms, RANKS, DEVICES));
    CU(cuCtxGetCurrent(&context));
    CHECK(context == NULL);
    for (int r = 0; r < RANKS; r++) {
        CU(cuDevicePrimaryCtxRetain(&context, DEVICES[r]));
        CU(cuCtxPushCurrent_v2(context));
        CU(cuStreamCreate(&streams[r], 1));
        for (size_t i = 0; i < COUNT; i++) {
            host[i] = of(r, i);
        }
        data[r] = copy_of(host, COUNT);
        CU(cuCtxPopCurrent_v2(&context));
        OK(cclCommCuDevice(comms[r], &device));
        CHECK(device == DEVICES[r]);
    }
    OK(cclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(cclAllReduce(data[r], data[r], COUNT, TYPE, cclSum, comms[r], streams[r]));
    }
    OK(cclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        CU(cuDevicePrimaryCtxRetain(&context, DEVICES[r]));
        CU(cuCtxPushCurrent_v2(context));
        CU(cuStreamSynchronize(streams[r]));
        CU(cuMemcpyDtoH_v2(host, (CUdeviceptr)data[r], sizeof host));
        CU(cuCtxPopCurrent_v2(&context));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(host[i] == sum(RANKS, i));
        }
    }
    /* What is made of one has its device, whichever is the thread's. */
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxPushCurrent_v2(context));
    OK(cclCommInitAll(&copy, 1, NULL));
    OK(cclCommCuDevice(copy, &device));
    CHECK(device == 0);
    OK(cclCommDestroy(copy));
    OK(cclCommInitAll(&copy, 1, &DEVICES[0]));
    cclConfig_t config = CCL_CONFIG_INITIALIZER, *configs[] = {NULL, &config};
    for (int i = 0; i < 2; i++) {
        cclComm_t made;
        OK(cclCommDup(copy, &made, configs[i]));
        OK(cclCommCuDevice(made, &device));
        CHECK(device == 1);
        OK(cclCommDestroy(made));
    }
    OK(cclCommDestroy(copy));
    CU(cuCtxPopCurrent_v2(&context));
    for (int r = 0; r < RANKS; r++) {
        OK(cclCommDestroy(comms[r]));
    }
}

static cclUniqueId id, other;

static void types_of_rank(cclUniqueId id, int ranks, int me) { types(id, other, ranks, me); }

static void *thread(void *rank) {
    work(id, RANKS, (int)(intptr_t)rank);
    return NULL;
}

/* With an argument ranks are threads only. */
int main(int words, char **all) {
    (void)all;
    direct = is_direct();
    OK(cclGetUniqueId(&other));
    if (words == 1 && direct && run_ranks(RANKS, types_of_rank) > 0) {
        return 1;
    }
    if (words == 1 && run_ranks(1, by_devices) > 0) {
        return 1;
    }
    if (words == 1 && run_ranks(RANKS, work) + run_ranks(RANKS, special) > 0) {
        return 1;
    }
    pthread_t threads[RANKS];
    has_threads = 1;
    for (; on_one_device < 2; on_one_device++) {
        OK(cclGetUniqueId(&id));
        for (intptr_t rank = 0; rank < RANKS; rank++) {
            CHECK(pthread_create(&threads[rank], NULL, thread, (void *)rank) == 0);
        }
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK(pthread_join(threads[rank], NULL) == 0);
        }
        free_released();
    }
    return 0;
}
