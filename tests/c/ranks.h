/* What the tests share: checks, and ranks as forked processes. C11 and C++17. */
#ifndef RANKS_H
#define RANKS_H

#include <ccl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the process with a line that says what was not so. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Checks a call's result and prints the library's text if it is another. */
#define EXPECT(wanted, call)                                                                                           \
    do {                                                                                                               \
        cclResult_t result_ = (call);                                                                                  \
        if (result_ != (wanted)) {                                                                                     \
            fprintf(stderr, "%s:%d: %s is %d (%s), not %d: %s\n", __FILE__, __LINE__, #call, result_,                  \
                    cclGetErrorString(result_), (wanted), cclGetLastError(NULL));                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define OK(call) EXPECT(cclSuccess, call)

/* The same, and the thread's last error must contain a word. */
#define REFUSED(wanted, word, call)                                                                                    \
    do {                                                                                                               \
        EXPECT(wanted, call);                                                                                          \
        if (strstr(cclGetLastError(NULL), (word)) == NULL) {                                                           \
            fprintf(stderr, "%s:%d: the text of %s lacks \"%s\": %s\n", __FILE__, __LINE__, #call, (word),             \
                    cclGetLastError(NULL));                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Runs `work` as `ranks` processes with one id and returns how many of them failed. */
static inline int run_ranks(int ranks, void (*work)(cclUniqueId id, int ranks, int rank)) {
    cclUniqueId id;
    int failed = 0, status;
    pid_t parent = getpid();
    OK(cclGetUniqueId(&id));
    fflush(NULL);
    for (int rank = 0; rank < ranks; rank++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* No rank outlives the test, whatever happens. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            CHECK(getppid() == parent);
            alarm(100);
            work(id, ranks, rank);
            exit(0);
        }
    }
    for (int rank = 0; rank < ranks; rank++) {
        CHECK(wait(&status) > 0);
        failed += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (failed > 0) {
        fprintf(stderr, "%d of %d ranks failed\n", failed, ranks);
    }
    return failed;
}

#endif
