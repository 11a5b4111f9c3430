//! How fast the reduction kernels are beside a plain copy that reads and writes as many bytes in all.

use ccl::bench_support::reduce;
use ccl::types::{DType, Op};
use std::{hint::black_box, time::Instant};

/// Bytes of a vector that lies in the first-level cache, the second-level cache, and memory.
const SIZES: [usize; 3] = [8 << 10, 256 << 10, 16 << 20];

const OPS: [Op; 4] = [Op::Sum, Op::Prod, Op::Max, Op::Avg];

/// Prints a table for each size: the copy's time over the kernel's, of 2, 3 and 4 sources, and the smallest of them.
pub(crate) fn print() {
    for len in SIZES {
        let mut memory = Memory::new(len);
        println!("\n{len} bytes a vector; the copy's time over the kernel's, of 2, 3 and 4 sources");
        println!(
            "{:>10}{}",
            "",
            OPS.map(|op| format!("  {:^17}", op.to_string())).concat()
        );
        let mut worst = (f64::MAX, String::new());
        for dtype in DType::ALL {
            let mut line = format!("{:>10}", dtype.name());
            for op in OPS {
                let ratios = [
                    memory.ratio::<2>(op, dtype),
                    memory.ratio::<3>(op, dtype),
                    memory.ratio::<4>(op, dtype),
                ];
                for (sources, ratio) in (2..).zip(ratios) {
                    if ratio < worst.0 {
                        worst = (ratio, format!("{op} of {sources} x {dtype}"));
                    }
                }
                line += &format!("  {:5.2} {:5.2} {:5.2}", ratios[0], ratios[1], ratios[2]);
            }
            println!("{line}");
        }
        println!("the smallest: {:.2}, {}", worst.0, worst.1);
    }
}

/// What kernels and copies work on. Each vector begins at the first cache line in it, as buffers for communication mostly do, and
/// has one line more than is used.
struct Memory {
    sources: [Vec<u8>; 4],
    out: Vec<u8>,
    /// As long as what a copy moves in the place of four sources and a result.
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Memory {
    /// For vectors of `len` bytes.
    fn new(len: usize) -> Memory {
        let [from, to] = [(); 2].map(|()| super::vector(len * 5 / 2 + LINE));
        Memory {
            sources: [(); 4].map(|()| super::vector(len + LINE)),
            out: super::vector(len + LINE),
            from,
            to,
        }
    }

    /// The time of a copy over that of the kernel.
    fn ratio<const K: usize>(&mut self, op: Op, dtype: DType) -> f64 {
        let (len, moved) = (self.out.len() - LINE, (self.out.len() - LINE) * (K + 1) / 2);
        let sources: [&[u8]; K] = std::array::from_fn(|k| &self.sources[k][line(&self.sources[k])..][..len]);
        let at = line(&self.out);
        let out = &mut self.out[at..][..len];
        let (from, at) = (&self.from[line(&self.from)..][..moved], line(&self.to));
        let to = &mut self.to[at..][..moved];
        let (mut copy, mut kernel) = (f64::MAX, f64::MAX);
        // In turn, so that both have the processor in the same moods; the least, as others only add.
        for _ in 0..ROUNDS {
            copy = copy.min(time(len, || black_box(&mut *to).copy_from_slice(black_box(from))));
            kernel = kernel.min(time(len, || {
                reduce(op, dtype, black_box(sources), black_box(&mut *out));
            }));
        }
        copy / kernel
    }
}

/// Where a vector's first whole cache line begins.
fn line(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(LINE)
}

/// Nanoseconds of one call on vectors of `len` bytes, over as many calls as last some hundred microseconds.
fn time(len: usize, mut call: impl FnMut()) -> f64 {
    let calls = (2_000_000 / len).clamp(1, 500);
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / calls as f64
}

const ROUNDS: usize = 5;

/// Bytes of a cache line.
const LINE: usize = 64;
