/* Going on without some ranks, or with more; communicators that are made in the background. */
#include "ranks.h"
#include <time.h>

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void sums(cclComm_t comm, int mine, int sum) {
    int got = -1;
    OK(cclAllReduce(&mine, &got, 1, cclInt, cclSum, comm, NULL));
    CHECK(got == sum);
}

/* Waits until what is made in the background is there, or not. */
static cclResult_t settled(cclComm_t comm) {
    cclResult_t state = cclInProgress;
    for (int i = 0; i < 6000 && state == cclInProgress; i++) {
        OK(cclCommGetAsyncError(comm, &state));
        pause_ms(5);
    }
    return state;
}

/* Rank 2 of 4 ends without a word: the others notice, shrink, and go on. */
static void a_rank_is_killed(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, smaller;
    cclResult_t result = cclSuccess, state;
    int dead = 2;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    sums(comm, rank, 6);
    if (rank == dead) {
        pause_ms(50);
        /* As killed: nothing is told. */
        _exit(0);
    }
    while (result == cclSuccess) {
        int one = 1, sum;
        result = cclAllReduce(&one, &sum, 1, cclInt, cclSum, comm, NULL);
    }
    CHECK(result == cclRemoteError);
    CHECK(strstr(cclGetLastError(comm), "rank 2 was lost") != NULL);
    OK(cclCommGetAsyncError(comm, &state));
    CHECK(state == cclRemoteError);
    if (rank == 0) {
        OK(cclCommShrink(comm, &dead, 1, &smaller, NULL, CCL_SHRINK_DEFAULT));
    } else {
        OK(cclCommShrink(comm, NULL, 0, &smaller, NULL, CCL_SHRINK_ABORT));
    }
    OK(cclCommDestroy(comm));
    sums(smaller, rank, 4);
    OK(cclCommDestroy(smaller));
}

/* Rank 0 revokes while others wait in a call. */
static void revoked(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, smaller;
    cclUniqueId more;
    int first = 0;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    OK(cclCommGetUniqueId(comm, &more));
    REFUSED(cclInvalidArgument, "there are none", cclCommRevoke(comm, 1));
    sums(comm, 1, ranks);
    if (rank == 0) {
        pause_ms(100);
        OK(cclCommRevoke(comm, 0));
        EXPECT(cclRemoteError, cclBarrier(comm, NULL));
        /* The id is right: it is the communicator that is not. */
        REFUSED(cclRemoteError, "rank 0 revoked", cclCommGrow(comm, ranks + 1, &more, -1, &smaller, NULL));
    } else {
        REFUSED(cclRemoteError, "rank 0 revoked", cclBarrier(comm, NULL));
        OK(cclCommShrink(comm, &first, 1, &smaller, NULL, CCL_SHRINK_DEFAULT));
        sums(smaller, 1, ranks - 1);
        OK(cclCommDestroy(smaller));
    }
    OK(cclCommDestroy(comm));
}

/* Two ranks become four: the new ones have only the id of cclCommGetUniqueId, which rank 1 writes into a pipe. */
static int wire[2];
static void grown(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, larger;
    cclUniqueId more;
    CHECK(ranks == 4);
    if (rank < 2) {
        OK(cclCommInitRank(&comm, 2, id, rank));
        REFUSED(cclInvalidArgument, "uniqueId is NULL", cclCommGetUniqueId(comm, NULL));
        REFUSED(cclInvalidArgument, "keeps its number", cclCommGrow(comm, 4, NULL, rank, &larger, NULL));
        REFUSED(cclInvalidArgument, "not the id of the next", cclCommGrow(comm, 4, &id, -1, &larger, NULL));
        OK(cclCommGetUniqueId(comm, &more));
        if (rank == 1) {
            CHECK(write(wire[1], &more, sizeof more) == sizeof more);
            CHECK(write(wire[1], &more, sizeof more) == sizeof more);
        }
        OK(cclCommGrow(comm, 4, rank == 1 ? &more : NULL, -1, &larger, NULL));
        sums(comm, 1, 2);
        OK(cclCommDestroy(comm));
    } else {
        REFUSED(cclInvalidArgument, "a new rank needs the id", cclCommGrow(NULL, 4, NULL, rank, &larger, NULL));
        CHECK(read(wire[0], &more, sizeof more) == sizeof more);
        OK(cclCommGrow(NULL, 4, &more, rank, &larger, NULL));
    }
    sums(larger, rank, 6);
    OK(cclCommDestroy(larger));
}

