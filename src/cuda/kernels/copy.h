// Copies of several ranges.
#pragma once

#include "args.h"
#include "memory.h"

// Copies by words of WORD bytes, to whose multiples both addresses are alike; `part` of `parts` blocks.
template <int WORD>
DEVICE void copy_words(u64 from, u64 to, u64 bytes, u64 part, u64 parts) {
    const u64 thread = part * blockDim.x + threadIdx.x, threads = parts * blockDim.x;
    u64 head = (0 - from) & (WORD - 1);
    head = head < bytes ? head : bytes;
    const u64 words = (bytes - head) / WORD, rest = bytes - words * WORD;
    u64 i = thread;
    // Four at a time, so that as many loads are under way.
    for (; i + 3 * threads < words; i += 4 * threads) {
        Bits<WORD> bits[4];
        UNROLL
        for (int j = 0; j < 4; ++j) {
            bits[j] = Memory<WORD>::load(from + head + (i + j * threads) * WORD);
        }
        UNROLL
        for (int j = 0; j < 4; ++j) {
            Memory<WORD>::store(to + head + (i + j * threads) * WORD, bits[j]);
        }
    }
    for (; i < words; i += threads) {
        Memory<WORD>::store(to + head + i * WORD, Memory<WORD>::load(from + head + i * WORD));
    }
    for (u64 j = thread; j < rest; j += threads) {
        const u64 at = j < head ? j : j + words * WORD;
        Memory<1>::store(to + at, Memory<1>::load(from + at));
    }
}

// Blocks are dealt to the ranges; of fewer blocks than ranges each has several.
DEVICE void copy(const ccl_copy_args &args) {
    if (args.ranges == 0) {
        return;
    }
    for (u64 range = blockIdx.x % args.ranges; range < args.ranges; range += gridDim.x) {
        const u64 from = args.from[range], to = args.to[range], bytes = args.bytes[range];
        const u64 part = blockIdx.x / args.ranges;
        const u64 others = gridDim.x > range ? (gridDim.x - 1 - range) / args.ranges : 0;
        if (((from ^ to) & 15) == 0) {
            copy_words<16>(from, to, bytes, part, others + 1);
        } else if (((from ^ to) & 3) == 0) {
            copy_words<4>(from, to, bytes, part, others + 1);
        } else {
            copy_words<1>(from, to, bytes, part, others + 1);
        }
    }
}
