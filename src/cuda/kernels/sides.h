// Where a kernel's buffers are: at addresses that it was launched with, or that it finds in the entries of ranks; how the kernels of a call
// agree that all ranks are in it; and how one tells other ranks that it is through with their buffers.
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

DEVICE void fence() {
    __threadfence_system();
}

// Sets a byte to 1, for streams and the host to see.
DEVICE void set_byte(u64 at) {
    asm volatile("st.relaxed.sys.global.u8 [%0], %1;" : : "l"(global(at)), "r"(1) : "memory");
}

// Loads a number with all that was written before it was published.
DEVICE u64 published(u64 at) {
    u64 number;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(number) : "l"(global(at)) : "memory");
    return number;
}

// Stores a number, after all that this thread has written.
DEVICE void publish(u64 at, u64 number) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" : : "l"(global(at)), "l"(number) : "memory");
}

// The number that was there, which becomes another if it is the one that is expected.
DEVICE u64 replace(u64 at, u64 expected, u64 number) {
    u64 before;
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(global(at)), "l"(expected), "l"(number)
                 : "memory");
    return before;
}

// Whether this thread is the last of the launch: what all others have done is done. `done` counts blocks, and is 0 again afterwards.
DEVICE bool is_last(u64 done) {
    __syncthreads();
    if (threadIdx.x != 0) {
        return false;
    }
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(global(done)) : "memory");
    if (before != gridDim.x - 1) {
        return false;
    }
    Memory<4>::store(done, {{0}});
    return true;
}
#endif

// Of an entry: where a field is.
#define AT(entry, field) reinterpret_cast<u64>(&reinterpret_cast<ccl_entry *>(entry)->field)

DEVICE void store_number(u64 at, u64 number) {
    Memory<8>::store(at, {{u32(number), u32(number >> 32)}});
}

// By one thread: what the launch has done is seen by whoever sees the bytes.
DEVICE void tell(const ccl_meeting &meeting) {
    store_number(meeting.reset, 0);
    store_number(meeting.reset + 8, 0);
    fence();
    ROLLED
    for (u32 k = 0; k < meeting.n; ++k) {
        set_byte(meeting.told[k]);
    }
}

// The number of a rank's entry at one of its fields.
#define FIELD(entry, field) number(AT(entry, field))
DEVICE u64 number(u64 at) {
    const Bits<8> two = Memory<8>::load(at);
    return u64(two.word[0]) | u64(two.word[1]) << 32;
}

DEVICE bool is_of(u64 entry, u64 call, u64 turn) {
    return published(AT(entry, turn)) == turn && FIELD(entry, call) == call;
}

// Whether this turn is one of a call of all ranks: all blocks of all ranks' kernels find the same, whenever they look, and once it
// is not no later turn is.
//
// For the first one that looks decides it, by the word that all share. So a rank whose kernel does nothing, because a stream that waited
// for it was let go, knows that no kernel of the others will use its buffers, be it ever so late; and where all are in the call all
// kernels run, and the rank has to wait until they have told it.
DEVICE bool is_agreed(const ccl_call &call) {
    SHARED bool agreed;
    const u64 turn = FIELD(call.own, turn);
    bool all_here = true;
    for (OF_BLOCK(k, call.ranks)) {
        all_here = all_here && is_of(call.entries[k], call.number, turn);
    }
    all_here = ALL_OF_BLOCK(all_here);
    for (OF_BLOCK(k, 1)) {
        const u64 before = replace(AT(call.entries[0], agreed), turn - 1, all_here ? turn : ~u64(0));
        agreed = before == turn || (all_here && before == turn - 1);
    }
    BLOCK_IS_HERE();
    return agreed;
}

// At the end of a kernel of a call, which was agreed on or did nothing.
DEVICE void leave(const ccl_call &call, bool agreed) {
    if (is_last(AT(call.own, done))) {
        if (!agreed) {
            Memory<4>::store(call.nobody, {{1}});
        }
        tell(call.meeting);
    }
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

// Fills `sides` of this block's row, of elements of so many bytes; false: ranks are in other calls.
DEVICE bool find(const ccl_reduce_args &args, u32 size, Sides &sides) {
    const bool are_entries = args.call.number != 0;
    if (are_entries && !is_agreed(args.call)) {
        return false;
    }
    const u32 row = blockIdx.y;
    const u64 bytes = args.count * size;
    const u64 source_at = args.source_at + row * args.source_step, destination_at = args.destination_at + row * args.destination_step;
    for (OF_BLOCK(k, args.n)) {
        const u64 at = args.sources[k + row * args.sources_apart];
        sides.sources[k] = are_entries ? reached(FIELD(at, send) + source_at, bytes) : at + source_at;
    }
    for (OF_BLOCK(k, args.m)) {
        const u64 at = args.destinations[k + row * args.destinations_apart];
        sides.destinations[k] = are_entries ? reached(FIELD(at, recv) + destination_at, bytes) : at + destination_at;
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
