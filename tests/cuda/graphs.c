/* Collectives whose data stay on the devices: by 2 to 8 ranks that are processes or threads, called and captured into graphs that are
   launched again and again, on one stream and on two; and what becomes of streams that wait for ranks that never come. */
#include "device.h"

enum { MOST = 8, REPLAYS = 100 };
static const cclDataType_t TYPE = cclInt32;

enum Op { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, GATHER, SCATTER, ALL_TO_ALL, OPS };

/* 0: of all threads, 1: of this one. */
static int capture_mode;

/* An operation on buffers of a rank. */
typedef struct {
    const Rank *rank;
    enum Op op;
    size_t n;
    int root;
    int32_t *send, *recv;
} Task;

static int has_blocks_in(enum Op op) { return op == REDUCE_SCATTER || op == SCATTER || op == ALL_TO_ALL; }
static int has_blocks_out(enum Op op) { return op == ALL_GATHER || op == GATHER || op == ALL_TO_ALL; }
static size_t sent(const Task *t) { return has_blocks_in(t->op) ? t->n * (size_t)t->rank->ranks : t->n; }
static size_t received(const Task *t) { return has_blocks_out(t->op) ? t->n * (size_t)t->rank->ranks : t->n; }

/* Element i of what rank r sends in some turn. */
static int32_t value(int r, size_t i, int turn) { return (r + 1) * 100000 + (int32_t)(i % 977) + turn * 1000; }

static void fill(const Task *t, int turn) {
    size_t count = sent(t), bytes = count * sizeof(int32_t);
    int32_t *host = malloc(bytes);
    for (size_t i = 0; i < count; i++) {
        host[i] = value(t->rank->me, i, turn);
    }
    put(t->send, host, bytes);
    free(host);
}

static void poison(const Task *t) {
    size_t bytes = received(t) * sizeof(int32_t);
    int32_t *host = malloc(bytes);
    memset(host, 0x5a, bytes);
    put(t->recv, host, bytes);
    free(host);
}

static int32_t wanted(const Task *t, size_t i, int turn) {
    int me = t->rank->me, is_root = me == t->root, from = (int)(i / t->n);
    size_t mine = t->n * (size_t)me;
    int32_t sums[2] = {0, 0};
    for (int r = 0; r < t->rank->ranks; r++) {
        sums[0] += value(r, i, turn), sums[1] += value(r, mine + i, turn);
    }
    switch (t->op) {
    case ALL_REDUCE: return sums[0];
    case REDUCE_SCATTER: return sums[1];
    case ALL_GATHER: return value(from, i % t->n, turn);
    case BROADCAST: return value(t->root, i, turn);
    case REDUCE: return is_root ? sums[0] : POISON;
    case GATHER: return is_root ? value(from, i % t->n, turn) : POISON;
    case SCATTER: return value(t->root, mine + i, turn);
    default: return value(from, mine + i % t->n, turn);
    }
}

static void check(const Task *t, int turn) {
    size_t count = received(t), bytes = count * sizeof(int32_t);
    int32_t *host = malloc(bytes);
    CU(cuMemcpyDtoH_v2(host, (CUdeviceptr)t->recv, bytes));
    for (size_t i = 0; i < count; i++) {
        if (host[i] != wanted(t, i, turn)) {
            fprintf(stderr, "rank %d of %d, operation %d, turn %d, element %zu of %zu: %d, not %d\n", t->rank->me, t->rank->ranks,
                    t->op, turn, i, count, host[i], wanted(t, i, turn));
            exit(1);
        }
    }
    free(host);
}

static Task task(const Rank *rank, enum Op op, size_t n, int root) {
    Task t = {.rank = rank, .op = op, .n = n, .root = root};
    CUdeviceptr send, recv;
    CU(cuMemAlloc_v2(&send, sent(&t) * sizeof(int32_t)));
    CU(cuMemAlloc_v2(&recv, received(&t) * sizeof(int32_t)));
    t.send = (int32_t *)send, t.recv = (int32_t *)recv;
    fill(&t, 0);
    poison(&t);
    return t;
}

static void end(Task *t) { release(t->send), release(t->recv); }

