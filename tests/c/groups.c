/* Groups, messages between two ranks, and streams, between 4 forked processes and within one. */
#include "ranks.h"
#include <pthread.h>

enum { RANKS = 4, LONG = 50001, LONGER = 1 << 20 };

static cclComm_t comm;
static int ranks, me;

static int64_t value(int from, int to, size_t i) { return ((int64_t)from << 40) + ((int64_t)to << 32) + (int64_t)i; }

static int64_t *filled(int from, int to, size_t count) {
    int64_t *data = malloc((count + 1) * sizeof *data);
    CHECK(data != NULL);
    for (size_t i = 0; i < count; i++) {
        data[i] = value(from, to, i);
    }
    return data;
}

static void check(const int64_t *data, int from, int to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK(data[i] == value(from, to, i));
    }
}

/* Everybody to everybody, itself included, each rank in another order, with collectives between. */
static void exchange(size_t count, cclStream_t stream) {
    int64_t *sent[RANKS], *got[RANKS];
    int32_t sum = 1, token = me;
    OK(cclGroupStart());
    for (int k = 0; k < ranks; k++) {
        int peer = (me * 3 + k) % ranks;
        sent[peer] = filled(me, peer, count);
        got[peer] = calloc(count + 1, sizeof *got[peer]);
        OK(cclSend(count > 0 ? sent[peer] : NULL, count, cclInt64, peer, comm, stream));
        if (k == 1) {
            OK(cclAllReduce(&sum, &sum, 1, cclInt32, cclSum, comm, stream));
        }
    }
    OK(cclGroupStart());
    for (int peer = 0; peer < ranks; peer++) {
        OK(cclRecv(got[peer], count, cclInt64, peer, comm, NULL));
    }
    OK(cclGroupEnd());
    OK(cclBcast(&token, 1, cclInt32, ranks - 1, comm, NULL));
    OK(cclBarrier(comm, NULL));
    CHECK(sum == 1); /* nothing is carried out before the outermost end */
    OK(cclGroupEnd());
    OK(stream == NULL ? cclSuccess : cclStreamSynchronize(stream));
    CHECK(sum == ranks && token == ranks - 1);
    for (int peer = 0; peer < ranks; peer++) {
        check(got[peer], peer, me, count);
        free(sent[peer]);
        free(got[peer]);
    }
}

static void messages(void) {
    cclRecvInfo_t info;
    int64_t few[8];
    if (me > 0) {
        int64_t *data = filled(me, 0, LONG);
        OK(cclGroupStart());
        OK(cclSendTag(data, LONG, cclInt64, 0, 5, comm, NULL));
        OK(cclSendTag(data, (size_t)me, cclInt64, 0, 6, comm, NULL));
        OK(cclGroupEnd());
        free(data);
        return;
    }
    /* A long message that nobody takes yet holds up no other. */
    for (int k = 1; k < ranks; k++) {
        OK(cclRecvTag(few, 8, cclInt64, CCL_ANY_SOURCE, 6, &info, comm, NULL));
        CHECK(info.tag == 6 && info.source > 0 && info.count == (size_t)info.source);
        check(few, info.source, 0, info.count);
    }
    int64_t *data = calloc(LONG, sizeof *data);
    for (int from = ranks - 1; from > 0; from--) {
        OK(cclRecvTag(data, LONG, cclInt64, from, CCL_ANY_TAG, &info, comm, NULL));
        CHECK(info.tag == 5 && info.source == from && info.count == LONG);
        check(data, from, 0, LONG);
    }
    free(data);
}

