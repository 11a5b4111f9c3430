/* The V forms between 5 forked processes: blocks of any lengths, in any order and with gaps, aligned and not, in place by
   pointers, with what a rank does not use at NULL or nowhere; in groups and streams; refusals. */
#include "ranks.h"

enum { RANKS = 5, LARGEST = 30000, ROOM = (RANKS * (LARGEST + 2) + 2) * 4 };

static const unsigned char UNTOUCHED = 0x5a;

static unsigned char sent[ROOM], received[ROOM], wanted[ROOM];
static cclComm_t comm;
static int ranks, me;
static size_t scale;

/* What the ranks send to each other: also nothing, and never the same both ways. */
static size_t length(int from, int to) { return (size_t)((from * 3 + to * 2 + 1) % 5) * scale; }

/* Element i of what `from` has for `to`: a sum in which one is lost or doubled is another. */
static int32_t element(int from, int to, size_t i) {
    return (int32_t)((1u << (20 + from)) + (unsigned)to * LARGEST + i);
}

static int32_t sum(int to, size_t i) {
    int32_t all = 0;
    for (int from = 0; from < ranks; from++) {
        all += element(from, to, i);
    }
    return all;
}

typedef struct {
    size_t counts[RANKS], displs[RANKS];
} Blocks;

/* Lays out blocks from the last to the first with an element between, as C passes them. */
static void lay_out(Blocks *blocks) {
    size_t at = 1;
    for (int rank = ranks - 1; rank >= 0; rank--) {
        blocks->displs[rank] = blocks->counts[rank] == 0 ? (size_t)-1 : at;
        at += blocks->counts[rank] + 1;
    }
}

/* What this rank sends to each, gets from each, and what all know alike. */
static Blocks to_each, from_each, of_all;

static void plan(size_t of) {
    scale = of;
    for (int rank = 0; rank < ranks; rank++) {
        to_each.counts[rank] = length(me, rank);
        from_each.counts[rank] = length(rank, me);
        of_all.counts[rank] = length(rank, rank);
    }
    lay_out(&to_each);
    lay_out(&from_each);
    lay_out(&of_all);
}

static void clear(unsigned char *buffer) { memset(buffer, UNTOUCHED, ROOM); }

static void put(unsigned char *place, size_t i, int32_t x) { memcpy(place + i * sizeof x, &x, sizeof x); }

/* Puts what `from` has for each rank (or, with to >= 0, what each has for `to`) where the blocks lie. */
static void fill(unsigned char *buffer, const Blocks *blocks, int from, int to) {
    for (int rank = 0; rank < ranks; rank++) {
        for (size_t i = 0; i < blocks->counts[rank]; i++) {
            put(buffer, blocks->displs[rank] + i, to < 0 ? element(from, rank, i) : element(rank, to, i));
        }
    }
}

static void fill_own(unsigned char *place, int from, int to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put(place, i, element(from, to, i));
    }
}

/* Where this rank's block is. */
static unsigned char *own(unsigned char *buffer, const Blocks *blocks) {
    return blocks->counts[me] == 0 ? buffer : buffer + blocks->displs[me] * 4;
}

#define SAME(buffer) CHECK(memcmp(buffer, wanted, ROOM) == 0)

static void all_to_all(size_t shift, cclStream_t stream) {
    unsigned char *send = sent + shift, *recv = received + shift;
    clear(sent), clear(received), clear(wanted);
    fill(send, &to_each, me, -1);
    fill(wanted + shift, &from_each, 0, me);
    OK(cclAlltoAllV(send, to_each.counts, to_each.displs, recv, from_each.counts, from_each.displs, cclInt32, comm,
                    stream));
}

static void all_gather(size_t shift, cclStream_t stream) {
    unsigned char *recv = received + shift;
    size_t count = of_all.counts[me];
    clear(sent), clear(received), clear(wanted);
    fill_own(sent + shift, me, 0, count);
    fill(wanted + shift, &of_all, 0, 0);
    OK(cclAllGatherV(sent + shift, count, recv, of_all.counts, of_all.displs, cclInt32, comm, stream));
}

