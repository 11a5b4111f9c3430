/* Four processes add up their vectors: each brings its rank + 1, and each gets 1 + 2 + 3 + 4. */
#include <ccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, COUNT = 1000 };

static void must(cclResult_t result) {
    if (result != cclSuccess) {
        fprintf(stderr, "%s: %s\n", cclGetErrorString(result), cclGetLastError(NULL));
        exit(1);
    }
}

static int work(cclUniqueId id, int rank) {
    float data[COUNT];
    cclComm_t comm;
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rank + 1);
    must(cclCommInitRank(&comm, RANKS, id, rank));
    must(cclAllReduce(data, data, COUNT, cclFloat, cclSum, comm, NULL)); /* in place */
    must(cclCommDestroy(comm));
    printf("rank %d: %g\n", rank, data[COUNT - 1]);
    return data[COUNT - 1] == 10 ? 0 : 1;
}

int main(void) {
    cclUniqueId id;
    int status, failed = 0;
    must(cclGetUniqueId(&id));
    for (int rank = 0; rank < RANKS; rank++) {
        if (fork() == 0) return work(id, rank);
    }
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}
