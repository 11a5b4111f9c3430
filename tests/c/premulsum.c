/* Pre-multiplied sums between 4 forked processes: each rank has a scalar of its own. */
#include "ranks.h"

enum { RANKS = 4, COUNT = 20011 };

static cclComm_t comm, other;
static int me;

static cclRedOp_t made(float scalar) {
    cclRedOp_t op;
    OK(cclRedOpCreatePreMulSum(&op, &scalar, cclFloat32, cclScalarHostImmediate, comm));
    CHECK(op >= 4096);
    scalar = 0; /* it was read */
    return op;
}

/* The sum of rank * 2 (the elements) times rank + 1 (the scalars), and of the index times the scalars. */
static float wanted(size_t i) { return (float)(2 * (0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) + (int)(i % 100) * (1 + 2 + 3 + 4)); }

static void fill(float *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(2 * me + (int)(i % 100));
    }
}

static void check(const float *data, size_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK(data[i] == wanted(first + i));
    }
}

static void calls(cclStream_t stream) {
    static float send[RANKS * COUNT], recv[RANKS * COUNT], all[RANKS * COUNT], block[COUNT];
    /* The blocks of the V form: longer from rank to rank, that of rank 0 empty, from the last to the first. */
    static const size_t counts[RANKS] = {0, COUNT / 2, COUNT, 2 * COUNT};
    static const size_t displs[RANKS] = {0, 3 * COUNT, 2 * COUNT, 0};
    static float own[2 * COUNT], in_place[RANKS * COUNT];
    cclRedOp_t op = made((float)(me + 1));
    fill(send, RANKS * COUNT);
    fill(in_place, RANKS * COUNT);
    fill(all, COUNT);
    OK(cclGroupStart());
    OK(cclAllReduce(all, all, COUNT, cclFloat32, op, comm, stream));
    OK(cclReduce(send, recv, RANKS * COUNT, cclFloat32, op, 2, comm, stream));
    OK(cclReduceScatter(send, block, COUNT, cclFloat32, op, comm, stream));
    OK(cclReduceScatterV(send, counts, displs, own, counts[me], cclFloat32, op, comm, stream));
    OK(cclReduceScatterV(in_place, counts, displs, in_place + displs[me], counts[me], cclFloat32, op, comm, stream));
    /* What was called keeps its scalar. */
    OK(cclRedOpDestroy(op, comm));
    OK(cclGroupEnd());
    OK(stream == NULL ? cclSuccess : cclStreamSynchronize(stream));
    check(all, 0, COUNT);
    check(block, (size_t)me * COUNT, COUNT);
    check(own, displs[me], counts[me]);
    check(in_place + displs[me], displs[me], counts[me]);
    if (me == 2) {
        check(recv, 0, RANKS * COUNT);
    }
    REFUSED(cclInvalidArgument, "was destroyed", cclAllReduce(all, all, 1, cclFloat32, op, comm, stream));
    REFUSED(cclInvalidArgument, "was destroyed", cclRedOpDestroy(op, comm));
}

static void integers(void) {
    int8_t scalar = 100, data = 7;
    cclRedOp_t op;
    OK(cclRedOpCreatePreMulSum(&op, &scalar, cclInt8, cclScalarHostImmediate, comm));
    OK(cclAllReduce(&data, &data, 1, cclInt8, op, comm, NULL));
    CHECK(data == (int8_t)(4 * 700)); /* integers wrap */
    OK(cclRedOpDestroy(op, comm));
}

static void refusals(void) {
    float scalar = 2, data = 1;
    int number = 1;
    cclRedOp_t op = made(scalar), none = -7;
    REFUSED(cclInvalidArgument, "made for float32", cclAllReduce(&number, &number, 1, cclInt32, op, comm, NULL));
    REFUSED(cclInvalidArgument, "on this communicator", cclAllReduce(&data, &data, 1, cclFloat32, op, other, NULL));
    REFUSED(cclInvalidArgument, "on this communicator", cclRedOpDestroy(op, other));
    REFUSED(cclInvalidArgument, "on this communicator", cclAllReduce(&data, &data, 1, cclFloat32, INT_MAX, comm, NULL));
    REFUSED(cclInvalidArgument, "does not exist", cclAllReduce(&data, &data, 1, cclFloat32, cclNumOps, comm, NULL));
    REFUSED(cclInvalidArgument, "on this communicator", cclRedOpDestroy(cclSum, comm));
    REFUSED(cclInvalidUsage, "not supported yet",
            cclRedOpCreatePreMulSum(&none, &scalar, cclFloat32, cclScalarDevice, comm));
    REFUSED(cclInvalidArgument, "residence is 2", cclRedOpCreatePreMulSum(&none, &scalar, cclFloat32, 2, comm));
    REFUSED(cclInvalidArgument, "data type", cclRedOpCreatePreMulSum(&none, &scalar, 99, cclScalarHostImmediate, comm));
    REFUSED(cclInvalidArgument, "scalar is NULL",
            cclRedOpCreatePreMulSum(&none, NULL, cclFloat32, cclScalarHostImmediate, comm));
    REFUSED(cclInvalidArgument, "op is NULL",
            cclRedOpCreatePreMulSum(NULL, &scalar, cclFloat32, cclScalarHostImmediate, comm));
    REFUSED(cclInvalidArgument, "NULL", cclRedOpCreatePreMulSum(&none, &scalar, cclFloat32, cclScalarHostImmediate, NULL));
    CHECK(none == -7);
    /* The communicator is as good as before, and takes what is left of its reductions with it. */
    OK(cclAllReduce(&data, &data, 1, cclFloat32, op, comm, NULL));
    CHECK(data == 8);
}

static void work(cclUniqueId id, int n, int rank) {
    cclStream_t stream;
    me = rank;
    OK(cclCommInitRank(&comm, n, id, rank));
    OK(cclCommDup(comm, &other, NULL));
    OK(cclStreamCreate(&stream));
    calls(NULL);
    calls(stream);
    integers();
    refusals();
    OK(cclStreamDestroy(stream));
    OK(cclCommDestroy(other));
    OK(cclCommDestroy(comm));
}

int main(void) { return run_ranks(RANKS, work); }
