/* More elements than 32 bits count, between 2 forked processes. The buffers are 4 GiB of addresses over one block of real
   memory, mapped again and again: what a vector holds repeats with that block, whose length is no divisor of 2^32, so that
   an element whose place was cut to 32 bits comes to lie where another belongs. */
#define _GNU_SOURCE
#include "ranks.h"
#include <sys/mman.h>

enum { RANKS = 2, BLOCK = 257 << 12 };
static const size_t COUNT = ((size_t)1 << 32) + 500005;

/* A little more than COUNT bytes, of which those a block apart are the same. */
static int8_t *repeated(void) {
    int file = memfd_create("block", 0);
    CHECK(file >= 0 && ftruncate(file, BLOCK) == 0);
    size_t blocks = COUNT / BLOCK + 2;
    char *all = mmap(NULL, blocks * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(all != MAP_FAILED);
    for (size_t k = 0; k < blocks; k++) {
        void *at = all + k * BLOCK;
        CHECK(mmap(at, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == at);
    }
    close(file);
    return (int8_t *)all;
}

static int8_t value(size_t i, int seed) { return (int8_t)(i * 7 + (i >> 10) + (size_t)seed); }

static void fill(int8_t *block, int seed) {
    for (size_t i = 0; i < BLOCK; i++) {
        block[i] = value(i, seed);
    }
}

static void check(int8_t *block, int seed) {
    for (size_t i = 0; i < BLOCK; i++) {
        CHECK(block[i] == value(i, seed));
    }
    memset(block, 0, BLOCK);
}

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    int8_t *send = repeated(), *recv = repeated();
    OK(cclCommInitRank(&comm, ranks, id, rank));
    fill(send, rank);
    OK(cclBroadcast(send, recv, COUNT, cclInt8, 1, comm, NULL));
    check(recv, 1);
    /* Each rank has its half of the same vector. */
    fill(send, 9);
    size_t half = COUNT / 2 + 1;
    OK(cclAllGather(send + (size_t)rank * half, recv, half, cclInt8, comm, NULL));
    check(recv, 9);
    OK(cclCommDestroy(comm));
}

int main(void) { return run_ranks(RANKS, work); }