static void call(const Task *t, CUstream s) {
    int is_root = t->rank->me == t->root;
    cclComm_t comm = t->rank->comm;
    int32_t *for_root = is_root ? t->recv : NULL, *of_root = is_root ? t->send : NULL;
    switch (t->op) {
    case ALL_REDUCE: OK(cclAllReduce(t->send, t->recv, t->n, TYPE, cclSum, comm, s)); break;
    case REDUCE_SCATTER: OK(cclReduceScatter(t->send, t->recv, t->n, TYPE, cclSum, comm, s)); break;
    case ALL_GATHER: OK(cclAllGather(t->send, t->recv, t->n, TYPE, comm, s)); break;
    case BROADCAST: OK(cclBroadcast(of_root, t->recv, t->n, TYPE, t->root, comm, s)); break;
    case REDUCE: OK(cclReduce(t->send, for_root, t->n, TYPE, cclSum, t->root, comm, s)); break;
    case GATHER: OK(cclGather(t->send, for_root, t->n, TYPE, t->root, comm, s)); break;
    case SCATTER: OK(cclScatter(of_root, t->recv, t->n, TYPE, t->root, comm, s)); break;
    default: OK(cclAlltoAll(t->send, t->recv, t->n, TYPE, comm, s)); break;
    }
}

static void begin(CUstream s) { CU(cuStreamBeginCapture_v2(s, capture_mode)); }

static CUgraphExec captured(CUstream s) {
    CUgraph graph;
    CUgraphExec launched;
    CU(cuStreamEndCapture(s, &graph));
    CU(cuGraphInstantiateWithFlags(&launched, graph, 0));
    CU(cuGraphDestroy(graph));
    return launched;
}

static CUgraphExec capture(const Task *t, CUstream s) {
    begin(s);
    call(t, s);
    return captured(s);
}

static void matrix(const Rank *k) {
    static const size_t COUNTS[] = {1, 7, 1000, 20011};
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
        for (int op = 0; op < OPS; op++) {
            Task t = task(k, op, COUNTS[c], (op + (int)c) % k->ranks);
            call(&t, k->stream);
            CU(cuStreamSynchronize(k->stream));
            check(&t, 0);
            end(&t);
        }
    }
}

/* Waits for all ranks that are threads: graphs and memory are made and given back while no stream waits for another rank's. */
static void settle(const Rank *k) {
    CU(cuStreamSynchronize(k->stream));
    if (has_threads) {
        OK(cclBarrier(k->comm, NULL));
    }
}

/* A graph of each operation, between which others are called. */
static void replays(const Rank *k) {
    for (int op = 0; op < OPS; op++) {
        Task t = task(k, op, 1003, op % k->ranks), other = task(k, (op + 3) % OPS, 11, 0);
        CUgraphExec graph = capture(&t, k->stream);
        settle(k);
        for (int turn = 1; turn <= REPLAYS; turn++) {
            fill(&t, turn);
            /* Without a pause between them. */
            for (int times = turn % 10 == 0 ? 4 : 1; times > 0; times--) {
                CU(cuGraphLaunch(graph, k->stream));
            }
            if (turn % 3 == 0) {
                call(&other, k->stream);
            }
            CU(cuStreamSynchronize(k->stream));
            check(&t, turn);
        }
        check(&other, 0);
        settle(k);
        CU(cuGraphExecDestroy(graph));
        end(&t), end(&other);
    }
}

