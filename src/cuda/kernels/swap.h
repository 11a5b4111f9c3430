// The exchange of blocks between ranks.
#pragma once

#include "sides.h"

// Both ends of an exchange: what this rank sends and where it receives, and the same of the other rank; one rank itself has one end.
struct Ends {
    u64 send, recv, other_send, other_recv, bytes;
    bool itself;
};

// By words of WORD bytes, to whose multiples all addresses are alike; `part` of `parts` blocks.
template <int WORD>
DEVICE void swap_words(const Ends &ends, u64 part, u64 parts) {
    const u64 thread = part * blockDim.x + threadIdx.x, threads = parts * blockDim.x;
    u64 head = (0 - ends.send) & (WORD - 1);
    head = head < ends.bytes ? head : ends.bytes;
    const u64 words = (ends.bytes - head) / WORD, rest = ends.bytes - words * WORD;
    u64 i = thread;
    // Two at a time, so that as many loads are under way.
    for (; i + threads < words; i += 2 * threads) {
        const u64 at = head + i * WORD, next = at + threads * WORD;
        const Bits<WORD> there = Memory<WORD>::load(ends.other_send + at), then = Memory<WORD>::load(ends.other_send + next);
        if (!ends.itself) {
            const Bits<WORD> here = Memory<WORD>::load(ends.send + at), after = Memory<WORD>::load(ends.send + next);
            Memory<WORD>::store(ends.other_recv + at, here);
            Memory<WORD>::store(ends.other_recv + next, after);
        }
        Memory<WORD>::store(ends.recv + at, there);
        Memory<WORD>::store(ends.recv + next, then);
    }
    for (; i < words; i += threads) {
        const u64 at = head + i * WORD;
        const Bits<WORD> there = Memory<WORD>::load(ends.other_send + at), here = Memory<WORD>::load(ends.send + at);
        Memory<WORD>::store(ends.recv + at, there);
        if (!ends.itself) {
            Memory<WORD>::store(ends.other_recv + at, here);
        }
    }
    for (u64 j = thread; j < rest; j += threads) {
        const u64 at = j < head ? j : j + words * WORD;
        const Bits<1> there = Memory<1>::load(ends.other_send + at), here = Memory<1>::load(ends.send + at);
        Memory<1>::store(ends.recv + at, there);
        if (!ends.itself) {
            Memory<1>::store(ends.other_recv + at, here);
        }
    }
}

// The ends of all exchanges; false: ranks are in other calls.
DEVICE bool meet(const ccl_swap_args &args, Ends *ends) {
    const ccl_call &call = args.call;
    const bool are_entries = call.number != 0;
    if (are_entries && !is_agreed(call)) {
        return false;
    }
    for (OF_BLOCK(k, call.ranks)) {
        const u64 mine = args.blocks[k] + args.begins[k], theirs = args.own_at + args.begins[k], bytes = args.bytes[k];
        if (!are_entries) {
            ends[k] = {args.sends[args.me] + mine,
                       args.recvs[args.me] + mine,
                       args.sends[k] + theirs,
                       args.recvs[k] + theirs,
                       bytes,
                       k == args.me};
            continue;
        }
        ends[k] = {reached(FIELD(call.own, send) + mine, bytes),
                   reached(FIELD(call.own, recv) + mine, bytes),
                   reached(FIELD(call.entries[k], send) + theirs, bytes),
                   reached(FIELD(call.entries[k], recv) + theirs, bytes),
                   bytes,
                   call.entries[k] == call.own};
    }
    BLOCK_IS_HERE();
    return true;
}

// Blocks are dealt to the exchanges as to the ranges of a copy.
DEVICE void swap(const ccl_swap_args &args) {
    SHARED Ends all[CCL_MOST_SOURCES];
    const bool agreed = FOUND(meet(args, all));
    const u64 n = args.call.ranks;
    for (u64 k = agreed ? blockIdx.x % n : n; k < n; k += gridDim.x) {
        const Ends &ends = all[k];
        const u64 part = blockIdx.x / n, others = gridDim.x > k ? (gridDim.x - 1 - k) / n : 0;
        const u64 differ = (ends.send ^ ends.recv) | (ends.send ^ ends.other_send) | (ends.send ^ ends.other_recv);
        if ((differ & 15) == 0) {
            swap_words<16>(ends, part, others + 1);
        } else if ((differ & 3) == 0) {
            swap_words<4>(ends, part, others + 1);
        } else {
            swap_words<1>(ends, part, others + 1);
        }
    }
    if (args.call.number) {
        leave(args.call, agreed);
    }
}
