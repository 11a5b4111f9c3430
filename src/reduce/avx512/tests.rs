//! The conversions of 64 elements beside those of one.

use super::super::kernels::Way;
use super::*;

/// Compares both conversions with those of single elements, to the bit. The floats are those of all codes, their
/// neighbours, the middles of two codes with theirs, and some of any bits.
fn agree<T: Chunk>(name: &str, codes: usize, code: fn(usize) -> T, bits: fn(T) -> u32) {
    if !Way::Avx512.is_there() {
        // It has no kernels of this kind either.
        println!("counted: none of {name}, as the processor has no AVX-512 as Ice Lake has it");
        return;
    }
    let place = places(code);
    let mut random = fastrand::Rng::with_seed(9);
    for start in (0..codes).step_by(64) {
        let small: [T; 64] = std::array::from_fn(|i| code(start + i));
        let mut wide = [0.0f32; 64];
        // SAFETY: 64 elements lie there, `Chunked` is transparent, and the processor has the instructions.
        unsafe { Chunked::<T>::load::<64>(small.as_ptr().cast(), |i, value| wide[i] = value) };
        for (wide, i) in wide.iter().zip(place) {
            let alone = small[i].widen();
            // The processor's own conversion from float16 makes a NaN quiet.
            let is_same =
                wide.to_bits() == alone.to_bits() || name == "float16" && wide.is_nan() && alone.is_nan();
            assert!(is_same, "{name} {:#x}: {wide:e} and {alone:e}", start + i);
        }
        for middle in [0, 1] {
            for change in [-1, 0, 1] {
                let near = |&wide: &f32| {
                    let next = code((bits(T::narrow(wide)) as usize + middle) % codes).widen();
                    f32::from_bits(((wide + next) / 2.0).to_bits().wrapping_add_signed(change))
                };
                rounded_alike::<T>(name, &place, &wide.each_ref().map(near));
            }
        }
    }
    for _ in 0..5000 {
        rounded_alike::<T>(
            name,
            &place,
            &std::array::from_fn(|_| f32::from_bits(random.u32(..))),
        );
        // Of exponents that small floats have, or nearly.
        let near = |_| f32::from_bits(random.u32(..) & 0x807f_ffff | random.u32(95..150) << 23);
        rounded_alike::<T>(name, &place, &std::array::from_fn(near));
    }
}

fn rounded_alike<T: Chunk>(name: &str, place: &[usize; 64], wide: &[f32; 64]) {
    // No other NaN is written.
    let wide = wide.map(|x| if x.is_nan() { T::narrow(x).widen() } else { x });
    let mut narrow = vec![0u8; 64 * size_of::<T>()];
    // SAFETY: as in `agree`, with room for 64 elements.
    unsafe { Chunked::<T>::store::<64>(narrow.as_mut_ptr().cast(), |i| wide[place[i]]) };
    for (i, bytes) in narrow.chunks(size_of::<T>()).enumerate() {
        let alone = [T::narrow(wide[i])];
        // SAFETY: an element is plain bytes.
        let alone = unsafe { std::slice::from_raw_parts(alone.as_ptr().cast::<u8>(), size_of::<T>()) };
        assert_eq!(bytes, alone, "{name} of {:e} ({:#x})", wide[i], wide[i].to_bits());
    }
}

/// The element that each accumulator belongs to.
fn places<T: Chunk>(code: fn(usize) -> T) -> [usize; 64] {
    // All different, and none of them NaN.
    let small: [T; 64] = std::array::from_fn(|i| code(1 + i));
    let mut place = [0; 64];
    let find = |i: usize, value: f32| {
        place[i] = small
            .iter()
            .position(|other| other.widen() == value)
            .expect("a value that was put in");
    };
    // SAFETY: as in `agree`.
    unsafe { Chunked::<T>::load::<64>(small.as_ptr().cast(), find) };
    place
}

#[test]
fn conversions_are_those_of_single_elements() {
    agree("E4M3", 256, |code| F8E4M3(code as u8), |small| small.0.into());
    agree("E5M2", 256, |code| F8E5M2(code as u8), |small| small.0.into());
    agree(
        "bfloat16",
        1 << 16,
        |code| bf16::from_bits(code as u16),
        |small| small.to_bits().into(),
    );
    agree(
        "float16",
        1 << 16,
        |code| f16::from_bits(code as u16),
        |small| small.to_bits().into(),
    );
}
