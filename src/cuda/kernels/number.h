// How each element type is read, combined, divided and rounded: what src/reduce does on the processor, to the bit.
//
// A type's `Raw` is the unsigned integer of its bits; it is accumulated in `Wide`. The conversions are our own, so
// that the images hold nobody else's code; where all GPUs that we support have an instruction, that is used.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The bits of a float as a number of another type.
template <class To, class From>
DEVICE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

// Integers; sums and products wrap. What is narrower than 32 bits is accumulated in 32 and cut off at the end.
template <class RAW, class SIGNED, class WIDE, class WIDE_SIGNED, bool IS_SIGNED>
struct Integer {
    typedef RAW Raw;
    typedef WIDE Wide;

    DEVICE static Wide widen(Raw raw) {
        return IS_SIGNED ? Wide(WIDE_SIGNED(SIGNED(raw))) : Wide(raw);
    }
    DEVICE static Raw narrow(Wide wide) {
        return Raw(wide);
    }
    DEVICE static Wide larger(Wide a, Wide b) {
        return IS_SIGNED ? (WIDE_SIGNED(a) > WIDE_SIGNED(b) ? a : b) : (a > b ? a : b);
    }
    DEVICE static Wide smaller(Wide a, Wide b) {
        return IS_SIGNED ? (WIDE_SIGNED(a) < WIDE_SIGNED(b) ? a : b) : (a < b ? a : b);
    }
    // Toward zero, of the total as an element holds it.
    DEVICE static Wide over(Wide total, u32 ranks) {
        Wide whole = widen(narrow(total));
        return IS_SIGNED ? Wide(WIDE_SIGNED(whole) / WIDE_SIGNED(ranks)) : whole / Wide(ranks);
    }
    DEVICE static Wide canonical(Wide total) {
        return total;
    }
};

typedef Integer<u8, signed char, u32, int, true> int8;
typedef Integer<u8, signed char, u32, int, false> uint8;
typedef Integer<u16, short, u32, int, true> int16;
typedef Integer<u16, short, u32, int, false> uint16;
typedef Integer<u32, int, u32, int, true> int32;
typedef Integer<u32, int, u32, int, false> uint32;
typedef Integer<u64, long long, u64, long long, true> int64;
typedef Integer<u64, long long, u64, long long, false> uint64;

// IEEE 754-2019's maximum and minimum: NaN wins, and +0 is larger than -0. Where the two comparisons differ, "or"
// keeps a NaN a NaN and makes -0 of both zeros; for +0 the signs are taken by "and".
template <class Bits, class Float>
DEVICE Float larger_float(Float x, Float y) {
    const Bits a = bits_as<Bits>(x > y ? x : y), b = bits_as<Bits>(y > x ? y : x);
    const Bits sign = Bits(1) << (8 * sizeof(Bits) - 1);
    return bits_as<Float>(Bits((a & b) | ((a | b) & ~sign)));
}

template <class Bits, class Float>
DEVICE Float smaller_float(Float x, Float y) {
    const Bits a = bits_as<Bits>(x < y ? x : y), b = bits_as<Bits>(y < x ? y : x);
    return bits_as<Float>(Bits(a | b));
}

// What is accumulated in float32.
struct InFloat32 {
    typedef float Wide;

    DEVICE static float larger(float x, float y) {
#ifdef __CUDA_ARCH__
        float result;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
        return result;
#else
        return larger_float<u32>(x, y);
#endif
    }
    DEVICE static float smaller(float x, float y) {
#ifdef __CUDA_ARCH__
        float result;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
        return result;
#else
        return smaller_float<u32>(x, y);
#endif
    }
    DEVICE static float over(float total, u32 ranks) {
        return total / float(ranks);
    }
    // One NaN for all.
    DEVICE static float canonical(float total) {
        return total != total ? bits_as<float>(0x7fc00000u) : total;
    }
};

struct float32 : InFloat32 {
    typedef u32 Raw;

    DEVICE static float widen(u32 raw) {
        return bits_as<float>(raw);
    }
    DEVICE static u32 narrow(float wide) {
        return bits_as<u32>(wide);
    }
};

struct float64 {
    typedef u64 Raw;
    typedef double Wide;

