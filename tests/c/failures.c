/* Failures of other ranks: every rank learns the cause, and who it was. */
#include "ranks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

enum { COUNT = 1000 };

static int32_t data[COUNT];

/* In memory that all ranks share: how many have made the communicator and an operation on it. */
static atomic_int *arrived;

/* The same for the process that stops itself. */
static atomic_int *stopped;

/* A communicator that works. No rank goes on, to do harm, before all have seen that. */
static cclComm_t init(cclUniqueId id, int ranks, int rank, int timeout_ms) {
    cclComm_t comm;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = timeout_ms;
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    OK(cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < ranks) {
        usleep(100);
    }
    return comm;
}

/* The communicator is closed, says why to whoever asks, and can still be given back. */
static void closed(cclComm_t comm, cclResult_t why, const char *word) {
    cclResult_t state = -1;
    OK(cclCommGetAsyncError(comm, &state));
    CHECK(state == why);
    CHECK(strstr(cclGetLastError(comm), word) != NULL);
    REFUSED(why, word, cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    OK(cclCommDestroy(comm));
}

static void abort_by_rank_1(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    if (rank == 1) {
        OK(cclCommAbort(comm));
        EXPECT(cclInvalidArgument, cclCommDestroy(comm));
        return;
    }
    REFUSED(cclRemoteError, "rank 1 aborted", cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    closed(comm, cclRemoteError, "rank 1 aborted");
}

/* Rank 0 waits for rank 2, which waits for rank 1 in another communicator, where that is rank 0. */
static void late_in_another_communicator(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 1500), pair;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = 4000;
    OK(cclCommSplit(comm, rank == 0 ? CCL_SPLIT_NOCOLOR : 1, rank, &pair, &config));
    atomic_fetch_add(arrived, 1);
    if (rank == 0) {
        REFUSED(cclTimeout, "it waits for rank 0 of another communicator (",
                cclRecv(data, COUNT, cclInt32, 2, comm, NULL));
        REFUSED(cclTimeout, "in call #0 barrier()", cclBarrier(comm, NULL));
        atomic_fetch_add(arrived, 1);
    } else if (rank == 2) {
        OK(cclBarrier(pair, NULL));
    } else {
        while (atomic_load(arrived) < 2 * ranks + 1) {
            usleep(1000);
        }
        OK(cclBarrier(pair, NULL));
    }
    if (rank != 0) {
        OK(cclCommDestroy(pair));
    }
    OK(cclCommDestroy(comm));
}

/* Rank 1 has no descriptor left while rank 0 waits for it, and looks why; nobody needs another connection, and memory that
   rank 1 could hand over is copied. */
static void no_descriptors_for_a_while(cclUniqueId id, int ranks, int rank) {
    enum { LONG = 1 << 20 };
    cclComm_t comm = init(id, ranks, rank, 60000);
    static uint8_t longer[LONG];
    void *memory = longer;
    if (rank == 1) {
        OK(cclMemAlloc(&memory, LONG));
        memset(memory, 0, LONG);
    }
    if (rank == 1) {
        enum { MOST = 128 };
        struct rlimit limit;
        int taken[MOST], count = 0;
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = MOST;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        while (count < MOST && (taken[count] = dup(0)) >= 0) {
            count++;
        }
        sleep(7);
        OK(cclAllReduce(memory, memory, LONG, cclUint8, cclSum, comm, NULL));
        while (count > 0) {
            CHECK(close(taken[--count]) == 0);
        }
        OK(cclMemFree(memory));
    } else {
        OK(cclAllReduce(memory, memory, LONG, cclUint8, cclSum, comm, NULL));
    }
    OK(cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    OK(cclCommDestroy(comm));
}

/* Where an address sanitizer is, it wants memory as well. */
#ifdef __SANITIZE_ADDRESS__
enum { MAY_LIMIT_MEMORY = 0 };
#else
enum { MAY_LIMIT_MEMORY = 1 };
#endif

/* Over TCP, where long messages need memory of the library's own: rank 1 can have no more. */
static void no_memory(cclUniqueId id, int ranks, int rank) {
    enum { LONG = 1 << 20 };
    int32_t *many = calloc(LONG, sizeof *many);
    CHECK(many != NULL && setenv("CCL_TRANSPORT", "tcp", 1) == 0);
    cclComm_t comm = init(id, ranks, rank, 60000);
    if (rank == 1) {
        FILE *file = fopen("/proc/self/statm", "r");
        long pages;
        CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1 && fclose(file) == 0);
        struct rlimit limit = {(rlim_t)(pages * sysconf(_SC_PAGESIZE)), RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    }
    REFUSED(cclRemoteError, "there is no memory for a message",
            cclAllReduce(many, many, LONG, cclInt32, cclSum, comm, NULL));
    closed(comm, cclRemoteError, "rank 1 failed");
    free(many);
}

static void *reduce_alone(void *comm) {
    cclResult_t result = cclAllReduce(data, data, COUNT, cclInt32, cclSum, (cclComm_t)comm, NULL);
    /* The second if the thread came so late that the handle was gone already. */
    CHECK(result == cclRemoteError || result == cclInvalidArgument);
    return NULL;
}

static void abort_from_another_thread(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    if (rank == 0) {
        int value = -1;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, reduce_alone, comm) == 0);
        usleep(200 * 1000);
        /* None of these waits for the call that runs. */
        OK(cclCommCount(comm, &value));
        OK(cclCommUserRank(comm, &value));
        OK(cclCommGetAsyncError(comm, &value));
        CHECK(value == cclSuccess);
        CHECK(strcmp(cclGetLastError(comm), "") == 0);
        OK(cclCommAbort(comm));
        CHECK(pthread_join(thread, NULL) == 0);
        return;
    }
    /* The last rank never calls: without the abort the rest would wait until the deadline. */
    if (rank < ranks - 1) {
        REFUSED(cclRemoteError, "rank 0 aborted", cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    } else {
        cclResult_t state = cclSuccess;
        while (state == cclSuccess) {
            OK(cclCommGetAsyncError(comm, &state));
            usleep(1000);
        }
    }
    closed(comm, cclRemoteError, "rank 0 aborted");
}

static void calls_that_differ(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    size_t count = rank == 1 ? 7 : 8;
    REFUSED(cclInvalidUsage, "differ", cclAllReduce(data, data, count, cclInt32, cclSum, comm, NULL));
    CHECK(strstr(cclGetLastError(NULL), "7 x int32") != NULL && strstr(cclGetLastError(NULL), "8 x int32") != NULL);
    closed(comm, cclInvalidUsage, "rank 1 made call #1 allreduce(7 x int32");
}

static void silent_rank(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    if (rank == 1) {
        cclResult_t state = cclSuccess;
        while (state == cclSuccess) {
            OK(cclCommGetAsyncError(comm, &state));
            usleep(1000);
        }
        closed(comm, cclTimeout, "rank 1 stayed silent");
        return;
    }
    OK(cclCommSetTimeout(comm, 300));
    REFUSED(cclTimeout, "rank 1 stayed silent", cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    closed(comm, cclTimeout, "rank 1 stayed silent");
}

/* Rank 0, which tells the others of failures, is stopped: who fails then knows of it all the same. */
static void stopped_leader(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    if (rank == 0) {
        atomic_store(stopped, (int)getpid());
        CHECK(raise(SIGSTOP) == 0);
        OK(cclCommDestroy(comm));
        return;
    }
    while (atomic_load(stopped) == 0) {
        usleep(100);
    }
    OK(cclCommSetTimeout(comm, 300));
    REFUSED(cclTimeout, "rank 0 stayed silent", cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    closed(comm, cclTimeout, "rank 0 stayed silent");
    CHECK(kill(atomic_load(stopped), SIGCONT) == 0);
}

static void *reduce_until_revoked(void *comm) {
    REFUSED(cclRemoteError, "rank 1 revoked", cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    return NULL;
}

/* Rank 0, which would tell all ranks, is stopped: rank 1 ends its own call all the same, and what it has in a stream. */
static void revoke_beside_a_stopped_leader(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    pthread_t caller;
    if (rank == 0) {
        atomic_store(stopped, (int)getpid());
        CHECK(raise(SIGSTOP) == 0);
        /* What rank 1 sent before it gave up is good. */
        while (cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL) == cclSuccess) {
        }
        closed(comm, cclRemoteError, "rank 1 revoked");
        return;
    }
    while (atomic_load(stopped) == 0) {
        usleep(100);
    }
    static int32_t other[COUNT];
    cclStream_t stream;
    OK(cclStreamCreate(&stream));
    OK(cclAllReduce(other, other, COUNT, cclInt32, cclSum, comm, stream));
    CHECK(pthread_create(&caller, NULL, reduce_until_revoked, comm) == 0);
    usleep(50000);
    OK(cclCommRevoke(comm, 0));
    closed(comm, cclRemoteError, "rank 1 revoked");
    CHECK(pthread_join(caller, NULL) == 0);
    REFUSED(cclRemoteError, "rank 1 revoked", cclStreamSynchronize(stream));
    OK(cclStreamDestroy(stream));
    CHECK(kill(atomic_load(stopped), SIGCONT) == 0);
}

static void killed_rank(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    if (rank == 1) {
        /* As a kill -9 would, but with an exit status that the test can tell from a failure. */
        _exit(0);
    }
    REFUSED(cclRemoteError, "rank 1", cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    closed(comm, cclRemoteError, "rank 1");
}

/* With a ring most ranks wait for others that wait for the stopped one, and must not blame those. */
static void stopped_rank(cclUniqueId id, int ranks, int rank, int victim) {
    char word[64];
    cclComm_t comm;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = 1500;
    config.algorithm = "ring";
    if (rank == victim) {
        atomic_store(stopped, 0);
    }
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    if (rank == victim) {
        atomic_store(stopped, getpid());
        CHECK(raise(SIGSTOP) == 0);
        OK(cclCommDestroy(comm));
        return;
    }
    while (atomic_load(stopped) == 0) {
        usleep(100);
    }
    snprintf(word, sizeof word, "rank %d stayed silent", victim);
    cclResult_t result = cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL);
    /* First of all: nothing else ends a stopped process. */
    if (atomic_fetch_add(arrived, 1) == ranks - 2) {
        CHECK(kill(atomic_load(stopped), SIGCONT) == 0);
    }
    REFUSED(cclTimeout, word, result);
    OK(cclCommDestroy(comm));
}

/* It decides what all ranks report, so that each must find out for itself. */
static void stopped_rank_0(cclUniqueId id, int ranks, int rank) {
    stopped_rank(id, ranks, rank, 0);
}

static void stopped_rank_2(cclUniqueId id, int ranks, int rank) {
    stopped_rank(id, ranks, rank, 2);
}

/* What a rank sent before its end is all that the others need of it, though they come a little later. */
static void end_after_the_last_call(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (rank > 0) {
        usleep(50 * 1000);
    }
    cclResult_t result = cclBcast(data, COUNT, cclInt32, 0, comm, NULL);
    if (rank == 0) {
        OK(result);
        _exit(0);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    long ms = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
    /* On a machine that is slow today it may count as a call made long after the loss. */
    CHECK(result == cclSuccess || ms >= 200);
    OK(cclCommDestroy(comm));
}

static void missing_rank(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = 500;
    if (rank == 1) {
        return;
    }
    EXPECT(cclTimeout, cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    CHECK(comm == NULL && strstr(cclGetLastError(NULL), "1") != NULL);
}

/* From here on this process can make no shared memory, or can again. */
static void set_most_shared(rlim_t most) {
    struct rlimit limit = {most, RLIM_INFINITY};
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Rank 1 fails by itself, long before the deadline: the others hear why, also one that comes later. */
static void rank_that_cannot_join(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    if (rank == 1) {
        set_most_shared(0);
        REFUSED(cclSystemError, "shared memory", cclCommInitRank(&comm, ranks, id, rank));
        set_most_shared(RLIM_INFINITY);
        return;
    }
    usleep(rank * 100 * 1000);
    REFUSED(cclRemoteError, " cannot join: ", cclCommInitRank(&comm, ranks, id, rank));
    CHECK(strstr(cclGetLastError(NULL), "rank 1 on ") && strstr(cclGetLastError(NULL), "shared memory"));
}

static void rank_that_cannot_split(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = init(id, ranks, rank, 60000), part = NULL;
    if (rank == 1) {
        set_most_shared(0);
        REFUSED(cclSystemError, "shared memory", cclCommSplit(comm, 0, rank, &part, NULL));
        set_most_shared(RLIM_INFINITY);
    } else {
        usleep(rank * 50 * 1000);
        REFUSED(cclRemoteError, "rank 1 on ", cclCommSplit(comm, 0, rank, &part, NULL));
        CHECK(strstr(cclGetLastError(comm), "shared memory") != NULL);
    }
    CHECK(part == NULL);
    OK(cclAllReduce(data, data, COUNT, cclInt32, cclSum, comm, NULL));
    /* In a group the operations are carried out all the same. */
    int one = 1, sum = 0;
    OK(cclGroupStart());
    OK(cclCommSplit(comm, 0, rank, &part, NULL));
    OK(cclAllReduce(&one, &sum, 1, cclInt32, cclSum, comm, NULL));
    if (rank == 1) {
        set_most_shared(0);
        REFUSED(cclSystemError, "shared memory", cclGroupEnd());
        set_most_shared(RLIM_INFINITY);
    } else {
        REFUSED(cclRemoteError, "rank 1 on ", cclGroupEnd());
    }
    CHECK(part == NULL && sum == ranks);
    CHECK(strstr(cclGetLastError(comm), "shared memory") != NULL);
    OK(cclCommDestroy(comm));
}

static int run(int ranks, void (*work)(cclUniqueId id, int ranks, int rank)) {
    atomic_store(arrived, 0);
    atomic_store(stopped, 0);
    return run_ranks(ranks, work);
}

int main(void) {
    int failed = 0;
    void *shared = mmap(NULL, 2 * sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    arrived = (atomic_int *)shared;
    stopped = arrived + 1;
    failed += run(3, abort_by_rank_1);
    failed += run(3, late_in_another_communicator);
    failed += run(2, no_descriptors_for_a_while);
    failed += MAY_LIMIT_MEMORY ? run(2, no_memory) : 0;
    failed += run(3, abort_from_another_thread);
    failed += run(2, calls_that_differ);
    failed += run(2, silent_rank);
    failed += run(2, stopped_leader);
    failed += run(2, revoke_beside_a_stopped_leader);
    failed += run(2, killed_rank);
    failed += run(4, stopped_rank_0);
    failed += run(5, stopped_rank_2);
    failed += run(2, end_after_the_last_call);
    failed += run(2, missing_rank);
    failed += run(3, rank_that_cannot_join);
    failed += run(3, rank_that_cannot_split);
    return failed != 0;
}
