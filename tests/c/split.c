/* Communicators made of another one, and of one process's threads. */
#include "ranks.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>

enum { THREADS = 5, MANY = 1000, WARM = 100 };

/* The communicator works: the sum over its ranks of `mine` is `sum`. */
static void sums(cclComm_t comm, int mine, int sum) {
    int got = -1;
    OK(cclAllReduce(&mine, &got, 1, cclInt, cclSum, comm, NULL));
    CHECK(got == sum);
}

static void is(cclComm_t comm, int ranks, int rank) {
    int value = -1;
    OK(cclCommCount(comm, &value));
    CHECK(value == ranks);
    OK(cclCommUserRank(comm, &value));
    CHECK(value == rank);
}

/* Of 4 ranks: even ones in the opposite order, rank 1 alone, rank 3 not at all. */
static void colors(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, part, twin;
    int color = rank == 3 ? CCL_SPLIT_NOCOLOR : rank % 2;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    part = comm;
    OK(cclCommSplit(comm, color, -rank, &part, NULL));
    OK(cclCommDup(comm, &twin, NULL));
    is(twin, 4, rank);
    if (rank == 3) {
        CHECK(part == NULL);
    } else if (rank == 1) {
        is(part, 1, 0);
        sums(part, 7, 7);
    } else {
        is(part, 2, rank == 0 ? 1 : 0);
        sums(part, rank, 2);
    }
    sums(comm, rank, 6);
    OK(cclCommDestroy(comm));
    sums(twin, rank, 6);
    if (part != NULL) {
        sums(part, 0, 0);
        OK(cclCommFinalize(part));
        REFUSED(cclInvalidUsage, "finalized", cclCommDup(part, &comm, NULL));
        CHECK(comm == NULL);
        OK(cclCommDestroy(part));
    }
    OK(cclCommDestroy(twin));
}

