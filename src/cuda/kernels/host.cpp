// The kernels as functions for the processor, for tests: the same text, compiled as C++.
//
//   c++ -std=c++17 -O1 -fPIC -shared -ffp-contract=off -o libkernels.so src/cuda/kernels/host.cpp
#include <atomic>
#include <cstddef>
#include <cstring>

// What a kernel knows of its place in the grid: in a row, and in which.
struct Place {
    unsigned x, y;
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

// Threads run one after the other: what those of a row find alike the first one finds.
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

static inline void fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

static inline void set_byte(unsigned long long at) {
    __atomic_store_n(reinterpret_cast<unsigned char *>(at), 1, __ATOMIC_RELEASE);
}

static inline unsigned long long *number_at(unsigned long long at) {
    return static_cast<unsigned long long *>(on_host(at, 8));
}

static inline unsigned long long published(unsigned long long at) {
    return __atomic_load_n(number_at(at), __ATOMIC_ACQUIRE);
}

static inline void publish(unsigned long long at, unsigned long long number) {
    __atomic_store_n(number_at(at), number, __ATOMIC_RELEASE);
}

static inline unsigned long long replace(unsigned long long at, unsigned long long expected, unsigned long long number) {
    __atomic_compare_exchange_n(number_at(at), &expected, number, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
}

// Threads of the row that are not through; only launches of one row ask.
static thread_local unsigned long long left;

static inline bool is_last(unsigned long long) {
    return --left == 0;
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
void launch(void (*kernel)(Args), const void *args, unsigned grid, unsigned rows, unsigned block, bool backwards) {
    gridDim = {grid, rows}, blockDim = {block, 1};
    const unsigned long long all = 1ull * grid * block;
    for (unsigned row = 0; row < rows; ++row) {
        blockIdx.y = backwards ? rows - 1 - row : row;
        is_first = true, left = all;
        for (unsigned long long i = 0; i < all; ++i) {
            const unsigned long long thread = backwards ? all - 1 - i : i;
            blockIdx.x = unsigned(thread / block), threadIdx.x = unsigned(thread % block);
            kernel(*static_cast<const Args *>(args));
        }
    }
}
} // namespace

// Runs the kernel `name`, `rows` times `grid` blocks, one thread after the other, the last first if `backwards`. -1: there is no such kernel;
// else the number of accesses that a GPU would have refused.
extern "C" long long ccl_kernels_on_host(const char *name, const void *args, unsigned grid, unsigned rows, unsigned block,
                                         int backwards) {
    refused = 0;
#define RUN(kernel)                                                                                                 \
    if (std::strcmp(name, #kernel) == 0) {                                                                          \
        launch(kernel, args, grid, rows, block, backwards != 0);                                                    \
        return (long long)refused.load();                                                                           \
    }
#define RUN_REDUCE(op, type, bytes) RUN(ccl_reduce_##op##_##type)
#define RUN_BITWISE(op) RUN(ccl_reduce_##op##_uint8)
#define RUN_TREE(op, type, bytes) RUN(ccl_tree_##op##_##type)
    ALL_KERNELS(RUN_REDUCE, RUN_BITWISE, RUN_TREE)
    RUN(ccl_copy)
    RUN(ccl_swap)
    RUN(ccl_arrive)
    return -1;
}

// Sizes and offsets of the arguments' fields, as C++ has them.
extern "C" unsigned ccl_kernels_layout(const unsigned long long **layout) {
#define OFFSET(type, field) offsetof(struct type, field)
    static const unsigned long long all[] = {
        sizeof(ccl_reduce_args),             OFFSET(ccl_reduce_args, sources),   OFFSET(ccl_reduce_args, destinations),
        OFFSET(ccl_reduce_args, scalars),    OFFSET(ccl_reduce_args, count),     OFFSET(ccl_reduce_args, source_at),
        OFFSET(ccl_reduce_args, destination_at),
        OFFSET(ccl_reduce_args, source_step),
        OFFSET(ccl_reduce_args, destination_step),
        OFFSET(ccl_reduce_args, call),       OFFSET(ccl_reduce_args, n),         OFFSET(ccl_reduce_args, m),
        OFFSET(ccl_reduce_args, scaled),     OFFSET(ccl_reduce_args, ranks),     OFFSET(ccl_reduce_args, rounded),
        OFFSET(ccl_reduce_args, rows),       OFFSET(ccl_reduce_args, sources_apart),
        OFFSET(ccl_reduce_args, destinations_apart),
        sizeof(ccl_copy_args),               OFFSET(ccl_copy_args, from),
        OFFSET(ccl_copy_args, to),           OFFSET(ccl_copy_args, bytes),       OFFSET(ccl_copy_args, ranges),
        OFFSET(ccl_copy_args, reserved),     sizeof(ccl_swap_args),              OFFSET(ccl_swap_args, begins),
        OFFSET(ccl_swap_args, bytes),        OFFSET(ccl_swap_args, blocks),      OFFSET(ccl_swap_args, own_at),
        OFFSET(ccl_swap_args, sends),        OFFSET(ccl_swap_args, recvs),       OFFSET(ccl_swap_args, call),
        OFFSET(ccl_swap_args, me),           OFFSET(ccl_swap_args, reserved),
        sizeof(ccl_entry),                   OFFSET(ccl_entry, send),
        OFFSET(ccl_entry, recv),             OFFSET(ccl_entry, call),            OFFSET(ccl_entry, turn),
        OFFSET(ccl_entry, agreed),           OFFSET(ccl_entry, done),            OFFSET(ccl_entry, reserved),
        sizeof(ccl_meeting),                 OFFSET(ccl_meeting, reset),         OFFSET(ccl_meeting, told),
        OFFSET(ccl_meeting, n),              OFFSET(ccl_meeting, reserved),      sizeof(ccl_call),
        OFFSET(ccl_call, number),            OFFSET(ccl_call, own),              OFFSET(ccl_call, entries),
        OFFSET(ccl_call, nobody),            OFFSET(ccl_call, meeting),          OFFSET(ccl_call, ranks),
        OFFSET(ccl_call, reserved),          sizeof(ccl_arrive_args),            OFFSET(ccl_arrive_args, call),
        OFFSET(ccl_arrive_args, send),       OFFSET(ccl_arrive_args, recv),
    };
    *layout = all;
    return sizeof(all) / sizeof(all[0]);
}
