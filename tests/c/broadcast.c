/* Broadcast between 5 forked processes: every root, many lengths, in place and out of place. On the root a buffer is only read. */
#include "ranks.h"
#include <sys/mman.h>

enum { LARGEST = 100003 };

static const size_t COUNTS[] = {0, 1, 4, 5, 1000, 65536, LARGEST};

static int32_t element(int root, size_t i) { return (int32_t)(i * 31 + (size_t)root); }

static void fill(int32_t *data, size_t count, int root) {
    for (size_t i = 0; i < count; i++) {
        data[i] = root < 0 ? -1 : element(root, i);
    }
}

static void check(const int32_t *data, size_t count, int root) {
    for (size_t i = 0; i < count; i++) {
        CHECK(data[i] == element(root, i));
    }
    CHECK(data[count] == -1); /* nothing was written past the end */
}

static void work(cclUniqueId id, int ranks, int rank) {
    static int32_t send[LARGEST + 1], recv[LARGEST + 1];
    cclComm_t comm;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    for (int root = 0; root < ranks; root++) {
        for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
            size_t count = COUNTS[c];
            int32_t *buff = rank == root ? send : recv;

            /* Out of place; elsewhere than on the root, the send buffer may be anything. */
            const void *nowhere = (const void *)(uintptr_t)1;
            fill(send, LARGEST + 1, root);
            fill(recv, LARGEST + 1, -1);
            OK(cclBroadcast(rank == root ? send : nowhere, recv, count, cclInt32, root, comm, NULL));
            check(recv, count, root);
            CHECK(send[0] == element(root, 0));

            /* In place, by both names. */
            fill(recv, LARGEST + 1, -1);
            send[count] = -1;
            OK(cclBroadcast(rank == root ? send : NULL, buff, count, cclInt32, root, comm, NULL));
            check(buff, count, root);
            fill(recv, LARGEST + 1, -1);
            OK(cclBcast(buff, count, cclInt32, root, comm, NULL));
            check(buff, count, root);
        }
    }
    OK(cclBroadcast(NULL, NULL, 0, cclInt32, 1, comm, NULL));
    OK(cclBcast(NULL, 0, cclInt32, 1, comm, NULL));
    OK(cclCommDestroy(comm));
}

/* What the root sends may be memory for reading only, also in calls that are repeated. */
static void send_what_cannot_be_written(cclUniqueId id, int ranks, int rank) {
    enum { BYTES = 65536 };
    cclComm_t comm;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    int32_t *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED);
    fill(data, BYTES / sizeof *data, rank == 0 ? 0 : -1);
    if (rank == 0) CHECK(mprotect(data, BYTES, PROT_READ) == 0);
    for (size_t count = 1; count <= BYTES / sizeof *data; count *= 2) {
        for (int call = 0; call < 5; call++) OK(cclBcast(data, count, cclInt32, 0, comm, NULL));
        CHECK(data[count - 1] == element(0, count - 1));
    }
    OK(cclCommDestroy(comm));
}

int main(void) {
    int failed = run_ranks(5, work);
    for (int ranks = 1; ranks <= 3; ranks++) failed |= run_ranks(ranks, send_what_cannot_be_written);
    return failed != 0;
}