/* All operations in a graph, by two streams. */
static void together(const Rank *k) {
    Task tasks[OPS];
    CUstream other;
    CUevent fork, join;
    CU(cuStreamCreate(&other, 1));
    CU(cuEventCreate(&fork, 2));
    CU(cuEventCreate(&join, 2));
    for (int op = 0; op < OPS; op++) {
        tasks[op] = task(k, op, 501, (op + 1) % k->ranks);
    }
    begin(k->stream);
    CU(cuEventRecord(fork, k->stream));
    CU(cuStreamWaitEvent(other, fork, 0));
    for (int op = 0; op < OPS; op++) {
        call(&tasks[op], op % 2 == 0 ? k->stream : other);
    }
    CU(cuEventRecord(join, other));
    CU(cuStreamWaitEvent(k->stream, join, 0));
    CUgraphExec graph = captured(k->stream);
    settle(k);
    for (int turn = 1; turn <= 20; turn++) {
        for (int op = 0; op < OPS; op++) {
            fill(&tasks[op], turn);
        }
        CU(cuGraphLaunch(graph, turn % 2 == 0 ? k->stream : other));
        CU(cuStreamSynchronize(turn % 2 == 0 ? k->stream : other));
        for (int op = 0; op < OPS; op++) {
            check(&tasks[op], turn);
        }
    }
    settle(k);
    CU(cuGraphExecDestroy(graph));
    for (int op = 0; op < OPS; op++) {
        end(&tasks[op]);
    }
    CU(cuEventDestroy_v2(fork));
    CU(cuEventDestroy_v2(join));
    CU(cuStreamDestroy_v2(other));
}

/* Two graphs, captured by turns: in each a call waits for the one before it, which is in another stream. */
static void by_turns(const Rank *k) {
    CUstream second, apart;
    CUevent fork, join;
    CU(cuStreamCreate(&second, 1));
    CU(cuStreamCreate(&apart, 1));
    CU(cuEventCreate(&fork, 2));
    CU(cuEventCreate(&join, 2));
    Task tasks[3];
    for (int i = 0; i < 3; i++) {
        tasks[i] = task(k, ALL_REDUCE, 301, 0);
    }
    begin(k->stream);
    CU(cuEventRecord(fork, k->stream));
    CU(cuStreamWaitEvent(second, fork, 0));
    begin(apart);
    call(&tasks[0], k->stream);
    call(&tasks[1], apart);
    unsigned before = fakeJoins == NULL ? 0 : fakeJoins();
    call(&tasks[2], second);
    CHECK(fakeJoins == NULL || fakeJoins() == before + 1);
    CU(cuEventRecord(join, second));
    CU(cuStreamWaitEvent(k->stream, join, 0));
    CUgraphExec graphs[2] = {captured(k->stream), captured(apart)};
    settle(k);
    for (int turn = 1; turn <= 10; turn++) {
        for (int i = 0; i < 3; i++) {
            fill(&tasks[i], turn);
        }
        CU(cuGraphLaunch(graphs[turn % 2], k->stream));
        CU(cuGraphLaunch(graphs[(turn + 1) % 2], k->stream));
        CU(cuStreamSynchronize(k->stream));
        for (int i = 0; i < 3; i++) {
            check(&tasks[i], turn);
        }
    }
    settle(k);
    for (int i = 0; i < 2; i++) {
        CU(cuGraphExecDestroy(graphs[i]));
    }
    for (int i = 0; i < 3; i++) {
        end(&tasks[i]);
    }
    CU(cuEventDestroy_v2(fork));
    CU(cuEventDestroy_v2(join));
    CU(cuStreamDestroy_v2(second));
    CU(cuStreamDestroy_v2(apart));
}

