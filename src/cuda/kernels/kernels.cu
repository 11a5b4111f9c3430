// All kernels, by names that follow a rule (mod.rs): ccl_reduce_<operation>_<type>, ccl_tree_<operation>_<type>,
// ccl_copy, ccl_swap, ccl_arrive.
//
// `scripts/kernels build` makes the images of it. host.cpp compiles the same text for the processor.
#ifdef __CUDACC__
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
// For loops whose body is long already: to repeat it makes images larger.
#define ROLLED _Pragma("unroll 1")
#endif

#include "arrive.h"
#include "copy.h"
#include "list.h"
#include "reduce.h"
#include "swap.h"

// A block has 512 threads at most (THREADS in mod.rs), and a multiprocessor two such blocks: 64 registers for a thread.
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(512, 2) name

#define REDUCE(op, type, bytes)                                                              \
    KERNEL(ccl_reduce_##op##_##type)(const __grid_constant__ ccl_reduce_args args) {         \
        reduce<type, type, op##_, bytes, false>(args);                                       \
    }
#define BITWISE(op)                                                                          \
    KERNEL(ccl_reduce_##op##_uint8)(const __grid_constant__ ccl_reduce_args args) {          \
        reduce<uint8, uint32, op##_, 16, false>(args);                                       \
    }
#define TREE(op, type, bytes)                                                                \
    KERNEL(ccl_tree_##op##_##type)(const __grid_constant__ ccl_reduce_args args) {           \
        reduce<type, type, op##_, bytes, true>(args);                                        \
    }

ALL_KERNELS(REDUCE, BITWISE, TREE)

KERNEL(ccl_copy)(const __grid_constant__ ccl_copy_args args) {
    copy(args);
}

KERNEL(ccl_arrive)(const __grid_constant__ ccl_arrive_args args) {
    arrive(args);
}

KERNEL(ccl_swap)(const __grid_constant__ ccl_swap_args args) {
    swap(args);
}
