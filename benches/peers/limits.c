/* What two processors of this machine can do: the bounds that scripts/bench-peers holds the collectives against.

   Two processes, each on a processor of its own, go through the same list. A line `name,bytes,figure` is the median of
   five passes, of eleven for latencies. Latencies are in ns:
     exchange_own_lines  both write a cache line of their own and wait for the other's: what a small all-reduce needs
     exchange_one_line   the same, both in one line
     line_one_way        one line written in turn, one way
     yield_one_way       sched_yield to the other process on the same processor, one way
   Bandwidths are bytes of one operand in 1e9 bytes/s:
     copy, read, write, add, add_nt (non-temporal stores)
                         on one processor while the other does the same on its own data
     xcopy, xadd         of what the other has just written
     xwrite              over what the other has just read
     readv               process_vm_readv of the other's memory while it reads ours
     readv_fresh         of what the other has just written, one reader */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

enum { LATENCY_PASSES = 11, PASSES = 5, TURNS = 100000, YIELDS = 20000 };
enum { LEAST = 8 << 10, LARGEST = 256 << 20, RING = 512 << 10 };

struct shared {
    _Alignas(128) atomic_int arrived;
    _Alignas(128) atomic_int round;
    _Alignas(128) atomic_int line; /* one, written in turn */
    _Alignas(128) struct {
        _Alignas(128) atomic_int at;
    } own[2];
    _Alignas(128) atomic_int halves[2]; /* of one line */
    double figure[2];
};

static struct shared *shared;
static int me, processors[2];
static pid_t other;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) perror("sched_setaffinity");
}

/* Both are here. */
static void meet(void) {
    int round = atomic_load(&shared->round);
    if (atomic_fetch_add(&shared->arrived, 1) == 1) {
        atomic_store(&shared->arrived, 0);
        atomic_store(&shared->round, round + 1);
    }
    while (atomic_load(&shared->round) == round) {
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, size_t bytes, double *figures, int count) {
    qsort(figures, (size_t)count, sizeof *figures, ascending);
    if (me == 0) printf("%s,%zu,%.5g\n", name, bytes, figures[count / 2]);
    fflush(stdout);
}

enum latency { OWN_LINES, ONE_LINE, LINE, YIELD, LATENCIES };
static const char *const LATENCY_NAMES[LATENCIES] = {"exchange_own_lines", "exchange_one_line", "line_one_way",
                                                     "yield_one_way"};

/* Ns of an exchange, or of one way of a turn and its return. */
static double latency(enum latency kind) {
    int turns = kind == YIELD ? YIELDS : TURNS;
    double begin;
    meet();
    if (me == 0) {
        atomic_store(&shared->line, 0);
        for (int side = 0; side < 2; side++) {
            atomic_store(&shared->own[side].at, 0);
            atomic_store(&shared->halves[side], 0);
        }
    }
    meet();
    pin(processors[kind == YIELD ? 0 : me]);
    begin = now();
    for (int i = 0; i < turns; i++) {
        atomic_int *mine = kind == OWN_LINES ? &shared->own[me].at : &shared->halves[me];
        atomic_int *theirs = kind == OWN_LINES ? &shared->own[!me].at : &shared->halves[!me];
        if (kind == OWN_LINES || kind == ONE_LINE) {
            atomic_store_explicit(mine, i + 1, memory_order_release);
            while (atomic_load_explicit(theirs, memory_order_acquire) < i + 1) {
            }
        } else {
            while (atomic_load_explicit(&shared->line, memory_order_acquire) != 2 * i + me)
                if (kind == YIELD) sched_yield();
            atomic_store_explicit(&shared->line, 2 * i + me + 1, memory_order_release);
        }
    }
    begin = now() - begin;
    pin(processors[me]);
    return begin / turns / (kind == OWN_LINES || kind == ONE_LINE ? 1 : 2) * 1e9;
}

/* A kernel works on n bytes: of `to`, and of as many of `from` and `with` as it has operands. */
typedef void kernel(float *restrict to, const float *restrict from, const float *restrict with, size_t n);

static void copy(float *restrict to, const float *restrict from, const float *restrict with, size_t n) {
    (void)with;
    memcpy(to, from, n);
}

static void write_(float *restrict to, const float *restrict from, const float *restrict with, size_t n) {
    float value = from[0];
    (void)with;
    for (size_t i = 0; i < n / sizeof *to; i++) to[i] = value;
}

/* Sums of their own, so that no addition waits for the one before. */
static void read_(float *restrict to, const float *restrict from, const float *restrict with, size_t n) {
    enum { SUMS = 64 };
    float sums[SUMS] = {0};
    (void)with;
    for (size_t i = 0; i < n / sizeof *from; i += SUMS)
        for (size_t j = 0; j < SUMS; j++) sums[j] += from[i + j];
    for (size_t j = 0; j < SUMS; j++) to[j] = sums[j];
}

static void add(float *restrict to, const float *restrict from, const float *restrict with, size_t n) {
    for (size_t i = 0; i < n / sizeof *to; i++) to[i] = from[i] + with[i];
}

#ifdef __AVX__
static void add_nt(float *restrict to, const float *restrict from, const float *restrict with, size_t n) {
    for (size_t i = 0; i < n / sizeof *to; i += 8)
        _mm256_stream_ps(to + i, _mm256_add_ps(_mm256_load_ps(from + i), _mm256_load_ps(with + i)));
    _mm_sfence();
}
#endif

static float *ours[3]; /* memory of this process, at the same addresses in both */
static float *ring;    /* memory of both */

static float *memory(size_t bytes, int flag) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flag | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return (float *)at;
}