/* blocking = 0: the handle is there at once, and good for questions only until all have come. */
static void in_background(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = NULL, part = NULL;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclResult_t state;
    int one = 1, got = 0;
    config.blocking = 0;
    if (rank == 0) {
        pause_ms(200);
    }
    EXPECT(cclInProgress, cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    CHECK(comm != NULL);
    if (rank != 0) {
        OK(cclCommGetAsyncError(comm, &state));
        CHECK(state == cclInProgress);
        REFUSED(cclInvalidUsage, "still being made", cclAllReduce(&one, &got, 1, cclInt, cclSum, comm, NULL));
        REFUSED(cclInvalidUsage, "still being made", cclCommCount(comm, &got));
    }
    CHECK(settled(comm) == cclSuccess);
    sums(comm, 1, ranks);
    /* What is made of it is made in the order of the calls, and so before they return. */
    OK(cclCommSplit(comm, rank % 2, 0, &part, &config));
    CHECK(settled(part) == cclSuccess);
    sums(part, rank, rank % 2 == 0 ? 2 : 1);
    OK(cclCommDestroy(part));
    if (rank == 2) {
        OK(cclCommDestroy(comm));
    } else {
        /* It was left, though its process goes on. */
        while (cclBarrier(comm, NULL) == cclSuccess) {
        }
        CHECK(strstr(cclGetLastError(comm), "rank 2 has left") != NULL);
        OK(cclCommDestroy(comm));
    }
    pause_ms(300);
}

/* What cannot be made says so, and what is given up meanwhile does no harm. */
static void in_vain(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, other;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclUniqueId lonely;
    config.blocking = 0;
    config.timeout = 300;
    OK(cclGetUniqueId(&lonely));
    EXPECT(cclInProgress, cclCommInitRankConfig(&comm, 2, lonely, 0, &config));
    CHECK(settled(comm) == cclTimeout);
    CHECK(strstr(cclGetLastError(comm), "never came") != NULL);
    REFUSED(cclInvalidUsage, "could not be made", cclBarrier(comm, NULL));
    CHECK(strstr(cclGetLastError(comm), "never came") != NULL);
    OK(cclCommDestroy(comm));
    OK(cclGetUniqueId(&lonely));
    EXPECT(cclInProgress, cclCommInitRankConfig(&comm, 2, lonely, 0, &config));
    OK(cclCommAbort(comm));
    REFUSED(cclInvalidArgument, "was destroyed", cclCommGetAsyncError(comm, &(cclResult_t){0}));
    config.blocking = 2;
    REFUSED(cclInvalidArgument, "blocking is 2", cclCommInitRankConfig(&other, ranks, id, rank, &config));
    CHECK(other == NULL);
    pause_ms(500);
}

static void arguments(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, none = NULL;
    int list[2] = {-1, 7};
    OK(cclCommInitRank(&comm, ranks, id, rank));
    REFUSED(cclInvalidArgument, "newcomm is NULL", cclCommShrink(comm, list, 1, NULL, NULL, 0));
    REFUSED(cclInvalidArgument, "excludeRanksList is -1", cclCommShrink(comm, list, 1, &none, NULL, 0));
    REFUSED(cclInvalidArgument, "rank 7 cannot", cclCommShrink(comm, list + 1, 1, &none, NULL, 0));
    REFUSED(cclInvalidArgument, "excludes itself", cclCommShrink(comm, &rank, 1, &none, NULL, 0));
    REFUSED(cclInvalidArgument, "excludeRanksCount is -1", cclCommShrink(comm, list, -1, &none, NULL, 0));
    REFUSED(cclInvalidArgument, "excludeRanksList is NULL", cclCommShrink(comm, NULL, 1, &none, NULL, 0));
    REFUSED(cclInvalidArgument, "shrinkFlags is 4", cclCommShrink(comm, list, 0, &none, NULL, 4));
    REFUSED(cclInvalidArgument, "rank 7 cannot", cclCommShrink(comm, list + 1, 1, &none, NULL, CCL_SHRINK_ABORT));
    REFUSED(cclInvalidArgument, "NULL", cclCommShrink(NULL, list, 0, &none, NULL, 0));
    REFUSED(cclInvalidArgument, "NULL", cclCommRevoke(NULL, 0));
    REFUSED(cclInvalidArgument, "nranks is -3", cclCommGrow(comm, -3, NULL, -1, &none, NULL));
    CHECK(none == NULL);
    sums(comm, 1, ranks);
    OK(cclCommDestroy(comm));
}

int main(void) {
    int failed = 0;
    CHECK(pipe(wire) == 0);
    failed += run_ranks(4, a_rank_is_killed);
    failed += run_ranks(3, revoked);
    failed += run_ranks(4, grown);
    failed += run_ranks(3, in_background);
    failed += run_ranks(1, in_vain);
    failed += run_ranks(2, arguments);
    return failed > 0;
}
