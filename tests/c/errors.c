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
    config.blocking = 0;
    REFUSED(cclInvalidUsage, "blocking = 0", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.reproducible = 1;
    REFUSED(cclInvalidUsage, "reproducible = 1", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.transport = "pigeon";
    REFUSED(cclInvalidUsage, "pigeon", cclCommInitRankConfig(&none, 2, id, 0, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.algorithm = "guess";
    REFUSED(cclInvalidUsage, "guess", cclCommInitRankConfig(&none, 2, id, 0, &config));
    CHECK(none == NULL);
}

/* Calls on a handle that is none; `word` is what their texts have in common. */
static void bad_handle(cclComm_t none, const char *word) {
    int value = -7;
    REFUSED(cclInvalidArgument, word, cclAllReduce(buffer, buffer, 1, cclInt8, cclSum, none, NULL));
    REFUSED(cclInvalidArgument, word, cclBroadcast(buffer, buffer, 1, cclInt8, 0, none, NULL));
    REFUSED(cclInvalidArgument, word, cclBcast(buffer, 1, cclInt8, 0, none, NULL));
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
    REFUSED(cclInvalidArgument, "sendbuff cannot hold", cclAllReduce(a, a, SIZE_MAX, cclInt, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "sendbuff cannot hold", cclAllReduce(a, a, SIZE_MAX, cclInt8, cclSum, comm, NULL));
    REFUSED(cclInvalidArgument, "sendbuff cannot hold", cclAllReduce(a, a, SIZE_MAX / 4, cclInt, cclSum, comm, NULL));
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
    REFUSED(cclInvalidArgument, "recvbuff cannot hold", cclBroadcast(NULL, a, SIZE_MAX, cclInt, 9, comm, NULL));
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
