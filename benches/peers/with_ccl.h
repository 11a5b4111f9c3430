/* collectives.c with ccl: the ranks are forked, or threads, each on a processor of its own where there are enough. */
#include <ccl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

OF_RANK cclComm_t comm;
OF_RANK size_t *counts, *offsets;
static int threads, shared;

static void must(cclResult_t result) {
    if (result == cclSuccess) return;
    fprintf(stderr, "rank %d: %s: %s\n", me, cclGetErrorString(result), cclGetLastError(NULL));
    exit(1);
}

static void pin(void) {
    cpu_set_t allowed, one;
    int left = me;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < n) return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void join(cclUniqueId id) {
    pin();
    must(cclCommInitRank(&comm, n, id, me));
    counts = (size_t *)malloc((size_t)n * sizeof *counts);
    offsets = (size_t *)malloc((size_t)n * sizeof *offsets);
}

/* Returns in the ranks. The first process waits for them and ends. */
static void start(int ranks) {
    cclUniqueId id;
    int status, failed = 0;
    pid_t parent = getpid();
    n = ranks;
    must(cclGetUniqueId(&id));
    for (me = 0; me < n; me++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            exit(1);
        }
        if (child > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) exit(1);
        join(id);
        return;
    }
    while (wait(&status) > 0) failed |= status;
    exit(failed != 0);
}

static void leave(void) { must(cclCommDestroy(comm)); }

static struct {
    cclUniqueId id;
    void (*work)(void);
} of_threads;

static void *run_thread(void *rank) {
    me = (int)(size_t)rank;
    join(of_threads.id);
    of_threads.work();
    leave();
    return NULL;
}

/* Runs `work` as each rank, in a thread each. */
static int in_threads(int ranks, void (*work)(void)) {
    pthread_t *all = (pthread_t *)malloc((size_t)ranks * sizeof *all);
    int failed = 0;
    n = ranks;
    of_threads.work = work;
    must(cclGetUniqueId(&of_threads.id));
    for (int i = 0; i < n; i++) failed |= pthread_create(&all[i], NULL, run_thread, (void *)(size_t)i);
    for (int i = 0; i < n && !failed; i++) failed |= pthread_join(all[i], NULL);
    return failed;
}

static void set_blocks(void) {
    for (int rank = 0; rank < n; rank++) {
        counts[rank] = block;
        offsets[rank] = (size_t)rank * block;
    }
}

static void meet(void) { must(cclBarrier(comm, NULL)); }

static double greatest(double x) {
    must(cclAllReduce(&x, &x, 1, cclDouble, cclMax, comm, NULL));
    return x;
}

static void call(int op) {
    switch (op) {
    case ALLREDUCE: must(cclAllReduce(sent, received, vector, cclFloat, cclSum, comm, NULL)); break;
    case BROADCAST: must(cclBcast(me == 0 ? sent : received, vector, cclFloat, 0, comm, NULL)); break;
    case REDUCE: must(cclReduce(sent, received, vector, cclFloat, cclSum, 0, comm, NULL)); break;
    case REDUCE_SCATTER: must(cclReduceScatter(sent, received, block, cclFloat, cclSum, comm, NULL)); break;
    case ALLGATHER: must(cclAllGather(sent, received, block, cclFloat, comm, NULL)); break;
    case GATHER: must(cclGather(sent, received, block, cclFloat, 0, comm, NULL)); break;
    case SCATTER: must(cclScatter(sent, received, block, cclFloat, 0, comm, NULL)); break;
    case ALLTOALL: must(cclAlltoAll(sent, received, block, cclFloat, comm, NULL)); break;
    case ALLTOALLV: must(cclAlltoAllV(sent, counts, offsets, received, counts, offsets, cclFloat, comm, NULL)); break;
    case BARRIER: must(cclBarrier(comm, NULL)); break;
    }
}