/* Bad arguments have their results and texts, and leave the communicator as good as before. */
static void arguments(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, none;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    none = comm;
    REFUSED(cclInvalidArgument, "color is -2: it must be 0 or more, or CCL_SPLIT_NOCOLOR (-1)",
            cclCommSplit(comm, -2, 0, &none, NULL));
    CHECK(none == NULL);
    REFUSED(cclInvalidArgument, "color is -2147483648", cclCommSplit(comm, INT_MIN, 0, &none, NULL));
    REFUSED(cclInvalidArgument, "newcomm is NULL", cclCommSplit(comm, 0, 0, NULL, NULL));
    REFUSED(cclInvalidArgument, "newcomm is NULL", cclCommDup(comm, NULL, NULL));
    config.timeout = 0;
    REFUSED(cclInvalidArgument, "0 milliseconds", cclCommSplit(comm, 0, 0, &none, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.size = 3;
    REFUSED(cclInvalidArgument, "CCL_CONFIG_INITIALIZER", cclCommDup(comm, &none, &config));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.transport = "pigeon";
    REFUSED(cclInvalidUsage, "pigeon", cclCommDup(comm, &none, &config));
    none = comm;
    REFUSED(cclInvalidArgument, "handle is NULL", cclCommSplit(NULL, 0, 0, &none, NULL));
    CHECK(none == NULL);
    none = comm;
    REFUSED(cclInvalidArgument, "never was one", cclCommDup((cclComm_t)&config, &none, NULL));
    CHECK(none == NULL);
    /* What is valid, at the ends of what there is. */
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.algorithm = "ring";
    OK(cclCommSplit(comm, INT_MAX, rank == 0 ? INT_MAX : INT_MIN, &none, &config));
    is(none, ranks, ranks - 1 - rank);
    sums(none, 1, ranks);
    OK(cclCommDestroy(none));
    sums(comm, 1, ranks);
    OK(cclCommDestroy(comm));
}

static int entries(const char *folder) {
    DIR *directory = opendir(folder);
    int count = 0;
    CHECK(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static int lines(const char *path) {
    FILE *file = fopen(path, "r");
    int count = 0, c;
    CHECK(file != NULL);
    while ((c = getc(file)) != EOF) {
        count += c == '\n';
    }
    fclose(file);
    return count;
}

/* Split after split leaves nothing: no descriptor, no mapping. */
static void many(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm, part;
    int descriptors = 0, mappings = 0;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    for (int i = 0; i < MANY; i++) {
        int color = i % 3 == 0 ? rank == 0 : i % 3 == 1 ? 7 : CCL_SPLIT_NOCOLOR;
        OK(cclCommSplit(comm, color, i % 2 == 0 ? rank : -rank, &part, NULL));
        if (part != NULL) {
            int size = -1;
            OK(cclCommCount(part, &size));
            sums(part, 1, size);
            OK(cclCommDestroy(part));
        }
        if (i == WARM) {
            descriptors = entries("/proc/self/fd");
            mappings = lines("/proc/self/maps");
        }
    }
    /* What was left a moment ago may still be on its way out; the alarm ends a wait in vain. */
#ifdef __SANITIZE_ADDRESS__
    mappings = INT_MAX / 2; /* the sanitizer keeps what is freed, in mappings of its own */
#endif
    while (entries("/proc/self/fd") > descriptors || lines("/proc/self/maps") > mappings + 8) {
        usleep(1000);
    }
    sums(comm, rank, 3);
    OK(cclCommDestroy(comm));
}

static int victim;

static void *kill_soon(void *microseconds) {
    usleep(*(useconds_t *)microseconds);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* One rank is killed while all split, anywhere in it; all others are told which. */
static void killed(cclUniqueId id, int ranks, int rank) {
    static useconds_t soon;
    char word[32];
    cclComm_t comm, part;
    cclResult_t result;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = 60000;
    snprintf(word, sizeof word, "rank %d", victim);
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    sums(comm, 1, ranks);
    if (rank == victim) {
        pthread_t thread;
        soon = (useconds_t)(getpid() % 97) * 200;
        CHECK(pthread_create(&thread, NULL, kill_soon, &soon) == 0);
    }
    while ((result = cclCommSplit(comm, 0, 0, &part, NULL)) == cclSuccess) {
        OK(cclCommDestroy(part));
    }
    REFUSED(cclRemoteError, word, result);
    CHECK(part == NULL);
    /* The parent has lost the rank, too. (The same call again: another rank may have got its answer just before.) */
    REFUSED(cclRemoteError, word, cclCommSplit(comm, 0, 0, &part, NULL));
    OK(cclCommDestroy(comm));
}

static void *reduce(void *comm) {
    sums(comm, 1, THREADS);
    return NULL;
}

/* All ranks are threads of this process. */
static void all(cclUniqueId id, int ranks, int rank) {
    cclComm_t comms[THREADS];
    pthread_t threads[THREADS];
    struct rlimit limit, few;
    int device = 0, none[2] = {INT_MAX, INT_MAX};
    (void)id, (void)ranks, (void)rank;
    OK(cclCommInitAll(comms, THREADS, NULL));
    for (int i = 0; i < THREADS; i++) {
        is(comms[i], THREADS, i);
        CHECK(pthread_create(&threads[i], NULL, reduce, comms[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        OK(cclCommDestroy(comms[i]));
    }
    OK(cclCommInitAll(comms, 1, NULL));
    sums(comms[0], 7, 7);
    REFUSED(cclInvalidUsage, "no CUDA device", cclCommCuDevice(comms[0], &device));
    REFUSED(cclInvalidArgument, "handle is NULL", cclCommCuDevice(NULL, &device));
    REFUSED(cclInvalidArgument, "device is NULL", cclCommCuDevice(comms[0], NULL));
    OK(cclCommDestroy(comms[0]));

    REFUSED(cclInvalidArgument, "comms is NULL", cclCommInitAll(NULL, 2, NULL));
    REFUSED(cclInvalidArgument, "ndev is -1", cclCommInitAll(comms, -1, NULL));
    REFUSED(cclInvalidArgument, "0 ranks", cclCommInitAll(comms, 0, NULL));
    REFUSED(cclInvalidArgument, "2147483647 ranks", cclCommInitAll(comms, INT_MAX, NULL));
    comms[0] = comms[1] = (cclComm_t)&device;
    /* There is no driver, or no such device. */
    CHECK(cclCommInitAll(comms, 2, none) != cclSuccess);
    CHECK(strstr(cclGetLastError(NULL), "CUDA") != NULL);
    CHECK(comms[0] == NULL && comms[1] == NULL);
    /* Where one rank fails the others do not wait for it: the deadline is far behind the alarm. */
    comms[0] = comms[THREADS - 1] = (cclComm_t)&device;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    few = limit;
    few.rlim_cur = (rlim_t)entries("/proc/self/fd") + 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(cclCommInitAll(comms, THREADS, NULL) != cclSuccess);
    CHECK(strstr(cclGetLastError(NULL), "open files") != NULL);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(comms[i] == NULL);
    }
    OK(cclCommInitAll(comms, 2, NULL));
    OK(cclCommDestroy(comms[1]));
    OK(cclCommDestroy(comms[0]));
}

int main(void) {
    int failed = 0;
    failed += run_ranks(4, colors);
    failed += run_ranks(2, arguments);
    failed += run_ranks(3, many);
    for (int round = 0; round < 8; round++) {
        victim = round % 3;
        failed += run_ranks(3, killed) != 1;
    }
    failed += run_ranks(1, all);
    return failed != 0;
}