/* Calls on two streams, of which one waits for long: by windows they are carried out one after the other. */
static void two_streams(const Rank *k) {
    CUstream other;
    CU(cuStreamCreate(&other, 1));
    Task one = task(k, ALL_REDUCE, 3001, 0), two = task(k, ALL_TO_ALL, 1001, 0);
    for (int turn = 0; turn < 20; turn++) {
        fill(&one, turn), fill(&two, turn);
        int32_t *before = turn % 5 == 0 ? gate(k->stream) : NULL;
        call(&one, k->stream);
        call(&two, other);
        call(&one, k->stream);
        if (before != NULL) {
            CHECK(on_one_device || cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
            set(before, 0, 1);
        }
        CU(cuStreamSynchronize(k->stream));
        CU(cuStreamSynchronize(other));
        check(&one, turn), check(&two, turn);
        if (before != NULL) {
            release(before);
        }
    }
    end(&one), end(&two);
    CU(cuStreamDestroy_v2(other));
}

/* What cannot be captured is refused, and the capture goes on. */
static void uncaptured(const Rank *k) {
    size_t counts[MOST], displs[MOST];
    int32_t host[10] = {0};
    Task t = task(k, ALL_REDUCE, 100, 0), wide = task(k, ALL_TO_ALL, 10, 0);
    for (int r = 0; r < k->ranks; r++) {
        counts[r] = 10, displs[r] = 10 * (size_t)r;
    }
    begin(k->stream);
    call(&t, k->stream);
    REFUSED(cclInvalidUsage, "captured", cclBarrier(k->comm, k->stream));
    REFUSED(cclInvalidUsage, "captured", cclSend(t.send, 10, TYPE, (k->me + 1) % k->ranks, k->comm, k->stream));
    REFUSED(cclInvalidUsage, "captured", cclAllGatherV(t.send, 10, wide.recv, counts, displs, TYPE, k->comm, k->stream));
    REFUSED(cclInvalidArgument, "host memory", cclAllReduce(host, host, 10, TYPE, cclSum, k->comm, k->stream));
    REFUSED(cclInvalidArgument, "ends after", cclAllReduce(t.send, t.recv, 101, TYPE, cclSum, k->comm, k->stream));
    call(&wide, k->stream);
    /* No elements are no work. */
    OK(cclAllReduce(NULL, NULL, 0, TYPE, cclSum, k->comm, k->stream));
    CUgraphExec graph = captured(k->stream);
    settle(k);
    CU(cuGraphLaunch(graph, k->stream));
    CU(cuStreamSynchronize(k->stream));
    check(&t, 0), check(&wide, 0);
    settle(k);
    CU(cuGraphExecDestroy(graph));
    call(&t, k->stream);
    CU(cuStreamSynchronize(k->stream));
    check(&t, 0);
    end(&t), end(&wide);
}

/* A communicator after the other uses the same windows. */
static void work(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    stage(&k, "matrix");
    matrix(&k);
    stage(&k, "two_streams");
    two_streams(&k);
    leave(&k);
}

static void graphs(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    stage(&k, "replays");
    replays(&k);
    stage(&k, "together");
    together(&k);
    stage(&k, "by_turns");
    by_turns(&k);
    stage(&k, "uncaptured");
    uncaptured(&k);
    leave(&k);
}

/* What is wrong with ranks that do not come. */
enum Fault { KILLED, ABORTED, KILLED_IN_CALL, FAULTS };
static enum Fault fault;

/* The last rank ends while the streams of the others wait for it in a graph, or in a call that all have come to: they go on, and the
   graph never waits again. */
static void faulty(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    char who[32];
    stage(&k, "faulty");
    snprintf(who, sizeof who, "rank %d", ranks - 1);
    Task t = task(&k, ALL_REDUCE, 1000, 0);
    CUgraphExec graph = capture(&t, k.stream);
    for (int turn = 0; turn < 3; turn++) {
        CU(cuGraphLaunch(graph, k.stream));
    }
    CU(cuStreamSynchronize(k.stream));
    check(&t, 0);
    call(&t, k.stream);
    CU(cuStreamSynchronize(k.stream));
    if (me == ranks - 1) {
        if (fault == KILLED_IN_CALL) {
            /* It says that it has come, and does no more. */
            fakeStop(k.stream, 2);
            call(&t, k.stream);
        }
        usleep(300000);
        if (fault == ABORTED) {
            OK(cclCommAbort(k.comm));
            return;
        }
        kill(getpid(), SIGKILL);
    }
    if (fault == KILLED_IN_CALL) {
        call(&t, k.stream);
    } else {
        CU(cuGraphLaunch(graph, k.stream));
    }
    CU(cuStreamSynchronize(k.stream));
    cclResult_t state;
    OK(cclCommGetAsyncError(k.comm, &state));
    EXPECT(cclRemoteError, state);
    CHECK(strstr(cclGetLastError(k.comm), who) != NULL);
    for (int turn = 0; turn < 20; turn++) {
        CU(cuGraphLaunch(graph, k.stream));
    }
    CU(cuStreamSynchronize(k.stream));
    begin(k.stream);
    EXPECT(cclRemoteError, cclAllReduce(t.send, t.recv, 10, TYPE, cclSum, k.comm, k.stream));
    CU(cuGraphExecDestroy(captured(k.stream)));
    /* It may outlive the communicator. */
    OK(cclCommDestroy(k.comm));
    CU(cuGraphLaunch(graph, k.stream));
    CU(cuStreamSynchronize(k.stream));
    CU(cuGraphExecDestroy(graph));
}

/* Calls that differ end the communicator, and what is around the buffers stays as it is; where ranks share a device nothing is done. */
static void differ(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    Task t = task(&k, ALL_REDUCE, 1000, 0);
    stage(&k, "differ");
    call(&t, k.stream);
    CU(cuStreamSynchronize(k.stream));
    check(&t, 0);
    int32_t *data = buffer(1000);
    cclResult_t called = cclAllReduce(data, data, me == 0 ? 1000 : 10, TYPE, cclSum, k.comm, k.stream), state = called;
    EXPECT(on_one_device ? cclInvalidUsage : cclSuccess, called);
    CU(cuStreamSynchronize(k.stream));
    for (int look = 0; look < 5000 && state == cclSuccess; look++) {
        usleep(1000);
        OK(cclCommGetAsyncError(k.comm, &state));
    }
    EXPECT(cclInvalidUsage, state);
    CHECK(strstr(cclGetLastError(k.comm), "rank 0") != NULL);
    for (size_t i = on_one_device ? 0 : 10; (on_one_device || me != 0) && i < 1000; i++) {
        CHECK(get(data, i) == POISON);
    }
    release(data), end(&t);
    OK(cclCommDestroy(k.comm));
}

/* Where the threads that are ranks meet, whatever has become of the communicator. */
static pthread_barrier_t threads_meet;

/* Nobody compares what graphs call, but the kernels of ranks that find one another: no memory is spoiled, and the next call tells. */
static void graphs_differ(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    stage(&k, "graphs_differ");
    int32_t *data = buffer(1000);
    begin(k.stream);
    OK(cclAllReduce(data, data, me == 0 ? 1000 : 10, TYPE, cclSum, k.comm, k.stream));
    CUgraphExec graph = captured(k.stream);
    settle(&k);
    CU(cuGraphLaunch(graph, k.stream));
    CU(cuStreamSynchronize(k.stream));
    for (size_t i = 0; i < 1000; i++) {
        CHECK(get(data, i) == POISON);
    }
    EXPECT(cclRemoteError, cclAllReduce(data, data, 10, TYPE, cclSum, k.comm, k.stream));
    CHECK(strstr(cclGetLastError(k.comm), "graph launched another operation") != NULL);
    OK(cclCommDestroy(k.comm));
    pthread_barrier_wait(&threads_meet);
    CU(cuGraphExecDestroy(graph));
    release(data);
}

/* The last rank's stream has not come to a call, in a graph where ranks share a device, when rank 0 aborts, and does later: buffers of ranks
   that were let go are theirs again. */
static void kept(cclUniqueId id, int ranks, int me) {
    enum { MINE = 4242, LENGTH = 1000 };
    Rank k = join(id, ranks, me);
    Task t = task(&k, ALL_REDUCE, LENGTH, 0);
    stage(&k, "kept");
    call(&t, k.stream);
    CU(cuStreamSynchronize(k.stream));
    check(&t, 0);
    int is_late = me == ranks - 1;
    int32_t *data = filled(me, LENGTH);
    CUgraphExec graph = NULL;
    if (on_one_device) {
        begin(k.stream);
        OK(cclAllReduce(data, data, LENGTH, TYPE, cclSum, k.comm, k.stream));
        graph = captured(k.stream);
        settle(&k);
    }
    int32_t *closed = is_late ? gate(k.stream) : NULL;
    if (on_one_device) {
        CU(cuGraphLaunch(graph, k.stream));
    } else {
        OK(cclAllReduce(data, data, LENGTH, TYPE, cclSum, k.comm, k.stream));
    }
    pthread_barrier_wait(&threads_meet);
    if (me == 0) {
        usleep(50000);
        OK(cclCommAbort(k.comm));
    }
    if (!is_late) {
        CU(cuStreamSynchronize(k.stream));
        for (size_t i = 0; i < LENGTH; i++) {
            set(data, i, MINE);
        }
    }
    pthread_barrier_wait(&threads_meet);
    if (is_late) {
        set(closed, 0, 1);
        CU(cuStreamSynchronize(k.stream));
    }
    pthread_barrier_wait(&threads_meet);
    for (size_t i = 0; !is_late && i < LENGTH; i++) {
        CHECK(get(data, i) == MINE);
    }
    if (me != 0) {
        cclResult_t state;
        OK(cclCommGetAsyncError(k.comm, &state));
        EXPECT(cclRemoteError, state);
        OK(cclCommDestroy(k.comm));
    }
    if (graph != NULL) {
        CU(cuGraphExecDestroy(graph));
    }
    release(data), end(&t);
}

/* Of ranks that share a device: a call that all have made is done, whatever becomes of the communicator. */
static void met(cclUniqueId id, int ranks, int me) {
    enum { LENGTH = 1000 };
    Rank k = join(id, ranks, me);
    stage(&k, "met");
    int is_late = me == ranks - 1;
    int32_t *data = filled(me, LENGTH), *closed = is_late ? gate(k.stream) : NULL;
    OK(cclAllReduce(data, data, LENGTH, TYPE, cclSum, k.comm, k.stream));
    pthread_barrier_wait(&threads_meet);
    if (me == 0) {
        OK(cclCommAbort(k.comm));
    }
    pthread_barrier_wait(&threads_meet);
    if (is_late) {
        set(closed, 0, 1);
    }
    CU(cuStreamSynchronize(k.stream));
    for (size_t i = 0; i < LENGTH; i++) {
        CHECK(get(data, i) == sum(ranks, i));
    }
    pthread_barrier_wait(&threads_meet);
    if (me != 0) {
        OK(cclCommDestroy(k.comm));
    }
    release(data);
}

/* And of one that the last rank never makes nothing is done: the calls of the others end when it aborts. */
static void missed(cclUniqueId id, int ranks, int me) {
    enum { LENGTH = 1000 };
    Rank k = join(id, ranks, me);
    stage(&k, "missed");
    int32_t *data = filled(me, LENGTH);
    if (me == ranks - 1) {
        usleep(50000);
        OK(cclCommAbort(k.comm));
    } else {
        EXPECT(cclRemoteError, cclAllReduce(data, data, LENGTH, TYPE, cclSum, k.comm, k.stream));
        CU(cuStreamSynchronize(k.stream));
        OK(cclCommDestroy(k.comm));
    }
    for (size_t i = 0; i < LENGTH; i++) {
        CHECK(get(data, i) == of(me, i));
    }
    release(data);
}

static cclUniqueId other_id;

/* One rank makes its calls on two communicators in a group, and the other one by one, the other way round. */
static void crossed(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me), other = k;
    stage(&k, "crossed");
    OK(cclCommInitRank(&other.comm, ranks, other_id, me));
    Task one = task(&k, ALL_REDUCE, 100, 0), two = task(&other, ALL_GATHER, 100, 0);
    for (int turn = 1; turn < 20; turn++) {
        fill(&one, turn), fill(&two, turn);
        if (me == 0) {
            OK(cclGroupStart());
            call(&one, k.stream);
            call(&two, k.stream);
            OK(cclGroupEnd());
        } else {
            call(&two, k.stream);
            call(&one, k.stream);
        }
        CU(cuStreamSynchronize(k.stream));
        check(&one, turn), check(&two, turn);
    }
    end(&one), end(&two);
    OK(cclCommDestroy(other.comm));
    leave(&k);
}

