/* Ranks that are threads of one process: every call, calls of two threads of a rank at once, and aborts from elsewhere. */
#include "ranks.h"
#include <pthread.h>

enum { RANKS = 4, LONG = 70001, ROUNDS = 12, CHUNK = 900 };

/* Runs `work(rank)` for each rank in a thread of its own. */
static void in_threads(int ranks, void *(*work)(void *)) {
    pthread_t threads[RANKS];
    static const int NUMBERS[RANKS] = {0, 1, 2, 3};
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(pthread_create(&threads[rank], NULL, work, (void *)&NUMBERS[rank]) == 0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(pthread_join(threads[rank], NULL) == 0);
    }
}

static cclComm_t comms[RANKS];

static int32_t value(int rank, size_t i) { return (int32_t)((size_t)(rank + 1) * 1000003 + i * 7); }

static int32_t sum(size_t i) {
    int32_t all = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        all += value(rank, i);
    }
    return all;
}

static int32_t *numbers(size_t count) {
    int32_t *data = malloc((count + 1) * sizeof *data);
    CHECK(data != NULL);
    return data;
}

static void fill(int32_t *data, int rank, size_t count) {
    for (size_t i = 0; i < count; i++) {
        data[i] = value(rank, i);
    }
}

/* All collectives, with blocks of `count` elements. The buffers are written again before each. */
static void collectives(cclComm_t comm, int rank, size_t count, int root) {
    size_t all = RANKS * count, counts[RANKS], full[RANKS], places[RANKS], none[RANKS] = {0};
    int32_t *sent = numbers(all), *got = numbers(all);
    for (int k = 0; k < RANKS; k++) {
        counts[k] = k == 1 ? 0 : count; /* for or of rank 1 nothing, in the V forms */
        full[k] = count;
        places[k] = (size_t)k * count;
    }
    fill(sent, rank, all);
    OK(cclAllReduce(sent, got, all, cclInt32, cclSum, comm, NULL));
    for (size_t i = 0; i < all; i++) {
        CHECK(got[i] == sum(i));
    }
    OK(cclAllReduce(sent, sent, all, cclInt32, cclSum, comm, NULL));
    CHECK(all == 0 || sent[all - 1] == sum(all - 1));
    fill(sent, rank, all);
    OK(cclReduceScatter(sent, got, count, cclInt32, cclSum, comm, NULL));
    for (size_t i = 0; i < count; i++) {
        CHECK(got[i] == sum((size_t)rank * count + i));
    }
    fill(sent, rank, all);
    OK(cclAllGather(sent, got, count, cclInt32, comm, NULL));
    for (size_t i = 0; i < all; i++) {
        CHECK(got[i] == value((int)(i / count), i % count));
    }
    fill(sent, rank, all);
    OK(cclAlltoAll(sent, got, count, cclInt32, comm, NULL));
    for (size_t i = 0; i < all; i++) {
        CHECK(got[i] == value((int)(i / count), (size_t)rank * count + i % count));
    }
    fill(sent, rank, all);
    OK(cclAlltoAllV(sent, counts, places, got, rank == 1 ? none : full, places, cclInt32, comm, NULL));
    for (size_t i = 0; i < all && rank != 1; i++) {
        CHECK(got[i] == value((int)(i / count), (size_t)rank * count + i % count));
    }
    fill(sent, rank, all);
    OK(cclAllGatherV(sent, counts[rank], got, counts, places, cclInt32, comm, NULL));
    CHECK(count == 0 || got[all - 1] == value(RANKS - 1, count - 1));
    fill(sent, rank, all);
    OK(cclBroadcast(sent, got, all, cclInt32, root, comm, NULL));
    CHECK(all == 0 || got[all - 1] == value(root, all - 1));
    fill(sent, rank, all);
    OK(cclReduce(sent, got, all, cclInt32, cclSum, root, comm, NULL));
    CHECK(all == 0 || rank != root || got[all - 1] == sum(all - 1));
    fill(sent, rank, all);
    OK(cclGather(sent, got, count, cclInt32, root, comm, NULL));
    CHECK(count == 0 || rank != root || got[all - 1] == value(RANKS - 1, count - 1));
    fill(sent, rank, all);
    OK(cclScatter(sent, got, count, cclInt32, root, comm, NULL));
    CHECK(count == 0 || got[count - 1] == value(root, (size_t)(rank + 1) * count - 1));
    OK(cclBarrier(comm, NULL));
    free(sent);
    free(got);
}

static void *every_call(void *number) {
    static const size_t COUNTS[] = {1, 25, 1000, LONG};
    int rank = *(const int *)number;
    for (size_t k = 0; k < sizeof COUNTS / sizeof *COUNTS; k++) {
        collectives(comms[rank], rank, COUNTS[k], (int)k % RANKS);
    }
    return NULL;
}

/* Messages around the ring, of one of two threads that do so on one communicator at once, each with its tag. */
struct pair {
    int rank, tag;
};

