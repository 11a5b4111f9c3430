/* Reduce, all-gather, reduce-scatter, gather, scatter and all-to-all between 5 forked processes: every root, many counts,
   in place and out of place, aligned and not, with what a rank does not use at NULL or nowhere. */
#include "ranks.h"

enum { RANKS = 5, LARGEST = 20001, GUARD = 16, ROOM = RANKS * LARGEST * 4 + 2 * GUARD };

static const size_t COUNTS[] = {0, 1, 2, 5, 1000, LARGEST};
static const unsigned char UNTOUCHED = 0x5a;

static unsigned char sent[ROOM], received[ROOM], before[ROOM];
static cclComm_t comm;
static int ranks, me;

/* Where a rank's buffer may be that it does not use. */
static void *const UNUSED[] = {NULL, (void *)(uintptr_t)1};
enum { NOWHERES = sizeof UNUSED / sizeof *UNUSED };

/* Element i of a rank's vector: no two are alike, and a sum in which one is lost or doubled is another. */
static int32_t element(int rank, size_t i) { return (int32_t)((1u << (20 + rank)) + i); }

static int32_t sum(size_t i) {
    int32_t all = 0;
    for (int rank = 0; rank < ranks; rank++) {
        all += element(rank, i);
    }
    return all;
}

static void clear(void) {
    memset(sent, UNTOUCHED, ROOM);
    memset(received, UNTOUCHED, ROOM);
}

/* Elements [begin, end) of this rank's vector, the first of them at `place`. */
static void put(unsigned char *place, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        int32_t x = element(me, i);
        memcpy(place + (i - begin) * sizeof x, &x, sizeof x);
    }
}

static int32_t get(const unsigned char *place, size_t i) {
    int32_t x;
    memcpy(&x, place + i * sizeof x, sizeof x);
    return x;
}

/* Checks that of a buffer, which was as `before`, nothing but `bytes` from `place` on has been written. */
static void check_rest(const unsigned char *buffer, const unsigned char *place, size_t bytes) {
    size_t begin = (size_t)(place - buffer), end = begin + bytes;
    CHECK(memcmp(buffer, before, begin) == 0 && memcmp(buffer + end, before + end, ROOM - end) == 0);
}

static void remember(const unsigned char *buffer) { memcpy(before, buffer, ROOM); }

/* Blocks are `count` elements; all begins are `shift` bytes past an aligned address. */

static void reduce(size_t count, size_t shift, int root, void *unused) {
    unsigned char *send = sent + shift, *recv = received + shift;
    clear();
    put(send, 0, count);
    remember(sent);
    OK(cclReduce(send, me == root ? recv : unused, count, cclInt32, cclSum, root, comm, NULL));
    check_rest(sent, sent, 0);
    for (size_t i = 0; me == root && i < count; i++) {
        CHECK(get(recv, i) == sum(i));
    }
    memset(before, UNTOUCHED, ROOM);
    check_rest(received, recv, me == root ? count * 4 : 0);
    /* In place on the root; elsewhere too the pointers may be the same, and what is there stays. */
    put(recv, 0, count);
    remember(received);
    OK(cclReduce(recv, recv, count, cclInt32, cclSum, root, comm, NULL));
    check_rest(received, recv, me == root ? count * 4 : 0);
    for (size_t i = 0; me == root && i < count; i++) {
        CHECK(get(recv, i) == sum(i));
    }
}

static void check_gathered(const unsigned char *recv, size_t count) {
    for (int rank = 0; rank < ranks; rank++) {
        for (size_t i = (size_t)rank * count; i < (size_t)(rank + 1) * count; i++) {
            CHECK(get(recv, i) == element(rank, i));
        }
    }
}

static void gather(size_t count, size_t shift, int root, void *unused) {
    unsigned char *send = sent + shift, *recv = received + shift;
    size_t begin = (size_t)me * count, bytes = (size_t)ranks * count * 4;
    clear();
    put(send, begin, begin + count);
    remember(received);
    OK(cclGather(send, me == root ? recv : unused, count, cclInt32, root, comm, NULL));
    check_rest(received, recv, me == root ? bytes : 0);
    if (me == root) {
        check_gathered(recv, count);
    }
    clear();
    put(recv + begin * 4, begin, begin + count);
    remember(received);
    OK(cclGather(recv + begin * 4, recv, count, cclInt32, root, comm, NULL));
    check_rest(received, recv, me == root ? bytes : 0);
    if (me == root) {
        check_gathered(recv, count);
    }
}

