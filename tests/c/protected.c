/* Buffers that the program has protected: its handler is asked where they are used, and then all goes on; memory that is none ends
 * the rank that passed it, and no other is blamed. What others read where it lies (CCL_CMA) must be readable. */
#define _GNU_SOURCE
#include "ranks.h"
#include <sys/mman.h>

enum { COUNT = 1 << 18, PAGE = 64 << 10 }; /* of any system's pages a multiple */
static const size_t BYTES = COUNT * sizeof(float);

static const char *transport;
static int only_receives; /* whether what is sent is left unprotected */
static unsigned char *memory[2];
static volatile sig_atomic_t asked;

static void unprotect(int signal, siginfo_t *info, void *context) {
    unsigned char *at = (unsigned char *)info->si_addr;
    (void)context;
    for (int k = 0; k < 2; k++) {
        unsigned char *page = memory[k] + (at - memory[k]) / PAGE * PAGE;
        if (at >= memory[k] && at < memory[k] + BYTES && mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0) {
            asked++;
            return;
        }
    }
    _exit(100 + signal); /* another fault */
}

static cclComm_t made(cclUniqueId id, int ranks, int rank) {
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    cclComm_t comm;
    config.transport = transport;
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));
    return comm;
}

static float *protect(int k) {
    CHECK((k == 0 && only_receives) || mprotect(memory[k], BYTES, PROT_NONE) == 0);
    return (float *)memory[k];
}

static void watched(cclUniqueId id, int ranks, int rank) {
    struct sigaction action;
    cclComm_t comm = made(id, ranks, rank);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = unprotect;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int k = 0; k < 2; k++) {
        void *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        memory[k] = (unsigned char *)pages;
    }
    float *in = (float *)memory[0], *out = (float *)memory[1];
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)(rank + i % 1000);
    }
    if (rank == 0) {
        OK(cclSend(protect(0), COUNT, cclFloat, 1, comm, NULL));
    } else {
        OK(cclRecv(protect(1), COUNT, cclFloat, 0, comm, NULL));
    }
    CHECK(asked > 0 || (only_receives && rank == 0));
    asked = 0;
    OK(cclAllGather(protect(0), protect(1), COUNT / 2, cclFloat, comm, NULL));
    CHECK(asked > 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK(out[i] == (float)(i / (COUNT / 2) + i % (COUNT / 2) % 1000));
    }
    OK(cclCommDestroy(comm));
}

/* Rank 1 passes what is no memory. */
static void blamed(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = made(id, ranks, rank);
    void *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    OK(cclBarrier(comm, NULL));
    if (rank == 1) {
        munmap(pages, BYTES);
        signal(SIGSEGV, SIG_DFL);
        cclBcast(pages, COUNT, cclFloat, 1, comm, NULL);
        exit(2); /* it was taken for memory, or another rank was blamed */
    }
    REFUSED(cclRemoteError, "rank 1 was lost", cclBcast(pages, COUNT, cclFloat, 1, comm, NULL));
    OK(cclCommDestroy(comm));
}

int main(void) {
    const struct {
        const char *transport, *cma;
    } ways[] = {{"shm", "off"}, {"shm", "on"}, {"tcp", "auto"}};
    for (int k = 0; k < 3; k++) {
        transport = ways[k].transport;
        CHECK(setenv("CCL_CMA", ways[k].cma, 1) == 0);
        only_receives = strcmp(ways[k].cma, "on") == 0;
        CHECK(run_ranks(2, watched) == 0);
        CHECK(only_receives || run_ranks(2, blamed) == 1); /* by its own signal */
    }
    return 0;
}
