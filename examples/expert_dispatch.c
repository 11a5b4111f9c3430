/*
 * A mixture of experts: each rank is an expert and has tokens, each for one of the experts. Counts are exchanged by
 * all-to-all, then tokens by all-to-all-v: there, through the expert, and back.
 */
#include "ranks.h"

enum { WIDTH = 16, TOKENS = 100 };

static float *room(size_t count) {
    float *floats = (float *)malloc((count > 0 ? count : 1) * sizeof *floats);
    check(floats != NULL, "out of memory");
    return floats;
}

/* What expert `rank` makes of an element. */
static float processed(float element, int rank) {
    return element * (float)(rank + 2);
}

/* Where each block begins if they lie one after the other; returns the length of all. */
static size_t place(const size_t *counts, size_t *displs, int ranks) {
    size_t end = 0;
    for (int r = 0; r < ranks; r++) {
        displs[r] = end;
        end += counts[r];
    }
    return end;
}

static void dispatch(cclComm_t comm) {
    int rank, ranks;
    must(cclCommUserRank(comm, &rank));
    must(cclCommCount(comm, &ranks));
    int tokens = TOKENS + rank; /* each rank has another number of them */

    /* The router, and how many elements go to each expert. */
    int *experts = (int *)malloc((size_t)tokens * sizeof *experts);
    size_t *counts = (size_t *)calloc((size_t)ranks * 5, sizeof *counts);
    check(experts && counts, "out of memory");
    size_t *send_counts = counts, *send_displs = counts + ranks, *recv_counts = counts + 2 * ranks,
           *recv_displs = counts + 3 * ranks, *next = counts + 4 * ranks;
    for (int t = 0; t < tokens; t++) {
        experts[t] = (t * t + rank) % ranks;
        send_counts[experts[t]] += WIDTH;
    }

    /* How many elements come from each rank. */
    must(cclAlltoAll(send_counts, recv_counts, 1, cclUint64, comm, NULL));
    size_t sent = place(send_counts, send_displs, ranks), received = place(recv_counts, recv_displs, ranks);
    float *ours = room(sent), *theirs = room(received), *back = room(sent);

    /* Tokens lie in the order of their experts. */
    place(send_counts, next, ranks);
    for (int t = 0; t < tokens; t++) {
        float *token = ours + next[experts[t]];
        for (int i = 0; i < WIDTH; i++) token[i] = number((unsigned)((rank * 2 * TOKENS + t) * WIDTH + i));
        next[experts[t]] += WIDTH;
    }

    must(cclAlltoAllV(ours, send_counts, send_displs, theirs, recv_counts, recv_displs, cclFloat, comm, NULL));
    for (size_t i = 0; i < received; i++) theirs[i] = processed(theirs[i], rank);
    must(cclAlltoAllV(theirs, recv_counts, recv_displs, back, send_counts, send_displs, cclFloat, comm, NULL));

    /* Each token lies where it was. */
    place(send_counts, next, ranks);
    for (int t = 0; t < tokens; t++) {
        const float *token = back + next[experts[t]];
        for (int i = 0; i < WIDTH; i++) {
            float was = number((unsigned)((rank * 2 * TOKENS + t) * WIDTH + i));
            check(token[i] == processed(was, experts[t]), "a token came back wrong");
        }
        next[experts[t]] += WIDTH;
    }

    must(cclBarrier(comm, NULL)); /* all ranks' tokens are right */
    if (rank == 0) printf("%d experts: all tokens came back; expert 0 had %zu\n", ranks, received / WIDTH);
    free(ours), free(theirs), free(back), free(counts), free(experts);
    must(cclCommDestroy(comm));
}

int main(void) {
    return run_ranks(4, dispatch);
}
