/* Times the collectives of ccl, of an MPI or of oneCCL, all by the same loop: scripts/bench-peers builds it with
   -DWITH_CCL, -DWITH_MPI or, as C++, -DWITH_ONECCL.

   The way of nccl-tests: a window is K calls with nothing between them; its time is the total / K, of the slowest
   rank. The warm-up chooses K so that a window lasts -t milliseconds. Elements are float32, reductions are sums, roots
   are rank 0. All but broadcast, which MPI has in place only, are out of place. Results are checked once before they
   are timed.

   A size is that of the vector in allreduce, broadcast and reduce, and of all ranks' blocks together in the others; a
   block has at least one element. barrier has one row, of size 0.

   -f: the send buffer is written anew before each call, on all ranks, and the time that this takes by itself is
   subtracted.

   collectives [-n ranks] [-j] [-m] [-o op,op,...] [-s bytes,bytes,...] [-t window_ms] [-w windows] [-T seconds] [-f]
   prints `op,size,us` for each operation and size, the median of the windows. It begins no new row after -T. ccl's only
   are the number of ranks, as an MPI's launcher has its own; -j: they are threads of one process; and -m: the buffers are
   from cclMemAlloc. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ALLREDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, ALLGATHER, GATHER, SCATTER, ALLTOALL, ALLTOALLV, BARRIER, OPS };
static const char *const NAMES[OPS] = {"allreduce", "broadcast", "reduce",   "reduce_scatter", "allgather",
                                       "gather",    "scatter",   "alltoall", "alltoallv",      "barrier"};

#ifdef __cplusplus
#define OF_RANK static thread_local
#else
#define OF_RANK static _Thread_local
#endif

/* This rank, all ranks, its buffers, and the elements of the call: of the whole vector, and of a block. */
static int n;
OF_RANK int me;
OF_RANK float *sent, *received;
OF_RANK size_t vector, block;

/* Each of these has: start(ranks), leave(), set_blocks() after `block` changed, call(op), and between all ranks meet()
   and greatest(x). Any failure ends the process. */
#if defined(WITH_CCL)
#include "with_ccl.h"
#elif defined(WITH_MPI)
#include "with_mpi.h"
#elif defined(WITH_ONECCL)
#include "with_oneccl.h"
#else
#error "define WITH_CCL, WITH_MPI or WITH_ONECCL"
#endif

enum { MOST_SIZES = 64, MOST_WINDOWS = 64, MOST_CALLS = 1 << 20 };

static double window_s = 0.01, limit_s = 60;
static int windows = 3, fresh;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Element i of a rank's send buffer: whole numbers, whose sums are exact in any order. */
static float element(int rank, size_t i) { return (float)(rank + 1) + (float)(i % 61); }

static float sum(size_t i) { return (float)(n * (n + 1) / 2) + (float)(n * (int)(i % 61)); }

/* What element i of block b of this rank's receive buffer must be. */
static float wanted(int op, int b, size_t i) {
    switch (op) {
    case ALLREDUCE:
    case REDUCE: return sum(i);
    case BROADCAST: return element(0, i);
    case REDUCE_SCATTER: return sum((size_t)me * block + i);
    case SCATTER: return element(0, (size_t)me * block + i);
    case ALLTOALL:
    case ALLTOALLV: return element(b, (size_t)me * block + i);
    default: return element(b, i);
    }
}

static int right(int op) {
    int whole = op == ALLREDUCE || op == REDUCE || op == BROADCAST;
    int blocks = whole || op == REDUCE_SCATTER || op == SCATTER ? 1 : n;
    size_t length = whole ? vector : block;
    if (op == BARRIER || (me != 0 && (op == REDUCE || op == GATHER)) || (me == 0 && op == BROADCAST)) return 1;
    for (int b = 0; b < blocks; b++)
        for (size_t i = 0; i < length; i++)
            if (received[(size_t)b * length + i] != wanted(op, b, i)) return 0;
    return 1;
}

/* Not inlined, so that no compiler sees that most of it is written over unread. */
__attribute__((noinline)) static void rewrite(float *at, size_t count, float value) {
    for (size_t i = 0; i < count; i++) at[i] = value;
}

static void rewrite_sent(int op, long calls_so_far) {
    rewrite(sent, op == ALLGATHER || op == GATHER ? block : vector, (float)(calls_so_far & 63));
}

