/* Where the system's limits are too small the program gets an error that names the limit, and goes on. */
#include "ranks.h"
#include <sys/resource.h>

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* Shared memory counts as a file. */
static void memory(cclUniqueId id, int ranks, int rank) {
    static int data[100000];
    void *allocation = &allocation;
    cclComm_t comm;
    cclResult_t result;
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit_files(100 << 10);
    REFUSED(cclSystemError, "ulimit -f", cclMemAlloc(&allocation, 1 << 20));
    CHECK(allocation == NULL);
    result = cclCommInitRank(&comm, ranks, id, rank);
    if (result == cclSuccess) {
        result = cclAllReduce(data, data, 100000, cclInt, cclSum, comm, NULL);
    }
    CHECK(result != cclSuccess && strstr(cclGetLastError(comm), "ulimit -f") != NULL);
    OK(cclCommDestroy(comm));
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    OK(cclMemAlloc(&allocation, 1 << 20));
    OK(cclMemFree(allocation));
}

int main(void) { return run_ranks(2, memory) != 0; }
