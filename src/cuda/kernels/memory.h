// Loads and stores of 1 to 16 bytes.
//
// Plain ones: what others wrote is ordered by what comes before a launch and after it. Kernels wait for nothing.
#pragma once

#include "number.h"

// So many bytes, in registers.
template <int BYTES>
struct Bits {
    u32 word[BYTES < 4 ? 1 : BYTES / 4];
};

// Those of a size, at its multiples.
template <int BYTES>
struct Memory;

#ifdef __CUDA_ARCH__
// The address in the window of global memory, which the compiler cannot tell from a number.
DEVICE u64 global(u64 at) {
    return __cvta_generic_to_global(reinterpret_cast<const void *>(at));
}

#define MEMORY(BYTES, WIDTH, REGISTER, TYPE)                                                                  \
    template <>                                                                                               \
    struct Memory<BYTES> {                                                                                    \
        DEVICE static Bits<BYTES> load(u64 at) {                                                              \
            TYPE bits;                                                                                        \
            asm volatile("ld.global." WIDTH " %0, [%1];" : "=" REGISTER(bits) : "l"(global(at)) : "memory");  \
            return {{bits}};                                                                                  \
        }                                                                                                     \
        DEVICE static void store(u64 at, const Bits<BYTES> &bits) {                                           \
            const TYPE low = TYPE(bits.word[0]);                                                              \
            asm volatile("st.global." WIDTH " [%0], %1;" : : "l"(global(at)), REGISTER(low) : "memory");      \
        }                                                                                                     \
    }

MEMORY(1, "u8", "r", u32);
MEMORY(2, "u16", "h", u16);
MEMORY(4, "u32", "r", u32);

template <>
struct Memory<8> {
    DEVICE static Bits<8> load(u64 at) {
        Bits<8> two;
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                     : "=r"(two.word[0]), "=r"(two.word[1])
                     : "l"(global(at))
                     : "memory");
        return two;
    }
    DEVICE static void store(u64 at, const Bits<8> &two) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                     :
                     : "l"(global(at)), "r"(two.word[0]), "r"(two.word[1])
                     : "memory");
    }
};

template <>
struct Memory<16> {
    DEVICE static Bits<16> load(u64 at) {
        Bits<16> four;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(four.word[0]), "=r"(four.word[1]), "=r"(four.word[2]), "=r"(four.word[3])
                     : "l"(global(at))
                     : "memory");
        return four;
    }
    DEVICE static void store(u64 at, const Bits<16> &four) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(global(at)), "r"(four.word[0]), "r"(four.word[1]), "r"(four.word[2]), "r"(four.word[3])
                     : "memory");
    }
};
#else
template <int BYTES>
struct Memory {
    DEVICE static Bits<BYTES> load(u64 at) {
        Bits<BYTES> bits = {};
        memcpy(&bits, on_host(at, BYTES), BYTES);
        return bits;
    }
    DEVICE static void store(u64 at, const Bits<BYTES> &bits) {
        memcpy(on_host(at, BYTES), &bits, BYTES);
    }
};
#endif

// The same at any address: byte by byte where it is no multiple of the size, which a GPU would take for an error.
template <int BYTES>
DEVICE Bits<BYTES> load(u64 at, bool whole) {
    if (whole) {
        return Memory<BYTES>::load(at);
    }
    Bits<BYTES> bits = {};
    UNROLL
    for (int i = 0; i < BYTES; ++i) {
        bits.word[i / 4] |= Memory<1>::load(at + i).word[0] << (8 * (i % 4));
    }
    return bits;
}

template <int BYTES>
DEVICE void store(u64 at, const Bits<BYTES> &bits, bool whole) {
    if (whole) {
        return Memory<BYTES>::store(at, bits);
    }
    UNROLL
    for (int i = 0; i < BYTES; ++i) {
        Memory<1>::store(at + i, {{bits.word[i / 4] >> (8 * (i % 4))}});
    }
}

// The i-th element.
template <class Raw, int BYTES>
DEVICE Raw element(const Bits<BYTES> &bits, int i) {
    if (sizeof(Raw) == 8) {
        return Raw(u64(bits.word[2 * i]) | u64(bits.word[(2 * i + 1) % (BYTES < 4 ? 1 : BYTES / 4)]) << 32);
    }
    const int at = i * int(sizeof(Raw));
    return Raw(bits.word[at / 4] >> (8 * (at % 4)));
}

// Sets the i-th element of what was zero.
template <class Raw, int BYTES>
DEVICE void set(Bits<BYTES> &bits, int i, Raw raw) {
    if (sizeof(Raw) == 8) {
        bits.word[2 * i] = u32(u64(raw));
        bits.word[(2 * i + 1) % (BYTES < 4 ? 1 : BYTES / 4)] = u32(u64(raw) >> 32);
    } else {
        const int at = i * int(sizeof(Raw));
        bits.word[at / 4] |= u32(raw) << (8 * (at % 4));
    }
}