    DEVICE static double widen(u64 raw) {
        return bits_as<double>(raw);
    }
    DEVICE static u64 narrow(double wide) {
        return bits_as<u64>(wide);
    }
    DEVICE static double larger(double x, double y) {
        return larger_float<u64>(x, y);
    }
    DEVICE static double smaller(double x, double y) {
        return smaller_float<u64>(x, y);
    }
    DEVICE static double over(double total, u32 ranks) {
        return total / double(ranks);
    }
    DEVICE static double canonical(double total) {
        return total != total ? bits_as<double>(0x7ff8000000000000ull) : total;
    }
};

// The magnitude, in a float of E exponent and M mantissa bits, nearest to the float32 of these bits (no NaN), ties
// to even. Numbers that are too large give codes past the largest: the caller caps them. As in src/types/float8.rs.
template <int E, int M>
DEVICE u32 narrow_magnitude(u32 magnitude) {
    const u32 dropped = 23 - M, rebias = u32(127 - ((1 << (E - 1)) - 1)) << 23;
    const u32 odd = magnitude >> dropped & 1;
    const u32 normal = (magnitude - rebias + (1u << (dropped - 1)) - 1 + odd) >> dropped;
    // The unit of this number's last bit is the subnormals' unit: adding it lets the addition do the rounding.
    const u32 aligner = rebias + ((dropped + 1) << 23);
    const u32 subnormal = bits_as<u32>(bits_as<float>(magnitude) + bits_as<float>(aligner)) - aligner;
    return magnitude < rebias + (1u << 23) ? subnormal : normal;
}

const u32 MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000;

DEVICE u32 at_most(u32 a, u32 b) {
    return a < b ? a : b;
}

// The value of a float16, and the nearest one.
DEVICE float from_half(u16 raw) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(raw));
    return wide;
#else
    const u32 magnitude = raw & 0x7fff, placed = magnitude << 13, rebias = 112u << 23, one = rebias + (1u << 23);
    const u32 subnormal = bits_as<u32>(bits_as<float>(placed + one) - bits_as<float>(one));
    const u32 finite = magnitude < 0x400 ? subnormal : placed + rebias;
    return bits_as<float>((magnitude >= 0x7c00 ? placed | INFINITE : finite) | u32(raw >> 15) << 31);
#endif
}

struct float16 : InFloat32 {
    typedef u16 Raw;

    DEVICE static float widen(u16 raw) {
        return from_half(raw);
    }
    DEVICE static u16 narrow(float wide) {
        if (wide != wide) {
            return 0x7e00;
        }
#ifdef __CUDA_ARCH__
        u16 raw;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(wide));
        return raw;
#else
        const u32 bits = bits_as<u32>(wide);
        return u16((bits >> 16 & 0x8000) | at_most(narrow_magnitude<5, 10>(bits & MAGNITUDE), 0x7c00));
#endif
    }
};

struct bfloat16 : InFloat32 {
    typedef u16 Raw;

    DEVICE static float widen(u16 raw) {
        return bits_as<float>(u32(raw) << 16);
    }
    DEVICE static u16 narrow(float wide) {
        const u32 bits = bits_as<u32>(wide);
        return wide != wide ? u16(0x7fc0) : u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

struct float8e4m3 : InFloat32 {
    typedef u8 Raw;

    // As a float16 it has the exponent that is too small by eight; all its numbers are exact there.
    DEVICE static float widen(u8 raw) {
        const u32 magnitude = raw & 0x7f;
        const float scaled = from_half(u16((raw & 0x80) << 8 | magnitude << 7)) * 256.0f;
        return magnitude == 0x7f ? bits_as<float>(0x7fc00000u) : scaled;
    }
    // Numbers beyond 448, infinities too, become 448.
    DEVICE static u8 narrow(float wide) {
        const u32 bits = bits_as<u32>(wide), magnitude = bits & MAGNITUDE;
        const u32 rounded = at_most(narrow_magnitude<4, 3>(magnitude), 0x7e);
        return u8((bits >> 24 & 0x80) | (magnitude > INFINITE ? 0x7f : rounded));
    }
};

struct float8e5m2 : InFloat32 {
    typedef u8 Raw;

    // The upper half of a float16.
    DEVICE static float widen(u8 raw) {
        return from_half(u16(raw << 8));
    }
    // Finite numbers beyond 57344 become 57344.
    DEVICE static u8 narrow(float wide) {
        const u32 bits = bits_as<u32>(wide), magnitude = bits & MAGNITUDE;
        const u32 rounded = at_most(narrow_magnitude<5, 2>(magnitude), 0x7b);
        const u32 special = magnitude > INFINITE ? 0x7e : 0x7c;
        return u8((bits >> 24 & 0x80) | (magnitude >= INFINITE ? special : rounded));
    }
};
