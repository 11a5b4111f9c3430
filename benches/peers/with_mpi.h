/* collectives.c with an MPI, whose launcher starts and places the ranks. When a call fails, MPI ends the process. */
#include <mpi.h>

static int *counts, *offsets;

static void start(int ranks) {
    (void)ranks;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    counts = (int *)malloc((size_t)n * sizeof *counts);
    offsets = (int *)malloc((size_t)n * sizeof *offsets);
}

static void leave(void) { MPI_Finalize(); }

static void set_blocks(void) {
    for (int rank = 0; rank < n; rank++) {
        counts[rank] = (int)block;
        offsets[rank] = rank * (int)block;
    }
}

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

static double greatest(double x) {
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return x;
}

static void call(int op) {
    MPI_Comm all = MPI_COMM_WORLD;
    int v = (int)vector, b = (int)block;
    switch (op) {
    case ALLREDUCE: MPI_Allreduce(sent, received, v, MPI_FLOAT, MPI_SUM, all); break;
    case BROADCAST: MPI_Bcast(me == 0 ? sent : received, v, MPI_FLOAT, 0, all); break;
    case REDUCE: MPI_Reduce(sent, received, v, MPI_FLOAT, MPI_SUM, 0, all); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(sent, received, b, MPI_FLOAT, MPI_SUM, all); break;
    case ALLGATHER: MPI_Allgather(sent, b, MPI_FLOAT, received, b, MPI_FLOAT, all); break;
    case GATHER: MPI_Gather(sent, b, MPI_FLOAT, received, b, MPI_FLOAT, 0, all); break;
    case SCATTER: MPI_Scatter(sent, b, MPI_FLOAT, received, b, MPI_FLOAT, 0, all); break;
    case ALLTOALL: MPI_Alltoall(sent, b, MPI_FLOAT, received, b, MPI_FLOAT, all); break;
    case ALLTOALLV: MPI_Alltoallv(sent, counts, offsets, MPI_FLOAT, received, counts, offsets, MPI_FLOAT, all); break;
    case BARRIER: MPI_Barrier(all); break;
    }
}
