/* Barriers between 5 forked processes: none is over before all have begun, also where the ranks come at different times. */
#include "ranks.h"
#include <stdatomic.h>
#include <sys/mman.h>

enum { ROUNDS = 300 };

/* In memory that all ranks share: how many times a rank has come. */
static atomic_int *arrived;

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    int sum = rank;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    REFUSED(cclInvalidArgument, "stream", cclBarrier(comm, &sum));
    REFUSED(cclInvalidArgument, "handle is NULL", cclBarrier(NULL, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        if (round % ranks == rank) {
            usleep(200);
        }
        atomic_fetch_add(arrived, 1);
        OK(cclBarrier(comm, NULL));
        /* The others may be in the next round already, but not beyond it. */
        CHECK(atomic_load(arrived) >= (round + 1) * ranks);
        CHECK(atomic_load(arrived) < (round + 2) * ranks);
    }
    /* Other calls go on as before. */
    OK(cclAllReduce(&sum, &sum, 1, cclInt, cclSum, comm, NULL));
    CHECK(sum == ranks * (ranks - 1) / 2);
    OK(cclBarrier(comm, NULL));
    OK(cclCommDestroy(comm));
    REFUSED(cclInvalidArgument, "was destroyed", cclBarrier(comm, NULL));
}

int main(void) {
    void *memory = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    arrived = (atomic_int *)memory;
    return run_ranks(5, work) != 0;
}
