/* cclMemAlloc and cclCommRegister between 3 forked processes: wherever the buffers lie the results are the same, and what is
   wrong is refused. */
#include "ranks.h"

enum { RANKS = 3, COUNT = 50021 };

static cclComm_t comm, other;
static int me;

static float *shared(size_t count) {
    void *memory = &memory;
    OK(cclMemAlloc(&memory, count * sizeof(float)));
    CHECK(memory != NULL && (uintptr_t)memory % 4096 == 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(((float *)memory)[i] == 0);
    }
    return (float *)memory;
}

static void fill(float *data, size_t count, int call) {
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(me + 1 + call + (int)(i % 1000));
    }
}

static float of(int rank, size_t i, int call) { return (float)(rank + 1 + call + (int)(i % 1000)); }

static float sum(size_t i, int call) { return of(0, i, call) + of(1, i, call) + of(2, i, call); }

/* Which of a call's two buffers are shared: each rank has another two in each call. */
static void calls(cclStream_t stream) {
    static float own_send[COUNT], own_recv[RANKS * COUNT];
    float *shared_send = shared(COUNT), *shared_recv = shared((size_t)RANKS * COUNT);
    void *handle = NULL, *part = NULL;
    OK(cclCommRegister(comm, shared_send, COUNT * sizeof(float), &handle));
    OK(cclCommRegister(comm, shared_recv + 7, 100, &part));
    CHECK(handle != NULL && part != NULL && handle != part);
    for (int call = 0; call < 24; call++) {
        int kind = call + me;
        float *send = kind & 1 ? shared_send : own_send, *recv = kind & 2 ? shared_recv : own_recv;
        fill(send, COUNT, call);
        OK(cclAllReduce(send, recv, COUNT, cclFloat32, cclSum, comm, stream));
        OK(stream == NULL ? cclSuccess : cclStreamSynchronize(stream));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(recv[i] == sum(i, call));
        }
        OK(cclAllGather(send, recv, COUNT, cclFloat32, comm, stream));
        OK(stream == NULL ? cclSuccess : cclStreamSynchronize(stream));
        for (size_t i = 0; i < (size_t)RANKS * COUNT; i++) {
            CHECK(recv[i] == of((int)(i / COUNT), i % COUNT, call));
        }
        OK(cclGroupStart());
        OK(cclSend(send, COUNT, cclFloat32, (me + 1) % RANKS, comm, NULL));
        OK(cclRecv(recv, COUNT, cclFloat32, (me + RANKS - 1) % RANKS, comm, NULL));
        OK(cclGroupEnd());
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(recv[i] == of((me + RANKS - 1) % RANKS, i, call));
        }
        if (call % 5 == 4) {
            /* Freed while it is registered, and another in its place. */
            OK(cclMemFree(shared_send));
            shared_send = shared(COUNT);
        }
    }
    OK(cclCommDeregister(comm, handle));
    REFUSED(cclInvalidArgument, "was given back", cclCommDeregister(comm, handle));
    REFUSED(cclInvalidArgument, "on this communicator", cclCommDeregister(other, part));
    OK(cclMemFree(shared_send));
    OK(cclMemFree(shared_recv));
    OK(cclCommDeregister(comm, part));
}

static void refusals(void) {
    int local = 0;
    void *memory = &local, *handle = &local;
    OK(cclMemAlloc(&memory, 0));
    CHECK(memory == NULL);
    OK(cclMemFree(NULL));
    REFUSED(cclInvalidArgument, "ptr is NULL", cclMemAlloc(NULL, 8));
    memory = &local;
    REFUSED(cclInvalidArgument, "more than any memory has", cclMemAlloc(&memory, SIZE_MAX));
    CHECK(memory == NULL);
    REFUSED(cclSystemError, "no shared memory", cclMemAlloc(&memory, SIZE_MAX / 4));
    REFUSED(cclInvalidArgument, "live allocations", cclMemFree(&local));
    REFUSED(cclInvalidArgument, "live allocations", cclMemFree((void *)8));
    OK(cclMemAlloc(&memory, 10000));
    REFUSED(cclInvalidArgument, "give back that address", cclMemFree((char *)memory + 1));
    memset(memory, 1, 10000);
    OK(cclMemFree(memory));
    REFUSED(cclInvalidArgument, "given back before", cclMemFree(memory));

    REFUSED(cclInvalidArgument, "buff is NULL", cclCommRegister(comm, NULL, 8, &handle));
    CHECK(handle == NULL);
    REFUSED(cclInvalidArgument, "size is 0", cclCommRegister(comm, &local, 0, &handle));
    REFUSED(cclInvalidArgument, "past the end", cclCommRegister(comm, &local, SIZE_MAX, &handle));
    REFUSED(cclInvalidArgument, "handle is NULL", cclCommRegister(comm, &local, sizeof local, NULL));
    REFUSED(cclInvalidArgument, "NULL", cclCommRegister(NULL, &local, sizeof local, &handle));
    REFUSED(cclInvalidArgument, "cclCommRegister gave", cclCommDeregister(comm, &local));
    /* Any other memory is accepted, and what is not given back goes with the communicator. */
    OK(cclCommDeregister(comm, NULL));
    OK(cclCommRegister(comm, &local, sizeof local, &handle));
    CHECK(handle != NULL);
}

/* A child has none of it, and its parent's goes on. */
static void children(void) {
    float *memory = shared(COUNT);
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        REFUSED(cclInvalidArgument, "live allocations", cclMemFree(memory));
        float *own = shared(COUNT);
        own[0] = 1;
        OK(cclMemFree(own));
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    for (size_t i = 0; i < COUNT; i++) {
        memory[i] = 1;
    }
    OK(cclAllReduce(memory, memory, COUNT, cclFloat32, cclSum, comm, NULL));
    CHECK(memory[0] == RANKS && memory[COUNT - 1] == RANKS);
    OK(cclMemFree(memory));
}

static void work(cclUniqueId id, int n, int rank) {
    cclStream_t stream;
    me = rank;
    OK(cclCommInitRank(&comm, n, id, rank));
    OK(cclCommDup(comm, &other, NULL));
    OK(cclStreamCreate(&stream));
    calls(NULL);
    calls(stream);
    refusals();
    children();
    OK(cclStreamDestroy(stream));
    OK(cclCommDestroy(other));
    OK(cclCommDestroy(comm));
}

int main(void) { return run_ranks(RANKS, work); }
