/* What is wrong with device memory and its streams is told, and ranks that die or a driver that fails hold nobody up. */
#include "device.h"

static const cclDataType_t TYPE = cclInt32;
static int direct;
/* Which of its cases `unmade` is to try. */
static int turn;

static int state(cclComm_t comm) {
    cclResult_t state;
    OK(cclCommGetAsyncError(comm, &state));
    return state;
}

/* The same, which may come a little after the stream has gone on. */
static void comes_to(int wanted, cclComm_t comm) {
    for (int waited = 0; state(comm) == cclSuccess && waited < 60000; waited++) {
        usleep(1000);
    }
    EXPECT(wanted, state(comm));
}

/* The driver refuses before anything has begun. */
static void driver_fails(const Rank *k, int32_t *device) {
    fakeFail("cuMemcpyDtoHAsync_v2", CUDA_ERROR_OUT_OF_MEMORY);
    REFUSED(cclUnhandledCudaError, "CUDA_ERROR_OUT_OF_MEMORY",
            cclAllReduce(device, device, 10, TYPE, cclSum, k->comm, k->stream));
    fakeFail("cuMemHostRegister_v2", CUDA_ERROR_OUT_OF_MEMORY);
    int32_t *large = buffer(100000);
    REFUSED(cclUnhandledCudaError, "cuMemHostRegister",
            cclAllReduce(large, large, 100000, TYPE, cclSum, k->comm, k->stream));
    fakeFail("cuMemcpyDtoHAsync_v2", 803);
    REFUSED(cclUnhandledCudaError, "unknown error", cclAllReduce(device, device, 10, TYPE, cclSum, k->comm, k->stream));
    fakeFail("", 0);
}