/* Bytes/ns of this process while the other does the same; of the slower one. */
static double side_by_side(kernel *run, size_t n) {
    double begin, took;
    long calls = 0, step = 1 + (1 << 18) / (long)n;
    run(ours[0], ours[1], ours[2], n);
    meet();
    begin = now();
    do {
        for (long i = 0; i < step; i++) run(ours[0], ours[1], ours[2], n);
        calls += step;
        took = now() - begin;
    } while (took < 0.02);
    shared->figure[me] = (double)n * (double)calls / took / 1e9;
    meet();
    return shared->figure[0] < shared->figure[1] ? shared->figure[0] : shared->figure[1];
}

/* Rank 1 writes n bytes that both have, then rank 0 works on them: bytes/ns of each. */
static void hand_over(kernel *run, size_t n, double *write_rate, double *run_rate) {
    double spent = 0;
    int turns = 200;
    for (int i = -1; i < turns; i++) {
        double begin;
        for (int side = 1; side >= 0; side--) {
            meet();
            if (me != side) continue;
            begin = now();
            me == 1 ? write_(ring, ours[1], NULL, n) : run(ours[0], ring, ours[2], n);
            if (i >= 0) spent += now() - begin;
        }
    }
    shared->figure[me] = (double)n * turns / spent / 1e9;
    meet();
    *run_rate = shared->figure[0];
    *write_rate = shared->figure[1];
    meet();
}

/* 0: forbidden here. */
static int readv_possible(void) {
    struct iovec to = {ours[0], 64}, from = {ours[1], 64};
    shared->figure[me] = process_vm_readv(other, &to, 1, &from, 1, 0) == 64;
    meet();
    int both = shared->figure[0] + shared->figure[1] == 2;
    meet();
    return both;
}

static void readv_(float *restrict to, const float *restrict from, const float *restrict with, size_t n) {
    struct iovec here = {to, n}, there = {(void *)(uintptr_t)from, n};
    (void)with;
    if (process_vm_readv(other, &here, 1, &there, 1, 0) != (ssize_t)n) perror("process_vm_readv");
}

static double readv_fresh(size_t n) {
    double spent = 0;
    int turns = n > 4 << 20 ? 3 : 50;
    for (int i = 0; i < turns; i++) {
        double begin;
        if (me == 1) memset(ours[1], i, n);
        meet();
        begin = now();
        if (me == 0) readv_(ours[0], ours[1], NULL, n);
        spent += now() - begin;
        meet();
    }
    return (double)n * turns / spent / 1e9;
}

static void bandwidths(void) {
    static const struct {
        const char *name;
        kernel *run;
    } KERNELS[] = {
        {"copy", copy},
        {"read", read_},
        {"write", write_},
        {"add", add},
#ifdef __AVX__
        {"add_nt", add_nt},
#endif
    };
    double figures[PASSES], others[PASSES];
    for (size_t k = 0; k < sizeof KERNELS / sizeof *KERNELS; k++)
        for (size_t n = LEAST; n <= LARGEST; n *= n == LARGEST / 2 ? 2 : 4) {
            for (int pass = 0; pass < PASSES; pass++) figures[pass] = side_by_side(KERNELS[k].run, n);
            report(KERNELS[k].name, n, figures, PASSES);
        }
    for (size_t n = LEAST; n <= RING; n *= 4) {
        for (int pass = 0; pass < PASSES; pass++) hand_over(copy, n, &others[pass], &figures[pass]);
        report("xcopy", n, figures, PASSES);
        report("xwrite", n, others, PASSES);
        for (int pass = 0; pass < PASSES; pass++) hand_over(add, n, &others[pass], &figures[pass]);
        report("xadd", n, figures, PASSES);
    }
    if (!readv_possible()) return;
    for (size_t n = LEAST; n <= LARGEST / 2; n *= 4) {
        for (int pass = 0; pass < PASSES; pass++) figures[pass] = side_by_side(readv_, n);
        report("readv", n, figures, PASSES);
        for (int pass = 0; pass < PASSES; pass++) figures[pass] = readv_fresh(n);
        report("readv_fresh", n, figures, PASSES);
    }
}

int main(void) {
    cpu_set_t allowed;
    pid_t parent = getpid();
    int found = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        fprintf(stderr, "two processors are needed\n");
        return 1;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) processors[found++] = cpu;
    shared = (struct shared *)(void *)memory(sizeof *shared, MAP_SHARED);
    ring = memory(RING, MAP_SHARED);
    for (int i = 0; i < 3; i++) ours[i] = memory(LARGEST, MAP_PRIVATE);
    other = fork();
    if (other < 0) {
        perror("fork");
        return 1;
    }
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        me = 1;
        other = parent;
    }
    /* Where Yama lets nobody but a parent read: the other may, as long as this runs. */
    prctl(PR_SET_PTRACER, other, 0, 0, 0);
    pin(processors[me]);
    for (int i = 0; i < 3; i++) memset(ours[i], 0, LARGEST);
    for (int kind = 0; kind < LATENCIES; kind++) {
        double figures[LATENCY_PASSES];
        for (int pass = 0; pass < LATENCY_PASSES; pass++) figures[pass] = latency((enum latency)kind);
        report(LATENCY_NAMES[kind], 0, figures, LATENCY_PASSES);
    }
    bandwidths();
    if (me == 0) waitpid(other, NULL, 0);
    return 0;
}
