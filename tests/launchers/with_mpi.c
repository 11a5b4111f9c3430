/* Ranks that use ccl and an MPI side by side, in the order of the letters of the first argument: c makes a communicator of
 * ccl's, i and f begin and end MPI. The few functions of MPI are declared here, so that its headers are not needed. */
#include <ccl.h>
#include <stdio.h>

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);

static int sum_of_ones(void) {
    cclComm_t comm;
    float one = 1;
    cclResult_t result = cclCommInitEnv(&comm, NULL);
    if (result == cclSuccess) result = cclAllReduce(&one, &one, 1, cclFloat, cclSum, comm, NULL);
    if (result != cclSuccess) {
        fprintf(stderr, "%s: %s\n", cclGetErrorString(result), cclGetLastError(NULL));
        return 1;
    }
    printf("the sum is %g\n", one);
    return cclCommDestroy(comm) != cclSuccess;
}

int main(int argc, char **argv) {
    for (const char *step = argv[1]; *step != '\0'; step++) {
        int failed = *step == 'c' ? sum_of_ones() : *step == 'i' ? MPI_Init(&argc, &argv) : MPI_Finalize();
        if (failed) return 1;
    }
    return 0;
}
