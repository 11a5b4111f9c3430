// The kernels as functions for the processor, for tests: the same text, compiled as C++.
//
//   c++ -std=c++17 -O1 -fPIC -shared -ffp-contract=off -o libkernels.so src/cuda/kernels/host.cpp
#include <atomic>
#include <cstddef>
#include <cstring>

// What a kernel knows of its place in the grid. One dimension is enough.
struct Place {
    unsigned x;
};
static thread_local Place threadIdx, blockIdx, blockDim, gridDim;

// Accesses at addresses that a GPU would refuse.
static std::atomic<unsigned long long> refused;

static inline void *on_host(unsigned long long at, unsigned bytes) {
    refused += at % bytes != 0;
    return reinterpret_cast<void *>(at);
}

// Where the program that this is part of has the device memory at an address that was found in memory; without that it is there.
extern "C" __attribute__((weak)) void *ccl_kernels_reach(unsigned long long at, unsigned long long bytes);

static inline unsigned long long reached(unsigned long long at, unsigned long long bytes) {
    if (ccl_kernels_reach == nullptr || bytes == 0) {
        return at;
    }
    const auto there = reinterpret_cast<unsigned long long>(ccl_kernels_reach(at, bytes));
    refused += there == 0;
    return there;
}

// Threads run one after the other: what those of a launch find alike the first one finds.
static thread_local bool is_first;

template <class Find>
static auto found(Find find) {
    static thread_local decltype(find()) value;
    if (is_first) {
        value = find();
        is_first = false;
    }
    return value;
}

#define FOUND(what) found([&] { return what; })
#define OF_BLOCK(k, n) u32 k = 0; k < (n); ++k
#define ALL_OF_BLOCK(is_so) (is_so)
#define BLOCK_IS_HERE()
#define SHARED static thread_local
#define DEVICE inline
#define UNROLL
#define ROLLED
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads, blocks)
#include "kernels.cu"

namespace {
template <class Args>
void launch(void (*kernel)(Args), const void *args, unsigned grid, unsigned block, bool backwards) {
    gridDim.x = grid, blockDim.x = block, is_first = true;
    const unsigned long long all = 1ull * grid * block;
    for (unsigned long long i = 0; i < all; ++i) {
        const unsigned long long thread = backwards ? all - 1 - i : i;
        blockIdx.x = unsigned(thread / block), threadIdx.x = unsigned(thread % block);
        kernel(*static_cast<const Args *>(args));
    }
}
} // namespace

// Runs the kernel `name`, one thread after the other, the last first if `backwards`. -1: there is no such kernel;
// else the number of accesses that a GPU would have refused.
extern "C" long long ccl_kernels_on_host(const char *name, const void *args, unsigned grid, unsigned block, int backwards) {
    refused = 0;
#define RUN(kernel)                                                                                                 \
    if (std::strcmp(name, #kernel) == 0) {                                                                          \
        launch(kernel, args, grid, block, backwards != 0);                                                          \
        return (long long)refused.load();                                                                           \
    }
#define RUN_REDUCE(op, type, bytes) RUN(ccl_reduce_##op##_##type)
#define RUN_BITWISE(op) RUN(ccl_reduce_##op##_uint8)
#define RUN_TREE(op, type, bytes) RUN(ccl_tree_##op##_##type)
    ALL_KERNELS(RUN_REDUCE, RUN_BITWISE, RUN_TREE)
    RUN(ccl_copy)
    RUN(ccl_swap)
    return -1;
}

// Sizes and offsets of the arguments' fields, as C++ has them.
extern "C" unsigned ccl_kernels_layout(const unsigned long long **layout) {
#define AT(type, field) offsetof(struct type, field)
    static const unsigned long long all[] = {
        sizeof(ccl_reduce_args),         AT(ccl_reduce_args, sources),   AT(ccl_reduce_args, destinations),
        AT(ccl_reduce_args, scalars),    AT(ccl_reduce_args, count),     AT(ccl_reduce_args, expected),
        AT(ccl_reduce_args, source_at),  AT(ccl_reduce_args, destination_at),
        AT(ccl_reduce_args, n),          AT(ccl_reduce_args, m),         AT(ccl_reduce_args, scaled),
        AT(ccl_reduce_args, ranks),      AT(ccl_reduce_args, rounded),   AT(ccl_reduce_args, reserved),
        sizeof(ccl_copy_args),           AT(ccl_copy_args, from),        AT(ccl_copy_args, to),
        AT(ccl_copy_args, bytes),        AT(ccl_copy_args, ranges),      AT(ccl_copy_args, reserved),
        sizeof(ccl_swap_args),           AT(ccl_swap_args, entries),     AT(ccl_swap_args, begins),
        AT(ccl_swap_args, bytes),        AT(ccl_swap_args, blocks),      AT(ccl_swap_args, own),
        AT(ccl_swap_args, own_at),       AT(ccl_swap_args, expected),    AT(ccl_swap_args, n),
        AT(ccl_swap_args, reserved),     sizeof(ccl_entry),              AT(ccl_entry, send),
        AT(ccl_entry, recv),             AT(ccl_entry, call),
    };
    *layout = all;
    return sizeof(all) / sizeof(all[0]);
}