static void scatter(size_t count, size_t shift, int root, void *unused) {
    unsigned char *send = sent + shift, *recv = received + shift, *place;
    size_t begin = (size_t)me * count;
    clear();
    put(send, 0, (size_t)ranks * count);
    remember(sent);
    OK(cclScatter(me == root ? send : unused, recv, count, cclInt32, root, comm, NULL));
    check_rest(sent, sent, 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(get(recv, i) == element(root, begin + i));
    }
    memset(before, UNTOUCHED, ROOM);
    check_rest(received, recv, count * 4);
    /* In place on the root, and with the same pointers elsewhere. */
    place = send + begin * 4;
    remember(sent);
    OK(cclScatter(send, place, count, cclInt32, root, comm, NULL));
    check_rest(sent, place, count * 4);
    for (size_t i = 0; i < count; i++) {
        CHECK(get(place, i) == element(root, begin + i));
    }
}

static void all_gather(size_t count, size_t shift) {
    unsigned char *send = sent + shift, *recv = received + shift;
    size_t begin = (size_t)me * count, bytes = (size_t)ranks * count * 4;
    clear();
    put(send, begin, begin + count);
    remember(sent);
    OK(cclAllGather(send, recv, count, cclInt32, comm, NULL));
    check_rest(sent, sent, 0);
    check_gathered(recv, count);
    clear();
    put(recv + begin * 4, begin, begin + count);
    remember(received);
    OK(cclAllGather(recv + begin * 4, recv, count, cclInt32, comm, NULL));
    check_rest(received, recv, bytes);
    check_gathered(recv, count);
}

static void reduce_scatter(size_t count, size_t shift) {
    unsigned char *send = sent + shift, *recv = received + shift, *place;
    size_t begin = (size_t)me * count;
    clear();
    put(send, 0, (size_t)ranks * count);
    remember(sent);
    OK(cclReduceScatter(send, recv, count, cclInt32, cclSum, comm, NULL));
    check_rest(sent, sent, 0);
    memset(before, UNTOUCHED, ROOM);
    check_rest(received, recv, count * 4);
    for (size_t i = 0; i < count; i++) {
        CHECK(get(recv, i) == sum(begin + i));
    }
    place = send + begin * 4;
    remember(sent);
    OK(cclReduceScatter(send, place, count, cclInt32, cclSum, comm, NULL));
    check_rest(sent, place, count * 4);
    for (size_t i = 0; i < count; i++) {
        CHECK(get(place, i) == sum(begin + i));
    }
}

static void check_swapped(const unsigned char *recv, size_t count) {
    for (int rank = 0; rank < ranks; rank++) {
        for (size_t i = 0; i < count; i++) {
            CHECK(get(recv, (size_t)rank * count + i) == element(rank, (size_t)me * count + i));
        }
    }
}

static void all_to_all(size_t count, size_t shift) {
    unsigned char *send = sent + shift, *recv = received + shift;
    size_t all = (size_t)ranks * count;
    clear();
    put(send, 0, all);
    remember(sent);
    OK(cclAlltoAll(send, recv, count, cclInt32, comm, NULL));
    check_rest(sent, sent, 0);
    check_swapped(recv, count);
    OK(cclAlltoAll(send, send, count, cclInt32, comm, NULL));
    check_rest(sent, send, all * 4);
    check_swapped(send, count);
}

static void work(cclUniqueId id, int n, int rank) {
    ranks = n, me = rank;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
        for (size_t shift = 0; shift < 4; shift += 3) {
            for (int root = 0; root < ranks; root++) {
                void *unused = UNUSED[(c + (size_t)root) % NOWHERES];
                reduce(COUNTS[c], shift, root, unused);
                gather(COUNTS[c], shift, root, unused);
                scatter(COUNTS[c], shift, root, unused);
            }
            all_gather(COUNTS[c], shift);
            reduce_scatter(COUNTS[c], shift);
            all_to_all(COUNTS[c], shift);
        }
    }
    for (int root = 0; root < ranks; root++) {
        OK(cclReduce(NULL, NULL, 0, cclDouble, cclMax, root, comm, NULL));
        OK(cclGather(NULL, NULL, 0, cclDouble, root, comm, NULL));
        OK(cclScatter(NULL, NULL, 0, cclDouble, root, comm, NULL));
    }
    OK(cclAllGather(NULL, NULL, 0, cclDouble, comm, NULL));
    OK(cclReduceScatter(NULL, NULL, 0, cclDouble, cclMax, comm, NULL));
    OK(cclAlltoAll(NULL, NULL, 0, cclDouble, comm, NULL));
    OK(cclCommDestroy(comm));
}

int main(void) { return run_ranks(1, work) + run_ranks(2, work) + run_ranks(RANKS, work) != 0; }
