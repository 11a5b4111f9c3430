// The reduction of up to 16 sources into up to 16 destinations, in one pass.
#pragma once

#include "sides.h"

// The operations. An average and a pre-multiplied sum are sums that the arguments say more about. By the one that COPIES
// a single source is copied.
struct sum_ {
    static const bool IS_SUM = true, COPIES = false;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return a + b;
    }
};
struct prod_ {
    static const bool IS_SUM = false, COPIES = false;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return a * b;
    }
};
struct max_ {
    static const bool IS_SUM = false, COPIES = false;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return N::larger(a, b);
    }
};
struct min_ {
    static const bool IS_SUM = false, COPIES = false;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return N::smaller(a, b);
    }
};
struct bitand_ {
    static const bool IS_SUM = false, COPIES = false;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return a & b;
    }
};
struct bitor_ {
    static const bool IS_SUM = false, COPIES = true;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return a | b;
    }
};
struct bitxor_ {
    static const bool IS_SUM = false, COPIES = false;
    template <class N>
    DEVICE static typename N::Wide of(typename N::Wide a, typename N::Wide b) {
        return a ^ b;
    }
};

// What BYTES bytes of all sources come to.
template <class N, class Op, int BYTES, bool TREE>
struct Piece {
    typedef typename N::Raw Raw;
    typedef typename N::Wide Wide;
    static const int E = BYTES / int(sizeof(Raw));

    struct Values {
        Wide of[E];
    };

    // Source k's elements, as they are combined.
    DEVICE static Values read(const ccl_reduce_args &args, u32 k, const Bits<BYTES> &bits) {
        Values values;
        UNROLL
        for (int i = 0; i < E; ++i) {
            values.of[i] = N::widen(element<Raw>(bits, i));
        }
        if (Op::IS_SUM && (args.scaled >> k & 1)) {
            const Wide scalar = N::widen(Raw(args.scalars[k]));
            UNROLL
            for (int i = 0; i < E; ++i) {
                values.of[i] = values.of[i] * scalar;
            }
            if (args.rounded) {
                UNROLL
                for (int i = 0; i < E; ++i) {
                    values.of[i] = N::widen(N::narrow(values.of[i]));
                }
            }
        }
        return values;
    }

    DEVICE static void fold(Values &total, const Values &next) {
        UNROLL
        for (int i = 0; i < E; ++i) {
            total.of[i] = Op::template of<N>(total.of[i], next.of[i]);
        }
    }

    // The total of all sources `at` bytes from where they begin. Four are loaded at a time, so that as many loads
    // are under way.
    //
    // In their order, ((s0 op s1) op s2) op ..., or by the tree that splits [a, b) at a plus the largest power of
    // two below b - a: of up to 16 sources it is the tree of up to four trees of up to four.
    DEVICE static Values total(const ccl_reduce_args &args, const Sides &sides, u64 at, bool whole) {
        Values total = {}, second = {};
        ROLLED
        for (u32 k = 0; k < args.n; k += 4) {
            const u32 more = args.n - k;
            Bits<BYTES> bits[4];
            UNROLL
            for (u32 j = 0; j < 4; ++j) {
                if (j < more) {
                    bits[j] = load<BYTES>(sides.sources[k + j] + at, whole);
                }
            }
            Values four = read(args, k, bits[0]);
            if (!TREE && k > 0) {
                fold(total, four);
                four = total;
            }
            if (more > 1) {
                fold(four, read(args, k + 1, bits[1]));
            }
            if (TREE && more > 3) {
                Values two = read(args, k + 2, bits[2]);
                fold(two, read(args, k + 3, bits[3]));
                fold(four, two);
            } else {
                if (more > 2) {
                    fold(four, read(args, k + 2, bits[2]));
                }
                if (more > 3) {
                    fold(four, read(args, k + 3, bits[3]));
                }
            }
            if (!TREE || k == 0) {
                total = four;
            } else if (k == 4) {
                fold(total, four);
            } else if (k == 8) {
                second = four;
            } else {
                fold(second, four);
            }
        }
        if (TREE && args.n > 8) {
            fold(total, second);
        }
        return total;
    }

    // Reduces what is `at` bytes from where sources and destinations begin.
    DEVICE static void reduce(const ccl_reduce_args &args, const Sides &sides, u64 at, bool whole) {
        Values values = total(args, sides, at, whole);
        if (Op::IS_SUM && args.ranks) {
            UNROLL
            for (int i = 0; i < E; ++i) {
                values.of[i] = N::over(values.of[i], args.ranks);
            }
        }
        Bits<BYTES> bits = {};
        UNROLL
        for (int i = 0; i < E; ++i) {
            set<Raw>(bits, i, N::narrow(N::canonical(values.of[i])));
        }
        ROLLED
        for (u32 k = 0; k < args.m; ++k) {
            store<BYTES>(sides.destinations[k] + at, bits, whole);
        }
    }
};

// Copies packs of the one source from number i on, four of a thread at a time, so that as many loads are under way; from what number on
// they are left.
DEVICE u64 copy_packs(const ccl_reduce_args &args, const Sides &sides, u64 i, u64 threads) {
    for (; i + 3 * threads < sides.packs; i += 4 * threads) {
        Bits<16> bits[4];
        UNROLL
        for (int j = 0; j < 4; ++j) {
            bits[j] = Memory<16>::load(sides.sources[0] + sides.head + (i + j * threads) * 16);
        }
        ROLLED
        for (u32 k = 0; k < args.m; ++k) {
            UNROLL
            for (int j = 0; j < 4; ++j) {
                Memory<16>::store(sides.destinations[k] + sides.head + (i + j * threads) * 16, bits[j]);
            }
        }
    }
    return i;
}

// All packs by elements PACKED, BYTES bytes at a time, and what is before and after them by elements N.
template <class N, class PACKED, class Op, int BYTES, bool TREE>
DEVICE void reduce(const ccl_reduce_args &args, const Sides &sides) {
    const u32 size = sizeof(typename N::Raw);
    const u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x, threads = u64(gridDim.x) * blockDim.x;
    u64 i = Op::COPIES && args.n == 1 ? copy_packs(args, sides, thread, threads) : thread;
    ROLLED
    for (; i < sides.packs * (16 / BYTES); i += threads) {
        Piece<PACKED, Op, BYTES, TREE>::reduce(args, sides, sides.head * size + i * BYTES, true);
    }
    const u64 packed = sides.packs * (16 / size);
    ROLLED
    for (i = thread; i < args.count - packed; i += threads) {
        const u64 at = i < sides.head ? i : i + packed;
        Piece<N, Op, int(sizeof(typename N::Raw)), TREE>::reduce(args, sides, at * size, sides.whole);
    }
}

// A kernel.
template <class N, class PACKED, class Op, int BYTES, bool TREE>
DEVICE void reduce(const ccl_reduce_args &args) {
    SHARED Sides sides;
    const u32 size = sizeof(typename N::Raw);
    const bool agreed = FOUND(find(args, size, sides));
    if (agreed) {
        reduce<N, PACKED, Op, BYTES, TREE>(args, sides);
    }
    if (args.call.number) {
        leave(args.call, agreed);
    }
}