/* All ranks on one thread, by groups, in streams of their own and in one that they share; at last the driver refuses. */
static void grouped(void) {
    enum { RANKS = 3, LENGTH = 777 };
    Rank k[RANKS];
    Task sums[RANKS], parts[RANKS];
    CUcontext context;
    cclUniqueId id;
    OK(cclGetUniqueId(&id));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxPushCurrent_v2(context));
    OK(cclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        k[r] = (Rank){.ranks = RANKS, .me = r, .context = context};
        CU(cuStreamCreate(&k[r].stream, 1));
        OK(cclCommInitRank(&k[r].comm, RANKS, id, r));
    }
    OK(cclGroupEnd());
    for (int shared = 0; shared < 2; shared++) {
        for (int r = 0; r < RANKS; r++) {
            sums[r] = task(&k[r], ALL_REDUCE, LENGTH, 0), parts[r] = task(&k[r], ALL_TO_ALL, LENGTH, 0);
        }
        for (int turn = 1; turn < 20; turn++) {
            for (int r = 0; r < RANKS; r++) {
                fill(&sums[r], turn), fill(&parts[r], turn);
            }
            OK(cclGroupStart());
            for (int i = 0; i < RANKS; i++) {
                int r = (i + turn) % RANKS;
                CUstream s = k[shared ? 0 : r].stream;
                call(&sums[r], s);
                call(&parts[r], s);
            }
            OK(cclGroupEnd());
            for (int r = 0; r < RANKS; r++) {
                CU(cuStreamSynchronize(k[r].stream));
                check(&sums[r], turn), check(&parts[r], turn);
            }
        }
        for (int r = 0; r < RANKS; r++) {
            end(&sums[r]), end(&parts[r]);
        }
    }
    if (fakeFail != NULL) {
        for (int r = 0; r < RANKS; r++) {
            sums[r] = task(&k[r], ALL_REDUCE, LENGTH, 0);
        }
        fakeFail("cuStreamWaitEvent", CUDA_ERROR_OUT_OF_MEMORY);
        OK(cclGroupStart());
        for (int i = 1; i <= RANKS; i++) {
            call(&sums[i % RANKS], k[i % RANKS].stream);
        }
        EXPECT(cclUnhandledCudaError, cclGroupEnd());
        fakeFail("cuStreamWaitEvent", 0);
        for (int r = 0; r < RANKS; r++) {
            CU(cuStreamSynchronize(k[r].stream));
            end(&sums[r]);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        CU(cuStreamDestroy_v2(k[r].stream));
        OK(cclCommAbort(k[r].comm));
    }
    CU(cuCtxPopCurrent_v2(&context));
    free_released();
}

