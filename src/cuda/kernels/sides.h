// Where a kernel's buffers are: at addresses that it was launched with, or that it finds in the entries of ranks.
#pragma once

#include "args.h"
#include "memory.h"

#ifdef __CUDA_ARCH__
#define SHARED __shared__
// This thread's part of a loop of its block's, and whether something is so of all parts.
#define OF_BLOCK(k, n) u32 k = threadIdx.x; k < (n); k += blockDim.x
#define ALL_OF_BLOCK(is_so) (__syncthreads_and(is_so) != 0)
#define BLOCK_IS_HERE() __syncthreads()
// What all blocks find alike.
#define FOUND(what) (what)

DEVICE u64 reached(u64 at, u64) {
    return at;
}
#endif

// The number of a rank's entry at one of its fields.
#define FIELD(entry, field) number(reinterpret_cast<u64>(&reinterpret_cast<const ccl_entry *>(entry)->field))
DEVICE u64 number(u64 at) {
    const Bits<8> two = Memory<8>::load(at);
    return u64(two.word[0]) | u64(two.word[1]) << 32;
}

// The addresses of a reduction's sources and destinations, for the threads of a block to look up, and how they lie.
struct Sides {
    u64 sources[CCL_MOST_SOURCES];
    u64 destinations[CCL_MOST_SOURCES];
    // Packs of 16 bytes that begin after `head` elements, at multiples of 16 in all of them.
    u64 packs;
    u32 head;
    // Whether all are at multiples of an element's size.
    bool whole;
};

// Fills `sides`, of elements of so many bytes; false: the entries are of another call.
DEVICE bool find(const ccl_reduce_args &args, u32 size, Sides &sides) {
    const bool are_entries = args.expected != 0;
    if (are_entries) {
        bool agreed = true;
        for (OF_BLOCK(k, args.n)) {
            agreed = agreed && FIELD(args.sources[k], call) == args.expected;
        }
        for (OF_BLOCK(k, args.m)) {
            agreed = agreed && FIELD(args.destinations[k], call) == args.expected;
        }
        if (!ALL_OF_BLOCK(agreed)) {
            return false;
        }
    }
    const u64 bytes = args.count * size;
    for (OF_BLOCK(k, args.n)) {
        const u64 at = args.sources[k];
        sides.sources[k] = are_entries ? reached(FIELD(at, send) + args.source_at, bytes) : at;
    }
    for (OF_BLOCK(k, args.m)) {
        const u64 at = args.destinations[k];
        sides.destinations[k] = are_entries ? reached(FIELD(at, recv) + args.destination_at, bytes) : at;
    }
    BLOCK_IS_HERE();
    const u64 before = (0 - sides.sources[0]) & 15;
    bool alike = before % size == 0, whole = true;
    for (OF_BLOCK(k, args.n)) {
        alike = alike && ((0 - sides.sources[k]) & 15) == before;
        whole = whole && sides.sources[k] % size == 0;
    }
    for (OF_BLOCK(k, args.m)) {
        alike = alike && ((0 - sides.destinations[k]) & 15) == before;
        whole = whole && sides.destinations[k] % size == 0;
    }
    alike = ALL_OF_BLOCK(alike), whole = ALL_OF_BLOCK(whole);
    const u64 head = !alike ? 0 : before / size < args.count ? before / size : args.count;
    for (OF_BLOCK(k, 1)) {
        sides.packs = alike ? (args.count - head) * size / 16 : 0, sides.head = u32(head), sides.whole = whole;
    }
    BLOCK_IS_HERE();
    return true;
}
