/* Every bad argument has its result and its text, and leaves the communicator as good as before. */
#include "ranks.h"

static char buffer[1024];
static cclComm_t comm;

/* An all-reduce that all ranks make. */
static void still_good(int ranks) {
    int one = 1, sum = 0;
    cclResult_t state = -1;
    OK(cclAllReduce(&one, &sum, 1, cclInt, cclSum, comm, NULL));
    CHECK(sum == ranks);
    OK(cclCommGetAsyncError(comm, &state));
    CHECK(state == cclSuccess);
}

static void bad_init(cclUniqueId id) {
    cclUniqueId zeros;
    cclComm_t none = (cclComm_t)&buffer;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    memset(&zeros, 0, sizeof zeros);

    EXPECT(cclInvalidArgument, cclGetUniqueId(NULL));
    EXPECT(cclInvalidArgument, cclGetVersion(NULL));
    REFUSED(cclInvalidArgument, "comm is NULL", cclCommInitRank(NULL, 1, id, 0));
    REFUSED(cclInvalidArgument, "0", cclCommInitRank(&none, 0, id, 0));
    CHECK(none == NULL);
    REFUSED(cclInvalidArgument, "nranks is -1", cclCommInitRank(&none, -1, id, 0));
    REFUSED(cclInvalidArgument, "rank is -1", cclCommInitRank(&none, 2, id, -1));
    REFUSED(cclInvalidArgument, "rank 2", cclCommInitRank(&none, 2, id, 2));
    EXPECT(cclInvalidArgument, cclCommInitRank(&none, 2, zeros, 0));

    config.size = 3;
    REFUSED(cclInvalidArgument, "CCL_CONFIG_INITIALIZER", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.magic = 0;
    REFUSED(cclInvalidArgument, "CCL_CONFIG_INITIALIZER", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.timeout = -5;
    REFUSED(cclInvalidArgument, "-5 milliseconds", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    REFUSED(cclInvalidArgument, "blocking is 2", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.reproducible = 1;
    config.algorithm = "ring";
    REFUSED(cclInvalidUsage, "reproducible", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config.algorithm = "direct";
    config.threads = 0;
    REFUSED(cclInvalidArgument, "threads is 0", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.transport = "pigeon";
    REFUSED(cclInvalidUsage, "pigeon", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.algorithm = "guess";
    REFUSED(cclInvalidUsage, "guess", cclCommInitRankConfig(&none, 2, id, 0, &config));
    CHECK(setenv("CCL_EXPLAIN", "perhaps", 1) == 0);
    REFUSED(cclInvalidUsage, "CCL_EXPLAIN=\"perhaps\"", cclCommInitRank(&none, 2, id, 0));
    CHECK(unsetenv("CCL_EXPLAIN") == 0);
    CHECK(none == NULL);
}

/* Calls on a handle that is none; `word` is what their texts have in common. */
static void bad_handle(cclComm_t none, const char *word) {
    int value = -7;
    REFUSED(cclInvalidArgument, word, cclAllReduce(buffer, buffer, 1, cclInt8, cclSum, none, NULL));
    REFUSED(cclInvalidArgument, word, cclBroadcast(buffer, buffer, 1, cclInt8, 0, none, NULL));
    REFUSED(cclInvalidArgument, word, cclBcast(buffer, 1, cclInt8, 0, none, NULL));
    REFUSED(cclInvalidArgument, word, cclReduce(buffer, buffer, 1, cclInt8, cclSum, 0, none, NULL));
    REFUSED(cclInvalidArgument, word, cclAllGather(buffer, buffer, 1, cclInt8, none, NULL));
    REFUSED(cclInvalidArgument, word, cclReduceScatter(buffer, buffer, 1, cclInt8, cclSum, none, NULL));
    REFUSED(cclInvalidArgument, word, cclGather(buffer, buffer, 1, cclInt8, 0, none, NULL));
    REFUSED(cclInvalidArgument, word, cclScatter(buffer, buffer, 1, cclInt8, 0, none, NULL));
    REFUSED(cclInvalidArgument, word, cclAlltoAll(buffer, buffer, 1, cclInt8, none, NULL));
    REFUSED(cclInvalidArgument, word, cclBarrier(none, NULL));
    REFUSED(cclInvalidArgument, word, cclCommCount(none, &value));
    REFUSED(cclInvalidArgument, word, cclCommUserRank(none, &value));
    REFUSED(cclInvalidArgument, word, cclCommGetAsyncError(none, &value));
    REFUSED(cclInvalidArgument, word, cclCommSetTimeout(none, 1000));
    REFUSED(cclInvalidArgument, word, cclCommFinalize(none));
    REFUSED(cclInvalidArgument, word, cclCommAbort(none));
    CHECK(value == -7);
    if (none == NULL) {
        OK(cclCommDestroy(none));
    } else {
        REFUSED(cclInvalidArgument, word, cclCommDestroy(none));
        CHECK(strstr(cclGetLastError(none), word) != NULL);
    }
}

static void bad_calls(void) {
    char *a = buffer;
    const char *last;
    REFUSED(cclInvalidArgument, "sendbuff is NULL", cclAllReduce(NULL, a, 8, cclInt8, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "recvbuff is NULL", cclAllReduce(a, NULL, 8, cclInt8, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "overlap", cclAllReduce(a, a + 4, 8, cclInt8, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "overlap", cclAllReduce(a + 4, a, 8, cclInt8, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "no buffer can hold", cclAllReduce(a, a, SIZE_MAX, cclInt, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "no buffer can hold", cclAllReduce(a, a, SIZE_MAX, cclInt8, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "no buffer can hold", cclAllReduce(a, a, SIZE_MAX / 4, cclInt, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "data type 14", cclAllReduce(a, a, 8, cclNumTypes, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "data type -1", cclAllReduce(a, a, 8, -1, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "operation 8", cclAllReduce(a, a, 8, cclInt, cclNumOps, comm, NULL));
    REFUSED(cclInvalidArgument, "operation -1", cclAllReduce(a, a, 8, cclInt, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "bitand", cclAllReduce(a, a, 8, cclFloat, cclBitAnd, comm, NULL));
    REFUSED(cclInvalidArgument, "stream", cclAllReduce(a, a, 8, cclInt, cclSum, comm, buffer));

    /* On every rank, also where the send buffer is not looked at. */
    REFUSED(cclInvalidArgument, "recvbuff is NULL", cclBroadcast(a, NULL, 8, cclInt8, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "root is -1", cclBroadcast(a, a, 8, cclInt8, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "root 2", cclBroadcast(a, a, 8, cclInt8, 2, comm, NULL));
    REFUSED(cclInvalidArgument, "data type 99", cclBroadcast(a, a, 8, 99, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "stream", cclBroadcast(a, a, 8, cclInt8, 0, comm, buffer));
    REFUSED(cclInvalidArgument, "no buffer can hold", cclBroadcast(NULL, a, SIZE_MAX, cclInt, 1, comm, NULL));
    REFUSED(cclInvalidArgument, "buff is NULL", cclBcast(NULL, 8, cclInt8, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "root 2", cclBcast(a, 8, cclInt8, 2, comm, NULL));
    REFUSED(cclInvalidArgument, "stream", cclBcast(a, 8, cclInt8, 0, comm, buffer));

    EXPECT(cclInvalidArgument, cclCommCount(comm, NULL));
    EXPECT(cclInvalidArgument, cclCommUserRank(comm, NULL));
    EXPECT(cclInvalidArgument, cclCommGetAsyncError(comm, NULL));
    REFUSED(cclInvalidArgument, "0 milliseconds", cclCommSetTimeout(comm, 0));
    REFUSED(cclInvalidArgument, "-1 milliseconds", cclCommSetTimeout(comm, -1));
    OK(cclCommSetTimeout(comm, 60000));

    /* Both texts are of the last call that failed. */
    CHECK(strstr(cclGetLastError(comm), "-1 milliseconds") != NULL);
    last = cclGetLastError(NULL);
    CHECK(strstr(last, "-1 milliseconds") != NULL);
}

/* The same of the collectives with a block for each of two ranks, or with a root that alone receives. */
static void bad_blocks(int rank) {
    char *a = buffer;
    /* A block of this is possible, and one for each of two ranks is not. */
    size_t half = (size_t)PTRDIFF_MAX / 4 + 1;
    const char *null = "sendbuff is NULL: it must hold 8 elements of int16 (16 bytes)";
    const char *nulls = "sendbuff is NULL: it must hold 16 elements of int16 (32 bytes)";
    const char *block = "recvbuff is NULL: it must hold 8 elements of int16 (16 bytes)";
    const char *blocks = "recvbuff is NULL: it must hold 16 elements of int16 (32 bytes)";
    const char *each = "of int16 for each of 2 ranks: the most is 9223372036854775807 bytes";
    const char *overlap, *before;

    REFUSED(cclInvalidArgument, null, cclReduce(NULL, a, 8, cclInt16, cclSum, 0, comm, NULL));
    REFUSED(cclInvalidArgument, null, cclAllGather(NULL, a, 8, cclInt16, comm, NULL));
    REFUSED(cclInvalidArgument, blocks, cclAllGather(a, NULL, 8, cclInt16, comm, NULL));
    REFUSED(cclInvalidArgument, nulls, cclReduceScatter(NULL, a, 8, cclInt16, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, block, cclReduceScatter(a, NULL, 8, cclInt16, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, null, cclGather(NULL, a, 8, cclInt16, 1, comm, NULL));
    REFUSED(cclInvalidArgument, block, cclScatter(a, NULL, 8, cclInt16, 1, comm, NULL));
    REFUSED(cclInvalidArgument, nulls, cclAlltoAll(NULL, a, 8, cclInt16, comm, NULL));
    REFUSED(cclInvalidArgument, blocks, cclAlltoAll(a, NULL, 8, cclInt16, comm, NULL));

    REFUSED(cclInvalidArgument, "no buffer can hold", cclReduce(a, a, SIZE_MAX, cclInt16, cclSum, 0, comm, NULL));
    REFUSED(cclInvalidArgument, each, cclAllGather(a, a, half, cclInt16, comm, NULL));
    REFUSED(cclInvalidArgument, each, cclReduceScatter(a, a, half, cclInt16, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, each, cclGather(a, a, half, cclInt16, 0, comm, NULL));
    REFUSED(cclInvalidArgument, each, cclScatter(a, a, SIZE_MAX, cclInt16, 0, comm, NULL));
    REFUSED(cclInvalidArgument, each, cclAlltoAll(a, a, SIZE_MAX / 2, cclInt16, comm, NULL));
    REFUSED(cclInvalidArgument, "past the end of memory",
            cclAlltoAll((void *)(UINTPTR_MAX - 20), a, 8, cclInt16, comm, NULL));

    REFUSED(cclInvalidArgument, "root is -1", cclReduce(a, a, 8, cclInt16, cclSum, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "root is -1", cclGather(a, a, 8, cclInt16, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "root is -1", cclScatter(a, a, 8, cclInt16, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "ranks are 0 to 1", cclReduce(a, a, 8, cclInt16, cclSum, 2, comm, NULL));
    REFUSED(cclInvalidArgument, "root 2147483647", cclGather(a, a, 8, cclInt16, INT32_MAX, comm, NULL));
    REFUSED(cclInvalidArgument, "root 2", cclScatter(NULL, NULL, 0, cclInt16, 2, comm, NULL));

    REFUSED(cclInvalidArgument, "data type 14", cclReduce(a, a, 8, 14, cclSum, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "data type -1", cclAllGather(a, a, 8, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "data type 14", cclReduceScatter(a, a, 8, 14, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "data type 99", cclGather(a, a, 8, 99, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "data type 14", cclScatter(a, a, 8, 14, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "data type 14", cclAlltoAll(a, a, 8, 14, comm, NULL));
    REFUSED(cclInvalidArgument, "operation 8", cclReduce(a, a, 8, cclInt16, cclNumOps, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "operation -1", cclReduceScatter(a, a, 8, cclInt16, -1, comm, NULL));
    REFUSED(cclInvalidArgument, "bitxor", cclReduce(a, a, 8, cclDouble, cclBitXor, 0, comm, NULL));
    REFUSED(cclInvalidArgument, "bitor", cclReduceScatter(a, a, 8, cclHalf, cclBitOr, comm, NULL));
    REFUSED(cclInvalidArgument, "stream", cclReduce(a, a, 8, cclInt16, cclSum, 0, comm, a));
    REFUSED(cclInvalidArgument, "stream", cclAllGather(a, a, 8, cclInt16, comm, a));
    REFUSED(cclInvalidArgument, "stream", cclReduceScatter(a, a, 8, cclInt16, cclSum, comm, a));
    REFUSED(cclInvalidArgument, "stream", cclGather(a, a, 8, cclInt16, 0, comm, a));
    REFUSED(cclInvalidArgument, "stream", cclScatter(a, a, 8, cclInt16, 0, comm, a));
    REFUSED(cclInvalidArgument, "stream", cclAlltoAll(a, a, 8, cclInt16, comm, a));

    /* In place is this rank's block: all else that overlaps is told where it lies and where it must. */
    overlap = "begins 2 bytes after the send buffer. In place it must begin together with it";
    REFUSED(cclInvalidArgument, overlap, cclAlltoAll(a, a + 2, 8, cclInt16, comm, NULL));
    overlap = "begins 30 bytes before the send buffer. In place it must begin together with it";
    REFUSED(cclInvalidArgument, overlap, cclAlltoAll(a + 30, a, 8, cclInt16, comm, NULL));
    before = rank == 0 ? "In place it must begin together with it" : "In place it must begin 16 bytes before it";
    REFUSED(cclInvalidArgument, before, cclAllGather(a + (1 - rank) * 16, a, 8, cclInt16, comm, NULL));
    REFUSED(cclInvalidArgument, before, cclAllGather(a + 8, a, 8, cclInt16, comm, NULL));
    overlap = rank == 0 ? "In place it must begin together with it" : "In place it must begin 16 bytes after it";
    REFUSED(cclInvalidArgument, overlap, cclReduceScatter(a, a + (1 - rank) * 16, 8, cclInt16, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, overlap, cclReduceScatter(a, a + 8, 8, cclInt16, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, overlap, cclReduceScatter(a + 8, a, 8, cclInt16, cclSum, comm, NULL));
    if (rank == 1) {
        REFUSED(cclInvalidArgument, "recvbuff is NULL: it must hold 8 elements of int16 (16 bytes)",
                cclReduce(a, NULL, 8, cclInt16, cclSum, 1, comm, NULL));
        REFUSED(cclInvalidArgument, "overlap", cclReduce(a, a + 14, 8, cclInt16, cclSum, 1, comm, NULL));
        REFUSED(cclInvalidArgument, blocks, cclGather(a, NULL, 8, cclInt16, 1, comm, NULL));
        REFUSED(cclInvalidArgument, before, cclGather(a, a, 8, cclInt16, 1, comm, NULL));
        REFUSED(cclInvalidArgument, nulls, cclScatter(NULL, a, 8, cclInt16, 1, comm, NULL));
        REFUSED(cclInvalidArgument, overlap, cclScatter(a, a, 8, cclInt16, 1, comm, NULL));
    }
}

/* What only the root or only another rank may do wrong: the others make no call. */
static void bad_roots(int rank) {
    if (rank == 0) {
        REFUSED(cclInvalidArgument, "sendbuff is NULL", cclBroadcast(NULL, buffer, 8, cclInt8, 0, comm, NULL));
        REFUSED(cclInvalidArgument, "overlap", cclBroadcast(buffer + 1, buffer, 8, cclInt8, 0, comm, NULL));
    }
}

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t gone;
    CHECK(strcmp(cclGetLastError(NULL), "") == 0);
    bad_init(id);
    OK(cclCommInitRank(&comm, ranks, id, rank));
    CHECK(strcmp(cclGetLastError(comm), "") == 0);
    still_good(ranks);

    bad_calls();
    still_good(ranks);
    bad_blocks(rank);
    still_good(ranks);
    bad_roots(rank);
    still_good(ranks);
    bad_handle(NULL, "handle is NULL");
    bad_handle((cclComm_t)buffer, "never was one");
    bad_handle((cclComm_t)(uintptr_t)1, "never was one");
    bad_handle((cclComm_t)UINTPTR_MAX, "never was one");
    bad_handle((cclComm_t)((uintptr_t)comm + 1), "never was one");
    still_good(ranks);

    gone = comm;
    OK(cclCommDestroy(comm));
    bad_handle(gone, "was destroyed");
}

int main(void) { return run_ranks(2, work) != 0; }