static void *around(void *of) {
    struct pair *pair = of;
    int to = (pair->rank + 1) % RANKS, from = (pair->rank + RANKS - 1) % RANKS;
    int32_t *sent = numbers(LONG), *got = numbers(LONG);
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = round % 4 == 0 ? LONG : (size_t)(round * CHUNK);
        fill(sent, pair->rank + pair->tag, count);
        OK(cclGroupStart());
        OK(cclSendTag(sent, count, cclInt32, to, pair->tag, comms[pair->rank], NULL));
        OK(cclRecvTag(got, count, cclInt32, from, pair->tag, NULL, comms[pair->rank], NULL));
        OK(cclGroupEnd());
        for (size_t i = 0; i < count; i++) {
            CHECK(got[i] == value(from + pair->tag, i));
        }
    }
    free(sent);
    free(got);
    return NULL;
}

static void *two_at_once(void *number) {
    struct pair pairs[2] = {{*(const int *)number, 1}, {*(const int *)number, 2}};
    pthread_t other;
    CHECK(pthread_create(&other, NULL, around, &pairs[1]) == 0);
    around(&pairs[0]);
    CHECK(pthread_join(other, NULL) == 0);
    return NULL;
}

static void count(void *of, cclResult_t result) {
    CHECK(result == cclSuccess);
    ++*(int *)of;
}

/* Calls of two streams and calls that wait, side by side. */
static void *later(void *number) {
    int rank = *(const int *)number, called = 0;
    cclComm_t comm = comms[rank];
    cclStream_t streams[2];
    int32_t *data[2] = {numbers(LONG), numbers(LONG)}, one = 1;
    for (int s = 0; s < 2; s++) {
        fill(data[s], rank, LONG);
        OK(cclStreamCreate(&streams[s]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int s = 0; s < 2; s++) {
            OK(cclAllReduce(data[s], data[s], s == 0 ? LONG : CHUNK, cclInt32, cclMax, comm, streams[s]));
            if (s == 0) {
                OK(cclStreamAddCallback(streams[s], count, &called));
            }
        }
        OK(cclAllReduce(&one, &one, 1, cclInt32, cclMax, comm, NULL));
    }
    for (int s = 0; s < 2; s++) {
        OK(cclStreamSynchronize(streams[s]));
        OK(cclStreamDestroy(streams[s]));
        CHECK(data[s][CHUNK - 1] == value(RANKS - 1, CHUNK - 1));
        free(data[s]);
    }
    CHECK(called == ROUNDS && one == 1);
    return NULL;
}

static void *parts(void *number) {
    int rank = *(const int *)number;
    for (int round = 0; round < ROUNDS; round++) {
        cclComm_t half, twin;
        int32_t x = rank, y = 1;
        OK(cclCommSplit(comms[rank], rank % 2, -rank, &half, NULL));
        OK(cclCommDup(half, &twin, NULL));
        OK(cclAllReduce(&x, &x, 1, cclInt32, cclSum, half, NULL));
        OK(cclAllReduce(&y, &y, 1, cclInt32, cclSum, twin, NULL));
        CHECK(x == (rank % 2 == 0 ? 2 : 4) && y == 2);
        OK(cclCommDestroy(half));
        OK(cclCommDestroy(twin));
    }
    return NULL;
}

/* Calls until somebody has aborted: rank 0's communicator is gone then, the others' say who did it. */
static void *until_aborted(void *number) {
    int rank = *(const int *)number;
    int32_t *data = calloc(LONG, sizeof *data);
    cclResult_t result = cclSuccess;
    CHECK(data != NULL);
    while (result == cclSuccess) {
        result = cclAllReduce(data, data, LONG, cclInt32, cclSum, comms[rank], NULL);
    }
    CHECK(result == cclRemoteError || (rank == 0 && result == cclInvalidArgument));
    free(data);
    return NULL;
}

static void *abort_soon(void *microseconds) {
    usleep(*(useconds_t *)microseconds);
    OK(cclCommAbort(comms[0]));
    return NULL;
}

static void init(void) { OK(cclCommInitAll(comms, RANKS, NULL)); }

static void destroy(int first) {
    for (int rank = first; rank < RANKS; rank++) {
        OK(cclCommDestroy(comms[rank]));
    }
}

int main(void) {
    alarm(200);
    init();
    in_threads(RANKS, every_call);
    in_threads(RANKS, two_at_once);
    in_threads(RANKS, later);
    in_threads(RANKS, parts);
    destroy(0);
    for (useconds_t soon = 0; soon < 20000; soon += 5000) {
        pthread_t thread;
        init();
        CHECK(pthread_create(&thread, NULL, abort_soon, &soon) == 0);
        in_threads(RANKS, until_aborted);
        CHECK(pthread_join(thread, NULL) == 0);
        destroy(1);
    }
    return 0;
}