/* Each is an error that leaves the communicator as good as before. */
static void refused(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    int32_t host[10] = {0}, *device = filled(me, 10), *gone = filled(me, 10);
    CUcontext other_context;
    CUstream other;
    CU(cuDevicePrimaryCtxRetain(&other_context, (me + 1) % 2));
    CU(cuCtxPushCurrent_v2(other_context));
    CU(cuStreamCreate(&other, 1));
    int32_t *far = buffer(10);
    CU(cuCtxPopCurrent_v2(&other_context));
    cclStream_t ours;
    OK(cclStreamCreate(&ours));

    REFUSED(cclInvalidArgument, "host memory", cclAllReduce(host, host, 10, TYPE, cclSum, k.comm, k.stream));
    REFUSED(cclInvalidArgument, "CUDA stream", cclAllReduce(device, device, 10, TYPE, cclSum, k.comm, ours));
    REFUSED(cclInvalidArgument, "one kind", cclAllReduce(device, host, 10, TYPE, cclSum, k.comm, k.stream));
    REFUSED(cclInvalidArgument, "one kind", cclAllReduce(host, device, 10, TYPE, cclSum, k.comm, NULL));
    REFUSED(cclInvalidArgument, "one device", cclAllReduce(device, far, 10, TYPE, cclSum, k.comm, k.stream));
    REFUSED(cclInvalidArgument, "of the same", cclAllReduce(device, device, 10, TYPE, cclSum, k.comm, other));
    REFUSED(cclInvalidArgument, "ends after", cclAllReduce(device, device, 11, TYPE, cclSum, k.comm, k.stream));
    REFUSED(cclInvalidArgument, "overlap", cclAllReduce(device, device + 1, 9, TYPE, cclSum, k.comm, k.stream));
    OK(cclStreamDestroy(ours));
    REFUSED(cclInvalidArgument, "destroyed", cclAllReduce(device, device, 10, TYPE, cclSum, k.comm, ours));

    /* Freed memory, known from an earlier call. */
    OK(cclAllReduce(gone, gone, 10, TYPE, cclMax, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    release(gone);
    REFUSED(cclInvalidArgument, "freed", cclAllReduce(gone, gone, 10, TYPE, cclSum, k.comm, k.stream));
    REFUSED(cclInvalidArgument, "freed", cclAllReduce(gone, gone, 10, TYPE, cclSum, k.comm, NULL));

    /* What cannot be captured. */
    CUgraph graph;
    CU(cuStreamBeginCapture_v2(k.stream, 0));
    REFUSED(cclInvalidUsage, "captured", cclBarrier(k.comm, k.stream));
    REFUSED(cclInvalidUsage, "captured", cclSend(device, 10, TYPE, 1 - me, k.comm, k.stream));
    if (!direct) {
        REFUSED(cclInvalidUsage, "captured", cclAllReduce(device, device, 10, TYPE, cclSum, k.comm, k.stream));
    }
    CU(cuStreamEndCapture(k.stream, &graph));
    CU(cuGraphDestroy(graph));

    if (!direct) {
        driver_fails(&k, device);
    }

    EXPECT(cclSuccess, state(k.comm));
    OK(cclAllReduce(device, device, 10, TYPE, cclSum, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    for (size_t i = 0; i < 10; i++) {
        CHECK(get(device, i) == sum(ranks, i));
    }
    /* Nothing is put into the stream by which it would wait. */
    OK(cclCommFinalize(k.comm));
    REFUSED(cclInvalidUsage, "finalized", cclAllReduce(device, device, 10, TYPE, cclSum, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    leave(&k);
}

/* A call that may come before or after a failure is known: its stream goes on in both cases. */
#define BEGUN(failure, call)                                                                                           \
    do {                                                                                                               \
        cclResult_t begun_ = (call);                                                                                   \
        if (begun_ != cclSuccess) {                                                                                    \
            EXPECT(failure, begun_);                                                                                   \
        }                                                                                                              \
    } while (0)

/* A rank that may fail as soon as it likes: all others have been made, too. */
static Rank join_all(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    BEGUN(cclRemoteError, cclBarrier(k.comm, NULL));
    return k;
}

/* A call of which nothing comes, because of another rank: its stream goes on, and the communicator tells. */
static void reduces_in_vain(const Rank *k, int32_t *data) {
    BEGUN(cclRemoteError, cclAllReduce(data, data, 1000, TYPE, cclSum, k->comm, k->stream));
    CU(cuStreamSynchronize(k->stream));
    EXPECT(cclRemoteError, state(k->comm));
}

/* The last rank is killed: the streams of the others go on, and the communicator tells. */
static void killed(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    if (me == ranks - 1) {
        usleep(100000);
        kill(getpid(), SIGKILL);
    }
    reduces_in_vain(&k, data);
    EXPECT(cclRemoteError, cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    leave(&k);
}

/* The same some time before the others call: no call of theirs begins any more. */
static void killed_long_ago(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    if (me == ranks - 1) {
        kill(getpid(), SIGKILL);
    }
    usleep(500000);
    reduces_in_vain(&k, data);
    CHECK(strstr(cclGetLastError(k.comm), "rank 2 was lost") != NULL);
    leave(&k);
}

/* Rank 0 aborts while the others' streams wait. */
static void aborted(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    if (me == 0) {
        usleep(100000);
        OK(cclCommAbort(k.comm));
        return;
    }
    reduces_in_vain(&k, data);
    leave(&k);
}

/* Nobody comes: the deadline releases the stream. */
static void late(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    OK(cclCommSetTimeout(k.comm, 300));
    if (me == 0) {
        BEGUN(cclTimeout, cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
        CU(cuStreamSynchronize(k.stream));
        EXPECT(cclTimeout, state(k.comm));
    } else {
        comes_to(cclTimeout, k.comm);
    }
    leave(&k);
}

/* The device of rank 0 breaks, with an operation in its stream that will never begin: the other rank hears of it. */
static void broken(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    if (me == 0) {
        gate(k.stream);
        OK(cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
        fakeBreak(CUDA_ERROR_ILLEGAL_ADDRESS);
        REFUSED(cclUnhandledCudaError, "CUDA_ERROR_ILLEGAL_ADDRESS",
                cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
        OK(cclCommAbort(k.comm));
        return;
    }
    reduces_in_vain(&k, data);
    leave(&k);
}

/* The same, and rank 0 leaves without a word: its leaving does not wait for the stream for ever. */
static void broken_and_left(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    if (me == 0) {
        gate(k.stream);
    }
    BEGUN(cclRemoteError, cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
    if (me == 0) {
        fakeBreak(CUDA_ERROR_ILLEGAL_ADDRESS);
        OK(cclCommDestroy(k.comm));
        return;
    }
    CU(cuStreamSynchronize(k.stream));
    EXPECT(cclRemoteError, state(k.comm));
    leave(&k);
}

static void *breaks(void *unused) {
    usleep(100000);
    fakeBreak(CUDA_ERROR_ILLEGAL_ADDRESS);
    return unused;
}

/* And if the device breaks only when rank 0 is about to leave. */
static void broken_while_leaving(cclUniqueId id, int ranks, int me) {
    Rank k = join_all(id, ranks, me);
    int32_t *data = filled(me, 1000);
    pthread_t later;
    if (me == 0) {
        gate(k.stream);
    }
    BEGUN(cclRemoteError, cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
    if (me == 0) {
        CHECK(pthread_create(&later, NULL, breaks, NULL) == 0);
        OK(cclCommDestroy(k.comm));
        CHECK(pthread_join(later, NULL) == 0);
        return;
    }
    CU(cuStreamSynchronize(k.stream));
    EXPECT(cclRemoteError, state(k.comm));
    leave(&k);
}

static Rank gated;
static int32_t *gate_of_gated;

static void *opens(void *unused) {
    usleep(100000);
    CU(cuCtxPushCurrent_v2(gated.context));
    set(gate_of_gated, 0, 1);
    CU(cuCtxPopCurrent_v2(&gated.context));
    return unused;
}

/* A stream is destroyed before it has come to a call: it is nobody's then, and leaving waits for the call all the same. */
static void destroyed(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    int32_t *data = filled(me, 1000);
    pthread_t later;
    CUevent end;
    CU(cuEventCreate(&end, 2));
    gated = k, gate_of_gated = gate(k.stream);
    OK(cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream));
    CU(cuEventRecord(end, k.stream));
    CU(cuStreamDestroy_v2(k.stream));
    CHECK(pthread_create(&later, NULL, opens, NULL) == 0);
    OK(cclCommDestroy(k.comm));
    CHECK(pthread_join(later, NULL) == 0);
    for (int waited = 0; cuEventQuery(end) == CUDA_ERROR_NOT_READY && waited < 60000; waited++) {
        usleep(1000);
    }
    CHECK(cuEventQuery(end) == CUDA_SUCCESS && get(data, 999) == sum(ranks, 999));
}

/* Much pinned memory is idle when a call needs other: that is given back once the program may be made to wait, and not in the call, for the
   driver waits then for all streams of the context, of which one is held up by the program itself. */
static void small_after_large(cclUniqueId id, int ranks, int me) {
    enum { LARGE = 68 << 20, KEPT = 256 << 20 };
    Rank k = join(id, ranks, me);
    CUstream other;
    CU(cuStreamCreate(&other, 1));
    int32_t *data = buffer(LARGE), *before = gate(other);
    size_t pinned[2];
    for (int turn = 0; turn < 2; turn++) {
        /* None of the two goes by windows. */
        OK(cclAllGatherV(data, LARGE, data, &(size_t){LARGE}, &(size_t){0}, TYPE, k.comm, k.stream));
        CU(cuStreamSynchronize(k.stream));
        OK(cclBarrier(k.comm, k.stream));
        CU(cuStreamSynchronize(k.stream));
        pinned[turn] = fakeBytes(1);
    }
    CHECK(pinned[0] > KEPT && pinned[1] == pinned[0]);
    set(before, 0, 1);
    CU(cuStreamSynchronize(other));
    CU(cuStreamDestroy_v2(other));
    leave(&k);
    CHECK(fakeBytes(1) <= KEPT + (1 << 20));
}

/* Ranks whose calls differ are told so, and their streams go on. */
static void different(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    int32_t *data = filled(me, 1000);
    BEGUN(cclInvalidUsage, cclAllReduce(data, data, me == 0 ? 1000 : 999, TYPE, cclSum, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    comes_to(cclInvalidUsage, k.comm);
    CHECK(cclAllReduce(data, data, 1000, TYPE, cclSum, k.comm, k.stream) != cclSuccess);
    const char *why = cclGetLastError(k.comm);
    CHECK(strstr(why, "allreduce(1000 x int32") != NULL && strstr(why, "allreduce(999 x int32") != NULL);
    leave(&k);
}

/* With windows a communicator has one device, which its ranks' memory is on. */
static void elsewhere(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    CUcontext other;
    CUstream stream;
    CU(cuDevicePrimaryCtxRetain(&other, (me + 1) % 2));
    CU(cuCtxPushCurrent_v2(other));
    CU(cuStreamCreate(&stream, 1));
    int32_t *data = filled(me, 10);
    REFUSED(cclInvalidUsage, "one device", cclAllReduce(data, data, 10, TYPE, cclSum, k.comm, stream));
    EXPECT(cclSuccess, state(k.comm));
    CU(cuStreamDestroy_v2(stream));
    CU(cuCtxPopCurrent_v2(&other));
    leave(&k);
}

/* An operation gives what it should. */
static void reduces(const Rank *k) {
    int32_t *data = filled(k->me, 10);
    OK(cclAllReduce(data, data, 10, TYPE, cclSum, k->comm, k->stream));
    CU(cuStreamSynchronize(k->stream));
    CHECK(get(data, 9) == sum(k->ranks, 9));
}

/* Where windows, or flags, cannot be opened on one rank, all go through host memory, and a later communicator has the same windows. */
static void unopened(cclUniqueId id, int ranks, int me) {
    const char *functions[] = {"cuIpcOpenMemHandle_v2", "cuMemHostRegister_v2", "cuIpcGetMemHandle"};
    cclComm_t later;
    CU(cuInit(0));
    fakeFail(me == turn % 2 ? functions[turn] : "", 801);
    Rank k = join(id, ranks, me);
    size_t before = fakeBytes(2);
    OK(cclCommDup(k.comm, &later, NULL));
    CHECK(fakeBytes(2) == before);
    OK(cclCommDestroy(later));
    fakeFail("", 0);
    fakeFail("cuLaunchKernel", 1);
    reduces(&k);
    leave(&k);
}

/* What was made of a window that cannot be finished is given back, but for the kernels, and all go through host memory. */
static void unmade(cclUniqueId id, int ranks, int me) {
    CU(cuInit(0));
    int before = fakeHeld();
    const char *functions[] = {"cuModuleGetFunction", "cuMemAlloc_v2", "cuEventCreate"};
    fakeFail(me == 0 ? functions[turn] : "", 2);
    Rank k = join(id, ranks, me);
    fakeFail("", 0);
    CHECK(me != 0 || fakeHeld() == before + (turn > 0));
    reduces(&k);
    leave(&k);
}

/* Bytes of pinned memory that some short calls have at most: each has a block of 64 KiB and a page, and one that has just ended may still
   have its. */
static const size_t FEW = 5 << 16;

/* What calls were to go through of which a copy is refused is used again. */
static void refused_copies(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    int32_t *data = filled(me, 10);
    reduces(&k);
    size_t before = fakeBytes(1);
    fakeFail("cuMemcpyDtoHAsync_v2", CUDA_ERROR_OUT_OF_MEMORY);
    for (int again = 0; again < 20; again++) {
        REFUSED(cclUnhandledCudaError, "CUDA_ERROR_OUT_OF_MEMORY",
                cclAllReduce(data, data, 10, TYPE, cclSum, k.comm, k.stream));
        CU(cuStreamSynchronize(k.stream));
    }
    fakeFail("", 0);
    CHECK(fakeBytes(1) < before + FEW);
    reduces(&k);
    leave(&k);
}

/* The driver refuses what comes last of a call: the other rank is told what it said, and what the call went through is used again. */
static void refused_at_last(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    int32_t *data = filled(me, 1000);
    reduces(&k);
    size_t before = fakeBytes(1);
    for (int again = 0; again < 10; again++) {
        cclComm_t other;
        OK(cclCommDup(k.comm, &other, NULL));
        OK(cclBarrier(k.comm, NULL));
        if (me == 0) {
            fakeFail(direct ? "cuLaunchKernel" : "cuMemcpyHtoDAsync_v2", CUDA_ERROR_OUT_OF_MEMORY);
            REFUSED(cclUnhandledCudaError, "CUDA_ERROR_OUT_OF_MEMORY",
                    cclAllReduce(data, data, 1000, TYPE, cclSum, other, k.stream));
            fakeFail("", 0);
        } else {
            BEGUN(cclRemoteError, cclAllReduce(data, data, 1000, TYPE, cclSum, other, k.stream));
        }
        CU(cuStreamSynchronize(k.stream));
        comes_to(cclRemoteError, other);
        const char *why = cclGetLastError(other);
        CHECK(me == 0 || (strstr(why, "rank 0 failed: cu") != NULL && strstr(why, "CUDA_ERROR_OUT_OF_MEMORY") != NULL));
        OK(cclCommDestroy(other));
    }
    CHECK(direct || fakeBytes(1) < before + FEW);
    reduces(&k);
    leave(&k);
}

/* What lies between the blocks of a V form is not pinned, and stays as it is. */
static void far_apart(cclUniqueId id, int ranks, int me) {
    const size_t FAR = 1 << 26, counts[] = {10, 10}, displs[] = {FAR, 0};
    Rank k = join(id, ranks, me);
    CUdeviceptr at[2];
    CU(cuMemAlloc_v2(&at[0], (FAR + 10) * sizeof(int32_t)));
    CU(cuMemAlloc_v2(&at[1], (FAR + 10) * sizeof(int32_t)));
    int32_t *send = (int32_t *)at[0], *recv = (int32_t *)at[1];
    for (int to = 0; to < ranks; to++) {
        for (size_t i = 0; i < 10; i++) {
            set(send, displs[to] + i, of(2 * me + to, i));
        }
    }
    set(recv, 10, POISON), set(recv, FAR - 1, POISON);
    OK(cclAlltoAllV(send, counts, displs, recv, counts, displs, TYPE, k.comm, k.stream));
    CU(cuStreamSynchronize(k.stream));
    for (int from = 0; from < ranks; from++) {
        for (size_t i = 0; i < 10; i++) {
            CHECK(get(recv, displs[from] + i) == of(2 * from + me, i));
        }
    }
    CHECK(get(recv, 10) == POISON && get(recv, FAR - 1) == POISON);
    CHECK(fakeBytes(1) < 1 << 20);
    release(send), release(recv);
    leave(&k);
}

/* A window is a later communicator's only when all ranks have left the one before: who is still there may call once more. */
static void overstayed(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    cclComm_t before, after, last;
    OK(cclCommDup(k.comm, &before, NULL));
    if (me == 0) {
        OK(cclCommDestroy(before));
    }
    size_t held = fakeBytes(2);
    OK(cclCommDup(k.comm, &after, NULL));
    CHECK(fakeBytes(2) > held);
    if (me != 0) {
        OK(cclCommDestroy(before));
    }
    held = fakeBytes(2);
    OK(cclCommDup(k.comm, &last, NULL));
    CHECK(fakeBytes(2) == held);
    OK(cclCommDestroy(last));
    OK(cclCommDestroy(after));
    reduces(&k);
    leave(&k);
}

/* Also where a graph outlives its communicator: as soon as it goes, on all ranks. */
static void outlived(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me), other = k;
    int32_t *data = filled(me, 1000);
    CUgraph graph;
    size_t held = 0;
    for (int turn = 0; turn < 3; turn++) {
        OK(cclCommDup(k.comm, &other.comm, NULL));
        CHECK(turn == 0 || fakeBytes(2) == held);
        held = fakeBytes(2);
        CU(cuStreamBeginCapture_v2(k.stream, 0));
        OK(cclAllReduce(data, data, 1000, TYPE, cclSum, other.comm, k.stream));
        CU(cuStreamEndCapture(k.stream, &graph));
        OK(cclCommDestroy(other.comm));
        CU(cuGraphDestroy(graph));
        OK(cclBarrier(k.comm, NULL));
    }
    reduces(&k);
    leave(&k);
}

/* A communicator is made while a stream is captured for which the default one waits: the capture goes on. */
static void made_in_capture(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me), other = k;
    int32_t *data = filled(me, 1000), *copy = buffer(1000);
    CUstream blocking;
    CUgraph graphs[2];
    CUgraphExec graph;
    CU(cuStreamCreate(&blocking, 0));
    CU(cuStreamBeginCapture_v2(blocking, 2));
    OK(cclCommDup(k.comm, &other.comm, NULL));
    /* Only what goes by windows can be captured. */
    CU(cuStreamBeginCapture_v2(k.stream, 2));
    OK(cclAllReduce(data, data, 1000, TYPE, cclSum, other.comm, k.stream));
    CU(cuStreamEndCapture(k.stream, &graphs[0]));
    CU(cuMemcpyDtoDAsync_v2((CUdeviceptr)copy, (CUdeviceptr)data, 1000 * sizeof *data, blocking));
    CU(cuStreamEndCapture(blocking, &graphs[1]));
    CU(cuGraphInstantiateWithFlags(&graph, graphs[1], 0));
    CU(cuGraphLaunch(graph, blocking));
    CU(cuStreamSynchronize(blocking));
    CHECK(get(copy, 999) == of(me, 999));
    CU(cuGraphExecDestroy(graph));
    CU(cuGraphDestroy(graphs[0]));
    CU(cuGraphDestroy(graphs[1]));
    CU(cuStreamDestroy_v2(blocking));
    OK(cclCommDestroy(other.comm));
    leave(&k);
}

/* Also after a failure: as soon as the streams of all ranks have been let go, of which nobody is told. */
static void left_by_failure(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me), other = k;
    int32_t *data = filled(me, 1000), is_more = 1;
    for (int again = 0; is_more && again < 50; again++) {
        size_t before = fakeBytes(2);
        OK(cclCommDup(k.comm, &other.comm, NULL));
        is_more = fakeBytes(2) > before;
        OK(cclBarrier(k.comm, NULL));
        if (me == 0) {
            OK(cclCommAbort(other.comm));
        } else {
            reduces_in_vain(&other, data);
            OK(cclCommDestroy(other.comm));
        }
        usleep(10000);
        OK(cclAllReduce(&is_more, &is_more, 1, TYPE, cclMax, k.comm, NULL));
    }
    CHECK(!is_more);
    reduces(&k);
    leave(&k);
}

int main(void) {
    direct = is_direct();
    int failed = run_ranks(2, refused) + run_ranks(2, aborted) + run_ranks(2, late) + run_ranks(2, broken) +
                 run_ranks(2, broken_and_left) + run_ranks(2, broken_while_leaving) + run_ranks(2, different) +
                 run_ranks(2, destroyed) + run_ranks(1, small_after_large) + run_ranks(2, refused_at_last) + run_ranks(2, far_apart);
    if (!direct) {
        failed += run_ranks(2, refused_copies);
    } else {
        failed += run_ranks(2, elsewhere) + run_ranks(2, overstayed) + run_ranks(2, outlived) +
                  run_ranks(2, made_in_capture) + run_ranks(2, left_by_failure);
        for (turn = 0; turn < 3; turn++) {
            failed += run_ranks(2, unopened);
        }
        for (turn = 0; turn < 3; turn++) {
            failed += run_ranks(2, unmade);
        }
    }
    return failed + (run_ranks(3, killed) != 1) + (run_ranks(3, killed_long_ago) != 1);
}
