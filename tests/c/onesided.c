/* Ranks whose calls differ so that each only sends, or has nothing to do: all come to the end of that call, and are told both
 * sides of it by their next call, or when they finalize. */
#include "ranks.h"
#include <stdatomic.h>
#include <sys/mman.h>

enum { LARGE = 300000, MOST = 4 };

static const char *transport;
static size_t count;
static int good;      /* calls before */
static int innocent;  /* what is called after */
static int finalizes; /* instead */

/* What the last rank does otherwise than the rest. */
static enum {
    BROADCAST,
    REDUCE,
    GATHER,
    SCATTER,
    NO_BROADCAST,
    NO_ALL_REDUCE,
    NO_GATHER,
    SEND,
    KINDS
} kind;

/* In memory that all ranks share: how many have come to a place. */
static atomic_int *arrived;

static void meet(int place, int ranks) {
    atomic_fetch_add(&arrived[place], 1);
    while (atomic_load(&arrived[place]) < ranks) {
        usleep(100);
    }
}

static float in[LARGE * MOST], out[LARGE * MOST];

/* Whoever is to send nothing is the one that waits. */
static cclResult_t differ(cclComm_t comm, int ranks, int rank) {
    int odd = rank == ranks - 1, root = odd ? rank : 0;
    size_t some = odd ? 0 : count;
    switch (kind) {
    case BROADCAST:
        return cclBcast(in, count, cclFloat, root, comm, NULL);
    case REDUCE: /* each takes the other for the root */
        return cclReduce(in, out, count, cclFloat, cclSum, odd ? 0 : ranks - 1, comm, NULL);
    case GATHER:
        return cclGather(in, out, count, cclFloat, odd ? 0 : ranks - 1, comm, NULL);
    case SCATTER:
        return cclScatter(in, out, count, cclFloat, root, comm, NULL);
    case NO_BROADCAST:
        return cclBcast(in, some, cclFloat, 0, comm, NULL);
    case NO_ALL_REDUCE:
        return cclAllReduce(in, out, some, cclFloat, cclSum, comm, NULL);
    case NO_GATHER: /* the root has none */
        return cclGather(in, out, some, cclFloat, ranks - 1, comm, NULL);
    default:
        return odd ? cclSend(in, 10, cclFloat, 0, comm, NULL) : cclBcast(in, 10, cclFloat, 0, comm, NULL);
    }
}

static cclResult_t call(cclComm_t comm) {
    switch (innocent) {
    case 0:
        return cclAllReduce(in, out, 10, cclFloat, cclSum, comm, NULL);
    case 1:
        return cclBarrier(comm, NULL);
    default:
        return cclAllGather(in, out, count, cclFloat, comm, NULL);
    }
}

static void both_sides(cclComm_t comm, int ranks) {
    static const char *const names[] = {"broadcast", "reduce",    "gather", "scatter",
                                        "broadcast", "allreduce", "gather", "broadcast"};
    const char *text = cclGetLastError(comm);
    char first[64], side[32], ours[16];
    sprintf(first, "call #%d %s(", good, names[kind]);
    int found = strstr(text, "calls differ") != NULL && strstr(text, first) != NULL;
    if (kind <= SCATTER) {
        sprintf(side, "root %d)", ranks - 1);
        sprintf(ours, "root %d)", 0);
        found = found && strstr(text, side) != NULL && strstr(text, ours) != NULL;
    } else if (kind != SEND) {
        sprintf(side, "(%zu x float32", count);
        found = found && strstr(text, side) != NULL && strstr(text, "(0 x float32") != NULL;
    }
    if (!found) {
        fprintf(stderr, "kind %d, %d ranks, %zu elements, %d good, then %d, finalized %d, transport %s: %s\n", kind,
                ranks, count, good, innocent, finalizes, transport ? transport : "any", text);
    }
    CHECK(found);
}

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclResult_t result;
    config.timeout = 90000;
    config.transport = transport;
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    for (int i = 0; i < good; i++) {
        OK(cclAllReduce(in, out, 5, cclFloat, cclSum, comm, NULL));
    }
    /* A rank that is told of a difference gives up the call that it is in, a good one too. */
    meet(0, ranks);
    result = differ(comm, ranks, rank);
    if (finalizes) {
        /* Now both have made their calls. */
        meet(1, ranks);
        EXPECT(cclInvalidUsage, cclCommFinalize(comm));
    } else if (result == cclSuccess) {
        EXPECT(cclInvalidUsage, call(comm));
    } else {
        EXPECT(cclInvalidUsage, result);
    }
    both_sides(comm, ranks);
    OK(cclCommDestroy(comm));
}

int main(void) {
    int failed = 0;
    void *memory = mmap(NULL, 2 * sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    arrived = (atomic_int *)memory;
    for (int which = 0; which < KINDS * 8; which++) {
        kind = which % KINDS;
        transport = which / KINDS % 2 == 0 ? NULL : "tcp";
        finalizes = which / KINDS / 2 % 2;
        count = which / KINDS / 4 == 0 ? 10 : LARGE;
        good = which % 3 == 0 ? 1000 : which % 3;
        innocent = which % 5 % 3;
        /* Long messages wait for who is to receive them, so that all are told by that call. */
        if (count == LARGE && (kind < NO_BROADCAST || kind > NO_GATHER)) {
            continue;
        }
        atomic_store(&arrived[0], 0);
        atomic_store(&arrived[1], 0);
        /* Of more ranks some come to their end before others have compared their calls. */
        failed += run_ranks(finalizes || which % 2 == 0 ? 2 : MOST, work);
    }
    return failed != 0;
}