static cclUniqueId id;
static int count;
static void (*body)(cclUniqueId id, int ranks, int me);

static void *thread(void *rank) {
    body(id, count, (int)(intptr_t)rank);
    return NULL;
}

static void run_threads(int ranks, void (*work)(cclUniqueId id, int ranks, int me)) {
    pthread_t threads[MOST];
    count = ranks, body = work;
    OK(cclGetUniqueId(&id));
    CHECK(pthread_barrier_init(&threads_meet, NULL, (unsigned)ranks) == 0);
    for (intptr_t rank = 0; rank < ranks; rank++) {
        CHECK(pthread_create(&threads[rank], NULL, thread, (void *)rank) == 0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(pthread_join(threads[rank], NULL) == 0);
    }
    CHECK(pthread_barrier_destroy(&threads_meet) == 0);
    free_released();
}

/* With an argument ranks are threads only. */
int main(int words, char **all) {
    static const int RANKS[] = {2, 3, 4, 8};
    (void)all;
    is_direct();
    int failed = 0;
    for (int i = 0; words == 1 && i < 4; i++) {
        failed += run_ranks(RANKS[i], work);
        failed += run_ranks(RANKS[i], graphs);
    }
    for (int which = 0; words == 1 && which < (fakeStop == NULL ? KILLED_IN_CALL : FAULTS); which++) {
        fault = (enum Fault)which;
        for (int ranks = 2; ranks < 4; ranks++) {
            failed += run_ranks(ranks, faulty) != (fault != ABORTED);
        }
    }
    CHECK(failed == 0);
    capture_mode = 1;
    has_threads = 1;
    for (; on_one_device < 2; on_one_device++) {
        for (int i = 0; i < 4; i++) {
            run_threads(RANKS[i], work);
            run_threads(RANKS[i], graphs);
        }
        run_threads(3, differ);
        if (on_one_device) {
            run_threads(3, graphs_differ);
            run_threads(3, met);
            run_threads(3, missed);
            OK(cclGetUniqueId(&other_id));
            run_threads(2, crossed);
            grouped();
        }
        run_threads(2, kept);
        run_threads(4, kept);
        fault = ABORTED;
        run_threads(3, faulty);
    }
    return 0;
}