/* Seconds that the slowest rank takes for so many calls. */
static double window(int op, long calls) {
    double begin, all;
    meet();
    begin = now();
    for (long i = 0; i < calls; i++) {
        if (fresh) rewrite_sent(op, i);
        call(op);
    }
    all = greatest(now() - begin);
    if (fresh) {
        meet();
        begin = now();
        for (long i = 0; i < calls; i++) rewrite_sent(op, i);
        all -= greatest(now() - begin);
    }
    /* What is faster than 1 ns was lost in the rewriting's own noise. */
    return all > 1e-9 * (double)calls ? all : 1e-9 * (double)calls;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(int op, size_t size) {
    for (size_t i = 0; i < vector; i++) {
        sent[i] = element(me, i);
        received[i] = -1;
    }
    call(op);
    if (greatest(!right(op)) == 0) return;
    if (me == 0) fprintf(stderr, "%s of %zu bytes: the result is wrong\n", NAMES[op], size);
    exit(4);
}

static void measure(int op, size_t size) {
    double us[MOST_WINDOWS], took;
    long calls = 1;
    int count = windows;
    vector = size / sizeof(float);
    block = vector / (size_t)n > 0 ? vector / (size_t)n : 1;
    if (op >= REDUCE_SCATTER) vector = block * (size_t)n;
    set_blocks();
    check(op, size);
    while ((took = window(op, calls)) < window_s / 4 && calls < MOST_CALLS) calls *= 2;
    if (calls == 1 && took > window_s) count = 1;
    calls = (long)((double)calls * window_s / took + 0.5);
    calls = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : calls;
    for (int w = 0; w < count; w++) us[w] = window(op, calls) / (double)calls * 1e6;
    qsort(us, (size_t)count, sizeof *us, ascending);
    if (me == 0) printf("%s,%zu,%.4f\n", NAMES[op], size, us[count / 2]);
    fflush(stdout);
}

static float *buffer(size_t bytes) {
    void *memory = NULL;
#ifdef WITH_CCL
    if (shared) must(cclMemAlloc(&memory, bytes));
    if (shared) return (float *)memory;
#endif
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "no memory for a buffer of %zu bytes\n", bytes);
        exit(1);
    }
    return (float *)memory;
}

static int number_of(const char *name) {
    for (int op = 0; op < OPS; op++)
        if (strcmp(NAMES[op], name) == 0) return op;
    fprintf(stderr, "%s is no operation\n", name);
    exit(2);
}

static size_t sizes[MOST_SIZES];
static int ops[OPS], op_count, size_count;

/* What each rank does. */
static void measure_all(void) {
    double began = now();
    size_t largest = 0;
    for (int i = 0; i < size_count; i++) largest = sizes[i] > largest ? sizes[i] : largest;
    largest += sizeof(float) * (size_t)n;
    sent = buffer(largest);
    received = buffer(largest);
    for (int o = 0; o < op_count; o++)
        for (int s = 0; s < (ops[o] == BARRIER ? 1 : size_count); s++)
            if (greatest(now() - began) < limit_s) measure(ops[o], ops[o] == BARRIER ? 0 : sizes[s]);
}

int main(int argc, char **argv) {
    char all_ops[] = "allreduce,broadcast,reduce,reduce_scatter,allgather,gather,scatter,alltoall,alltoallv,barrier";
    char some_sizes[] = "8,1024,65536", *op_list = all_ops, *size_list = some_sizes;
    int ranks = 2, option;
    while ((option = getopt(argc, argv, "n:jmo:s:t:w:T:f")) != -1) {
        switch (option) {
        case 'n': ranks = atoi(optarg); break;
#ifdef WITH_CCL
        case 'j': threads = 1; break;
        case 'm': shared = 1; break;
#endif
        case 'o': op_list = optarg; break;
        case 's': size_list = optarg; break;
        case 't': window_s = atof(optarg) / 1e3; break;
        case 'w': windows = atoi(optarg); break;
        case 'T': limit_s = atof(optarg); break;
        case 'f': fresh = 1; break;
        default: return 2;
        }
    }
    for (char *at = strtok(op_list, ","); at && op_count < OPS; at = strtok(NULL, ",")) ops[op_count++] = number_of(at);
    for (char *at = strtok(size_list, ","); at && size_count < MOST_SIZES; at = strtok(NULL, ","))
        sizes[size_count++] = strtoull(at, NULL, 10);
    windows = windows < 1 ? 1 : windows > MOST_WINDOWS ? MOST_WINDOWS : windows;

#ifdef WITH_CCL
    if (threads) return in_threads(ranks, measure_all);
#endif
    start(ranks);
    measure_all();
    leave();
    return 0;
}