static void refusals(void) {
    int32_t x = 0;
    cclStream_t stream;
    REFUSED(cclInvalidArgument, "peer is -1", cclSend(&x, 1, cclInt32, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "rank 4", cclRecv(&x, 1, cclInt32, ranks, comm, NULL));
    REFUSED(cclInvalidArgument, "tag -7", cclSendTag(&x, 1, cclInt32, 0, -7, comm, NULL));
    REFUSED(cclInvalidArgument, "sendbuff is NULL", cclSend(NULL, 1, cclInt32, 0, comm, NULL));
    REFUSED(cclInvalidUsage, "both sides of this send", cclSend(&x, 1, cclInt32, me, comm, NULL));
    REFUSED(cclInvalidUsage, "cclGroupStart", cclGroupEnd());
    REFUSED(cclInvalidArgument, "stream", cclBarrier(comm, &x));
    /* One call that is refused makes the group refuse all. */
    OK(cclGroupStart());
    OK(cclBarrier(comm, NULL));
    REFUSED(cclInvalidArgument, "root", cclBcast(&x, 1, cclInt32, 99, comm, NULL));
    REFUSED(cclInvalidArgument, "none was carried out", cclGroupEnd());
    /* Not one that is carried out at once. */
    int device;
    OK(cclGroupStart());
    REFUSED(cclInvalidUsage, "device", cclCommCuDevice(comm, &device));
    REFUSED(cclInvalidArgument, "NULL", cclCommCount(NULL, &device));
    REFUSED(cclInvalidArgument, "cclRedOpCreatePreMulSum", cclRedOpDestroy(cclSum, comm));
    REFUSED(cclInvalidArgument, "cclCommRegister", cclCommDeregister(comm, &x));
    OK(cclBarrier(comm, NULL));
    OK(cclGroupEnd());
    OK(cclStreamCreate(&stream));
    REFUSED(cclInvalidArgument, "root", cclBcast(&x, 1, cclInt32, 99, comm, stream));
    REFUSED(cclInvalidArgument, "callback", cclStreamAddCallback(stream, NULL, NULL));
    OK(cclStreamSynchronize(stream));
    OK(cclStreamDestroy(stream));
    REFUSED(cclInvalidArgument, "stream", cclStreamQuery(stream));
    REFUSED(cclInvalidArgument, "must be a live stream", cclStreamDestroy(NULL));
    REFUSED(cclInvalidArgument, "must be a live stream", cclStreamSynchronize(NULL));
    /* What makes a communicator is a call as others. */
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclComm_t made;
    config.timeout = -5;
    OK(cclGroupStart());
    OK(cclBarrier(comm, NULL));
    REFUSED(cclInvalidArgument, "timeout", cclCommInitEnv(&made, &config));
    REFUSED(cclInvalidArgument, "none was carried out", cclGroupEnd());
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.algorithm = "nonsense";
    OK(cclGroupStart());
    OK(cclBarrier(comm, NULL));
    REFUSED(cclInvalidUsage, "\"nonsense\" does not exist", cclCommDup(comm, &made, &config));
    REFUSED(cclInvalidUsage, "none was carried out", cclGroupEnd());
    REFUSED(cclInvalidArgument, "NULL", cclStreamCreate(NULL));
    OK(cclBarrier(comm, NULL));
}

/* Ranks whose communicator cannot be made do what else is in the group as the others do. */
static void making_fails(void) {
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclComm_t half;
    int64_t x = 1, sum = 0;
    if (me == 0) config.algorithm = "ring";
    OK(cclGroupStart());
    OK(cclCommSplit(comm, me / 2, 0, &half, &config));
    OK(cclAllReduce(&x, &sum, 1, cclInt64, cclSum, comm, NULL));
    if (me < 2) {
        REFUSED(cclRemoteError, "algorithm", cclGroupEnd());
        CHECK(half == NULL);
    } else {
        OK(cclGroupEnd());
        OK(cclCommDestroy(half));
    }
    CHECK(sum == ranks);
    CHECK(me >= 2 || strstr(cclGetLastError(comm), "algorithm") != NULL);
}

static int order[4];
static int called;

static void note(void *data, cclResult_t result) {
    CHECK(result == cclSuccess);
    order[called++] = *(int *)data;
}

static void streams(void) {
    static int numbers[3] = {10, 20, 30};
    float *x = malloc(LONG * sizeof *x);
    cclStream_t stream, other;
    OK(cclStreamCreate(&stream));
    OK(cclStreamCreate(&other));
    for (int i = 0; i < LONG; i++) {
        x[i] = 1;
    }
    /* Each step needs the one before it. */
    for (int k = 0; k < 3; k++) {
        OK(cclAllReduce(x, x, LONG, cclFloat32, cclSum, comm, stream));
        OK(cclStreamAddCallback(stream, note, &numbers[k]));
    }
    exchange(3000, other);
    OK(cclStreamSynchronize(stream));
    CHECK(called == 3 && order[0] == 10 && order[1] == 20 && order[2] == 30);
    for (int i = 0; i < LONG; i++) {
        CHECK(x[i] == (float)(ranks * ranks * ranks));
    }
    OK(cclStreamQuery(stream));
    OK(cclStreamDestroy(stream));
    OK(cclStreamDestroy(other));
    free(x);
}

/* What a group puts into one stream begins together, after what was there before and before what comes later. Long messages
 * wait for their receives. */
static void one_stream(void) {
    int64_t *data = filled(me, 0, LONGER), *got = calloc(LONGER, sizeof *got), *own = calloc(LONGER, sizeof *own);
    int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks, called_before = called;
    static int number = 40;
    cclStream_t stream;
    CHECK(got != NULL && own != NULL);
    OK(cclStreamCreate(&stream));
    /* Now all have the same: the sum of the ranks' values. */
    OK(cclAllReduce(data, data, LONGER, cclInt64, cclSum, comm, stream));
    OK(cclGroupStart());
    OK(cclSend(data, LONGER, cclInt64, next, comm, stream));
    OK(cclSend(data, LONGER, cclInt64, me, comm, stream));
    OK(cclRecv(own, LONGER, cclInt64, me, comm, stream));
    OK(cclRecv(got, LONGER, cclInt64, before, comm, stream));
    OK(cclGroupEnd());
    OK(cclAllReduce(got, own, LONGER, cclInt64, cclSum, comm, stream));
    OK(cclGroupStart());
    OK(cclRecv(got, LONGER, cclInt64, next, comm, stream));
    OK(cclSend(own, LONGER, cclInt64, before, comm, stream));
    OK(cclGroupEnd());
    OK(cclStreamAddCallback(stream, note, &number));
    OK(cclStreamSynchronize(stream));
    CHECK(called == called_before + 1);
    for (size_t i = 0; i < LONGER; i++) {
        int64_t sum = 0;
        for (int rank = 0; rank < ranks; rank++) {
            sum += value(rank, 0, i);
        }
        CHECK(data[i] == sum && own[i] == sum * ranks && got[i] == sum * ranks);
    }
    OK(cclStreamDestroy(stream));
    free(data);
    free(got);
    free(own);
}

static void work(cclUniqueId id, int all, int rank) {
    ranks = all;
    me = rank;
    OK(cclCommInitRank(&comm, all, id, rank));
    exchange(0, NULL);
    exchange(1, NULL);
    exchange(LONG, NULL);
    messages();
    refusals();
    making_fails();
    streams();
    one_stream();
    OK(cclCommDestroy(comm));
}

/* One thread drives all ranks of a process. */
static void one_thread(void) {
    cclComm_t comms[3];
    cclUniqueId id;
    int32_t x[3] = {1, 2, 3};
    OK(cclGetUniqueId(&id));
    OK(cclGroupStart());
    for (int rank = 0; rank < 3; rank++) {
        OK(cclCommInitRank(&comms[rank], 3, id, rank));
    }
    OK(cclGroupEnd());
    for (int k = 0; k < 10; k++) {
        OK(cclGroupStart());
        for (int rank = 2; rank >= 0; rank--) {
            OK(cclAllReduce(&x[rank], &x[rank], 1, cclInt32, cclMax, comms[rank], NULL));
        }
        OK(cclGroupEnd());
        CHECK(x[0] == 3 && x[1] == 3 && x[2] == 3);
    }
    /* The same in one stream, with messages that wait for their receives. */
    int64_t *sent[3], *got[3];
    cclStream_t stream;
    OK(cclStreamCreate(&stream));
    OK(cclGroupStart());
    for (int rank = 0; rank < 3; rank++) {
        sent[rank] = filled(rank, 0, LONGER);
        got[rank] = calloc(LONGER, sizeof *got[rank]);
        x[rank] = rank;
        OK(cclSend(sent[rank], LONGER, cclInt64, (rank + 1) % 3, comms[rank], stream));
        OK(cclAllReduce(&x[rank], &x[rank], 1, cclInt32, cclSum, comms[rank], stream));
        OK(cclRecv(got[rank], LONGER, cclInt64, (rank + 2) % 3, comms[rank], stream));
    }
    OK(cclGroupEnd());
    OK(cclStreamSynchronize(stream));
    /* Who destroys a communicator in the group leaves it when all has begun. */
    cclComm_t leaving[3];
    OK(cclCommInitAll(leaving, 3, NULL));
    int32_t y[3] = {1, 2, 3};
    OK(cclGroupStart());
    for (int rank = 0; rank < 3; rank++) {
        OK(cclAllReduce(&y[rank], &y[rank], 1, cclInt32, cclSum, leaving[rank], stream));
    }
    for (int rank = 0; rank < 3; rank++) {
        OK(cclCommDestroy(leaving[rank]));
    }
    OK(cclGroupEnd());
    OK(cclStreamSynchronize(stream));
    CHECK(y[0] == 6 && y[1] == 6 && y[2] == 6);
    for (int rank = 0; rank < 3; rank++) {
        CHECK(x[rank] == 3);
        check(got[rank], (rank + 2) % 3, 0, LONGER);
        free(sent[rank]);
        free(got[rank]);
    }
    OK(cclStreamDestroy(stream));
    /* A failure gives no handle. */
    OK(cclGroupStart());
    REFUSED(cclInvalidArgument, "rank 3 of 3", cclCommInitRank(&comms[0], 3, id, 3));
    EXPECT(cclInvalidArgument, cclGroupEnd());
    CHECK(comms[0] == NULL);
    int seven = 7;
    OK(cclGroupStart());
    REFUSED(cclInvalidArgument, "rank 7 cannot", cclCommShrink(comms[1], &seven, 1, &comms[0], NULL, 0));
    EXPECT(cclInvalidArgument, cclGroupEnd());
    CHECK(comms[0] == NULL);
    for (int rank = 1; rank < 3; rank++) {
        OK(cclCommDestroy(comms[rank]));
    }
}

/* If one cannot be made none is, and what waits for it ends at once: after an hour otherwise. */
static void give_up(void) {
    cclConfig_t patient = CCL_CONFIG_INITIALIZER, wrong = CCL_CONFIG_INITIALIZER;
    patient.timeout = 3600 * 1000;
    wrong.algorithm = "nonsense";
    for (int bad = 0; bad < 2; bad++) {
        cclComm_t comms[3];
        cclUniqueId id, other;
        OK(cclGetUniqueId(&id));
        OK(cclGetUniqueId(&other));
        OK(cclGroupStart());
        OK(cclCommInitRankConfig(&comms[0], 2, id, 0, &patient));
        OK(cclCommInitRankConfig(&comms[1], 2, other, 0, &patient));
        if (bad == 0) {
            REFUSED(cclInvalidArgument, "rank 2 of 2", cclCommInitRank(&comms[2], 2, id, 2));
            REFUSED(cclInvalidArgument, "rank 2 of 2", cclGroupEnd());
        } else {
            OK(cclCommInitRankConfig(&comms[2], 2, id, 1, &wrong));
            REFUSED(cclInvalidUsage, "\"nonsense\" does not exist", cclGroupEnd());
        }
        CHECK(comms[0] == NULL && comms[1] == NULL && comms[2] == NULL);
        /* Who comes late hears of it, too. */
        REFUSED(cclRemoteError, "gave up", cclCommInitRankConfig(&comms[0], 2, other, 1, &patient));
    }
    /* Nor if another call of the group is refused. */
    cclComm_t comm;
    cclUniqueId id;
    OK(cclGetUniqueId(&id));
    OK(cclGroupStart());
    OK(cclCommInitRankConfig(&comm, 2, id, 0, &patient));
    REFUSED(cclInvalidArgument, "comm", cclBarrier(NULL, NULL));
    REFUSED(cclInvalidArgument, "none was carried out", cclGroupEnd());
    REFUSED(cclRemoteError, "gave up", cclCommInitRankConfig(&comm, 2, id, 1, &patient));
}

/* A receive that never comes ends at its deadline, though calls without end go on beside it. */
static void late(void) {
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = 300;
    cclUniqueId id;
    cclComm_t one;
    cclStream_t stream;
    OK(cclGetUniqueId(&id));
    OK(cclCommInitRankConfig(&one, 1, id, 0, &config));
    OK(cclStreamCreate(&stream));
    int64_t got, x = 0;
    OK(cclRecv(&got, 1, cclInt64, 0, one, stream));
    cclResult_t result;
    do {
        result = cclAllReduce(&x, &x, 1, cclInt64, cclSum, one, NULL);
    } while (result == cclSuccess);
    CHECK(result == cclTimeout);
    EXPECT(cclTimeout, cclStreamSynchronize(stream));
    OK(cclStreamDestroy(stream));
    OK(cclCommAbort(one));
}

int main(void) {
    CHECK(run_ranks(RANKS, work) == 0);
    one_thread();
    give_up();
    late();
    return 0;
}