static void in_place(size_t shift) {
    unsigned char *send = sent + shift, *recv = received + shift;
    size_t count = of_all.counts[me];
    clear(received), clear(wanted);
    fill_own(own(recv, &of_all), me, 0, count);
    fill(wanted + shift, &of_all, 0, 0);
    OK(cclAllGatherV(own(recv, &of_all), count, recv, of_all.counts, of_all.displs, cclInt32, comm, NULL));
    SAME(received);
    clear(sent), clear(wanted);
    fill(send, &of_all, me, -1);
    fill(wanted + shift, &of_all, me, -1);
    for (size_t i = 0; i < count; i++) {
        put(own(wanted + shift, &of_all), i, sum(me, i));
    }
    OK(cclReduceScatterV(send, of_all.counts, of_all.displs, own(send, &of_all), count, cclInt32, cclSum, comm, NULL));
    SAME(sent);
}

static void reduce_scatter(size_t shift, cclStream_t stream) {
    unsigned char *send = sent + shift;
    size_t count = of_all.counts[me];
    clear(sent), clear(received), clear(wanted);
    fill(send, &of_all, me, -1);
    for (size_t i = 0; i < count; i++) {
        put(wanted + shift, i, sum(me, i));
    }
    OK(cclReduceScatterV(send, of_all.counts, of_all.displs, received + shift, count, cclInt32, cclSum, comm, stream));
}

static void gather(size_t shift, int root) {
    unsigned char *send = sent + shift, *recv = received + shift;
    size_t count = of_all.counts[me];
    void *nowhere = (void *)(uintptr_t)1;
    clear(sent), clear(received), clear(wanted);
    fill_own(send, me, 0, count);
    if (me != root) {
        OK(cclGatherV(send, count, nowhere, NULL, nowhere, cclInt32, root, comm, NULL));
        OK(cclGatherV(send, count, send, NULL, NULL, cclInt32, root, comm, NULL));
    } else {
        fill(wanted + shift, &of_all, 0, 0);
        OK(cclGatherV(send, count, recv, of_all.counts, of_all.displs, cclInt32, root, comm, NULL));
        SAME(received);
        clear(received);
        fill_own(own(recv, &of_all), me, 0, count);
        OK(cclGatherV(own(recv, &of_all), count, recv, of_all.counts, of_all.displs, cclInt32, root, comm, NULL));
    }
    SAME(received);
}

static void scatter(size_t shift, int root) {
    unsigned char *send = sent + shift, *recv = received + shift;
    size_t count = of_all.counts[me];
    void *nowhere = (void *)(uintptr_t)1;
    clear(received), clear(wanted);
    fill_own(wanted + shift, root, me, count);
    if (me != root) {
        OK(cclScatterV(nowhere, NULL, nowhere, recv, count, cclInt32, root, comm, NULL));
        SAME(received);
        clear(received);
        OK(cclScatterV(recv, NULL, NULL, recv, count, cclInt32, root, comm, NULL));
        SAME(received);
    } else {
        clear(sent);
        fill(send, &of_all, me, -1);
        OK(cclScatterV(send, of_all.counts, of_all.displs, recv, count, cclInt32, root, comm, NULL));
        SAME(received);
        memcpy(wanted, sent, ROOM);
        OK(cclScatterV(send, of_all.counts, of_all.displs, own(send, &of_all), count, cclInt32, root, comm, NULL));
        SAME(sent);
    }
}

/* The arrays are the caller's again when a call has returned, whenever it is carried out. */
static void later(void) {
    cclStream_t stream;
    OK(cclGroupStart());
    all_to_all(0, NULL);
    memset(&to_each, 0xff, sizeof to_each), memset(&from_each, 0xff, sizeof from_each);
    OK(cclGroupEnd());
    SAME(received);
    plan(7);
    OK(cclStreamCreate(&stream));
    all_gather(0, stream);
    memset(&of_all, 0xff, sizeof of_all);
    OK(cclStreamSynchronize(stream));
    SAME(received);
    plan(7);
    reduce_scatter(0, stream);
    memset(&of_all, 0xff, sizeof of_all);
    OK(cclStreamSynchronize(stream));
    SAME(received);
    OK(cclStreamDestroy(stream));
}

