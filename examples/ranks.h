/*
 * What the examples share: calls that must succeed, and ranks. A program that is started by itself forks its ranks; one
 * that mpirun, torchrun or srun starts is one of theirs. C11 and C++17.
 */
#ifndef CCL_EXAMPLES_RANKS_H
#define CCL_EXAMPLES_RANKS_H

#include <ccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the process with what the library says, unless the call succeeded. */
static inline void must(cclResult_t result) {
    if (result != cclSuccess) {
        fprintf(stderr, "%s: %s\n", cclGetErrorString(result), cclGetLastError(NULL));
        exit(1);
    }
}

/* Ends the process with this text, unless it is so. */
static inline void check(int is_so, const char *otherwise) {
    if (!is_so) {
        fprintf(stderr, "%s\n", otherwise);
        exit(1);
    }
}

/* Whether a launcher started this process as one of its ranks. Slurm's shells are steps, too, of numbers that no other step has. */
static inline int launched(void) {
    const char *step = getenv("SLURM_STEP_ID");
    if (getenv("SLURM_STEP_NUM_TASKS") && step && strtoul(step, NULL, 10) < 0xfffffff0) return 1;
    if (getenv("JOB_COMPLETION_INDEX") && getenv("WORLD_SIZE")) return 1;
    return getenv("RANK") || getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}

/*
 * Runs `work` as each of `ranks` processes, or as one of the launcher's. `work` gives the communicator back. Returns the
 * exit status: 0 if all went well.
 */
static inline int run_ranks(int ranks, void (*work)(cclComm_t comm)) {
    cclComm_t comm;
    cclUniqueId id;
    int status, failed = 0;
    if (launched()) {
        must(cclCommInitEnv(&comm, NULL));
        work(comm);
        return 0;
    }
    must(cclGetUniqueId(&id));
    for (int rank = 0; rank < ranks; rank++) {
        pid_t child = fork();
        check(child >= 0, "cannot fork");
        if (child == 0) {
            must(cclCommInitRank(&comm, ranks, id, rank));
            work(comm);
            exit(0);
        }
    }
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}

/* A number from -1 to 1 for each seed: they look random, and are the same on all ranks. */
static inline float number(unsigned seed) {
    seed = (seed ^ seed >> 16) * 0x7feb352du;
    seed = (seed ^ seed >> 15) * 0x846ca68bu;
    return (float)(seed >> 8) / (float)(1 << 23) - 1;
}

#endif
