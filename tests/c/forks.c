/* A program that takes a lock of its own before it forks, which another thread holds while it is in the library. */
#include "ranks.h"
#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int done;

static void take(void) {
    pthread_mutex_lock(&lock);
}

static void give(void) {
    pthread_mutex_unlock(&lock);
}

static void *communicates(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        cclUniqueId id;
        cclComm_t comm;
        take();
        OK(cclGetUniqueId(&id));
        OK(cclCommInitRank(&comm, 1, id, 0));
        OK(cclCommDestroy(comm));
        give();
        usleep(100);
    }
    atomic_store(&done, 1);
    return unused;
}

int main(void) {
    pthread_t thread;
    int status;
    alarm(100);
    CHECK(pthread_atfork(take, give, give) == 0);
    CHECK(pthread_create(&thread, NULL, communicates, NULL) == 0);
    while (!atomic_load(&done)) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