/* All ranks refuse the same, so that they stay together. */
static void refusals(void) {
    size_t ones[RANKS] = {1, 1, 1, 1, 1}, displs[RANKS] = {0, 1, 2, 3, 4}, same[RANKS] = {0}, huge[RANKS];
    char *far = (char *)received + 16;
    for (int rank = 0; rank < RANKS; rank++) {
        huge[rank] = (size_t)-1;
    }
#define WRONG(word, call) REFUSED(cclInvalidArgument, word, call)
    WRONG("sendcounts is NULL", cclAlltoAllV(sent, NULL, displs, far, ones, displs, cclInt32, comm, NULL));
    WRONG("sdispls is NULL", cclAlltoAllV(sent, ones, NULL, far, ones, displs, cclInt32, comm, NULL));
    WRONG("rdispls is NULL", cclAllGatherV(sent, 1, far, ones, NULL, cclInt32, comm, NULL));
    WRONG("recvcounts is NULL", cclGatherV(sent, 1, far, NULL, displs, cclInt32, me, comm, NULL));
    WRONG("sendbuff is NULL", cclAlltoAllV(NULL, ones, displs, far, ones, displs, cclInt32, comm, NULL));
    WRONG("recvbuff is NULL", cclReduceScatterV(sent, ones, displs, NULL, 1, cclInt32, cclSum, comm, NULL));
    WRONG("never negative", cclScatterV(sent, huge, displs, far, 1, cclInt32, me, comm, NULL));
    WRONG("never negative", cclAlltoAllV(sent, ones, huge, far, ones, displs, cclInt32, comm, NULL));
    WRONG("both counts must be the same", cclAllGatherV(sent, 2, far, ones, displs, cclInt32, comm, NULL));
    WRONG("both counts must be the same",
          cclReduceScatterV(sent, ones, displs, far, 2, cclInt32, cclSum, comm, NULL));
    WRONG("from ranks 0 and 1 overlap", cclAlltoAllV(sent, ones, displs, far, ones, same, cclInt32, comm, NULL));
    WRONG("no form in place", cclAlltoAllV(sent, ones, displs, sent, ones, displs, cclInt32, comm, NULL));
    WRONG("in place this rank's own block", cclAllGatherV(far + 4 * ((me + 1) % ranks), 1, far, ones, displs, cclInt32,
                                                          comm, NULL));
    WRONG("in place this rank's own block", cclReduceScatterV(sent, ones, displs, sent + 4 * me + 2, 1, cclInt32,
                                                              cclSum, comm, NULL));
    WRONG("root is -1", cclGatherV(sent, 1, far, ones, displs, cclInt32, -1, comm, NULL));
    WRONG("outside the communicator", cclScatterV(sent, ones, displs, far, 1, cclInt32, ranks, comm, NULL));
    WRONG("bitor is for integers", cclReduceScatterV(sent, ones, displs, far, 1, cclFloat, cclBitOr, comm, NULL));
    /* Blocks of both may lie in turns in the same memory, and what is sent may lie one over the other. */
    for (int rank = 0; rank < RANKS; rank++) {
        displs[rank] = 2 * (size_t)rank;
    }
    OK(cclAlltoAllV(sent + 4, ones, displs, sent, ones, displs, cclInt32, comm, NULL));
    OK(cclAlltoAllV(sent, ones, same, far, ones, displs, cclInt32, comm, NULL));
}

static void work(cclUniqueId id, int n, int rank) {
    static const size_t SCALES[] = {0, 1, 3, 100, LARGEST / 4};
    static const size_t NONE[RANKS];
    ranks = n, me = rank;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    for (size_t s = 0; s < sizeof SCALES / sizeof *SCALES; s++) {
        plan(SCALES[s]);
        for (size_t shift = 0; shift < 4; shift += 3) {
            all_to_all(shift, NULL);
            SAME(received);
            all_gather(shift, NULL);
            SAME(received);
            reduce_scatter(shift, NULL);
            SAME(received);
            in_place(shift);
            for (int root = 0; root < ranks; root++) {
                gather(shift, root);
                scatter(shift, root);
            }
        }
    }
    plan(7);
    later();
    OK(cclAlltoAllV(NULL, NONE, NONE, NULL, NONE, NONE, cclDouble, comm, NULL));
    OK(cclAllGatherV(NULL, 0, NULL, NONE, NONE, cclDouble, comm, NULL));
    OK(cclReduceScatterV(NULL, NONE, NONE, NULL, 0, cclDouble, cclMax, comm, NULL));
    if (ranks == RANKS) {
        refusals();
    }
    OK(cclCommDestroy(comm));
}

int main(void) { return run_ranks(1, work) + run_ranks(2, work) + run_ranks(RANKS, work) != 0; }
