/* Ranks whose calls differ: each of them is told both calls, whatever differs, at the first call and later. */
#include "ranks.h"
#include <stdatomic.h>
#include <sys/mman.h>

enum { LARGE = 300000 };

static const char *algorithm;
static size_t count;
static int good; /* calls before */

/* In memory that all ranks share: how many have made the good calls. */
static atomic_int *arrived;

/* What one rank, `odd`, does otherwise than the rest. */
static enum { OPERATION, TYPE, COUNT, COLLECTIVE, KINDS } kind;

static void work(cclUniqueId id, int ranks, int rank) {
    static float send[LARGE + 1], recv[LARGE + 1];
    cclComm_t comm;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclResult_t result = cclSuccess;
    const char *text;
    int odd = rank == ranks - 1;
    config.timeout = 60000;
    config.algorithm = algorithm;
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    for (int i = 0; i < good; i++) {
        OK(cclAllReduce(send, recv, 5, cclFloat, cclSum, comm, NULL));
    }
    /* A rank that is told of a difference gives up the call that it is in, a good one too. */
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < ranks) {
        usleep(100);
    }
    if (kind == COLLECTIVE && odd) {
        result = cclBcast(recv, count, cclFloat, 0, comm, NULL);
    } else {
        result = cclAllReduce(send, recv, count + (kind == COUNT && odd), kind == TYPE && odd ? cclInt : cclFloat,
                              kind == OPERATION && odd ? cclMax : cclSum, comm, NULL);
    }
    /* A broadcast's root is done before it can know; its next call fails. */
    if (result == cclSuccess) {
        result = cclAllReduce(send, recv, count, cclFloat, cclSum, comm, NULL);
    }
    EXPECT(cclInvalidUsage, result);
    text = cclGetLastError(comm);
    CHECK(strstr(text, "differ") != NULL);
    CHECK(strstr(text, kind == COLLECTIVE  ? "broadcast("
                       : kind == OPERATION ? ", max)"
                       : kind == TYPE      ? "x int32"
                                           : "1 x float32") != NULL);
    CHECK(strstr(text, " x float32, sum)") != NULL);
    OK(cclCommDestroy(comm));
}

int main(void) {
    static const char *const algorithms[] = {NULL, "ring", "direct"};
    int failed = 0, which;
    void *memory = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    arrived = (atomic_int *)memory;
    for (which = 0; which < KINDS * 3 * 2; which++) {
        kind = which % KINDS;
        algorithm = algorithms[which / KINDS % 3];
        count = which / KINDS / 3 == 0 ? 10 : LARGE;
        good = which % 5 == 0 ? 1000 : 0;
        atomic_store(arrived, 0);
        failed += run_ranks(which % 2 == 0 ? 3 : 2, work);
    }
    return failed != 0;
}
