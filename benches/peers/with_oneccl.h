/* collectives.c with oneCCL on host memory, as C++. Intel MPI starts the ranks, passes the address at which they meet
   and takes the greatest; oneCCL has no gather and no scatter. */
#include <mpi.h>
#include <oneapi/ccl.hpp>
#include <vector>

static ccl::communicator *comm;
static ccl::shared_ptr_class<ccl::kvs> store;
static std::vector<size_t> counts;

static void start(int ranks) {
    ccl::kvs::address_type address;
    (void)ranks;
    ccl::init();
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (me == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    MPI_Bcast((void *)address.data(), (int)address.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (me != 0) store = ccl::create_kvs(address);
    comm = new ccl::communicator(ccl::create_communicator(n, me, store));
}

/* oneCCL and MPI would each finalize the other: leaves without either. */
static void leave(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    fflush(stdout);
    _exit(0);
}

static void set_blocks(void) { counts.assign((size_t)n, block); }

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

static double greatest(double x) {
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return x;
}

static void call(int op) {
    const ccl::datatype type = ccl::datatype::float32;
    const ccl::reduction add = ccl::reduction::sum;
    switch (op) {
    case ALLREDUCE: ccl::allreduce(sent, received, vector, type, add, *comm).wait(); break;
    case BROADCAST: ccl::broadcast(me == 0 ? sent : received, vector, type, 0, *comm).wait(); break;
    case REDUCE: ccl::reduce(sent, received, vector, type, add, 0, *comm).wait(); break;
    case REDUCE_SCATTER: ccl::reduce_scatter(sent, received, block, type, add, *comm).wait(); break;
    case ALLGATHER: ccl::allgatherv((void *)sent, block, (void *)received, counts, type, *comm).wait(); break;
    case ALLTOALL: ccl::alltoall((void *)sent, (void *)received, block, type, *comm).wait(); break;
    case ALLTOALLV: ccl::alltoallv((void *)sent, counts, (void *)received, counts, type, *comm).wait(); break;
    case BARRIER: ccl::barrier(*comm).wait(); break;
    default: fprintf(stderr, "oneCCL has no %s\n", NAMES[op]); exit(2);
    }
}
