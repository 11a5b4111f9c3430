//! Memory of CUDA devices from Rust, with the stand-in for the driver of `tests/cuda/libcuda.c`, which this program loads.
#![cfg(feature = "cuda")]

mod common;

use ccl::{Collective, CudaStream, DType, DeviceMemory, Op};
use common::{compile, config, with_ranks};
use libloading::Library;
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
    sync::LazyLock,
};

/// The stand-in, compiled and loaded: its folder may be gone then.
static DRIVER: LazyLock<Library> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    compile::cuda_driver(&library, &[]);
    // SAFETY: it has no initialisers.
    unsafe { Library::new(&library) }.unwrap()
});

/// Calls a function of the stand-in that returns 0 when all is well.
macro_rules! cuda {
    ($name:ident($($argument:expr => $type:ty),*)) => {{
        // SAFETY: the function is declared so in `tests/cuda/fake.h`.
        let result: c_int = unsafe {
            let function = DRIVER.get::<unsafe extern "C" fn($($type),*) -> c_int>(stringify!($name)).unwrap();
            function($($argument),*)
        };
        assert_eq!(result, 0, stringify!($name));
    }};
}

/// Makes device 0 the thread's current one: a stream.
fn stream() -> *mut c_void {
    let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
    cuda!(cuDevicePrimaryCtxRetain(&raw mut context => *mut *mut c_void, 0 => c_int));
    cuda!(cuCtxPushCurrent_v2(context => *mut c_void));
    cuda!(cuStreamCreate(&raw mut stream => *mut *mut c_void, 1 => c_uint));
    stream
}

fn device(data: &[f32]) -> DeviceMemory {
    let (mut at, bytes) = (0u64, size_of_val(data));
    cuda!(cuMemAlloc_v2(&raw mut at => *mut u64, bytes => usize));
    cuda!(cuMemcpyHtoD_v2(at => u64, data.as_ptr() => *const f32, bytes => usize));
    // SAFETY: it is never freed, and used by nothing but the operations, which the test waits for.
    unsafe { DeviceMemory::from_raw(ptr::without_provenance_mut(at as usize), bytes) }
}

fn host(at: *const c_void, len: usize) -> Vec<f32> {
    let mut data = vec![0f32; len];
    cuda!(cuMemcpyDtoH_v2(data.as_mut_ptr() => *mut f32, at.addr() as u64 => u64, size_of_val(&data[..]) => usize));
    data
}

#[test]
fn operations_go_on_in_a_stream_of_the_device() {
    const LEN: usize = 10_007;
    LazyLock::force(&DRIVER);
    with_ranks(3, &config(), |comm| {
        let (me, raw) = (comm.rank(), stream());
        // SAFETY: the stream stays.
        let on = comm.on_cuda(unsafe { CudaStream::from_raw(raw) });
        let value = |rank: usize, i: usize| (rank * 100 + i % 91) as f32;
        let all = |rank| (0..LEN).map(|i| value(rank, i)).collect::<Vec<_>>();
        let (send, recv, sum) = (
            device(&all(me)),
            device(&vec![-1.0; LEN]),
            device(&vec![-1.0; LEN]),
        );
        let what = (LEN, DType::Float32, Op::Sum);
        on.collective(Collective::AllReduce, [Some(send), Some(sum)], what)
            .unwrap();
        on.send(send, DType::Float32, (me + 1) % 3, 0).unwrap();
        on.recv(recv, DType::Float32, (me + 2) % 3).unwrap();
        on.barrier().unwrap();
        cuda!(cuStreamSynchronize(raw => *mut c_void));
        let expected: Vec<f32> = (0..LEN)
            .map(|i| (0..3).map(|rank| value(rank, i)).sum())
            .collect();
        assert_eq!(host(sum.as_ptr(), LEN), expected);
        assert_eq!(host(recv.as_ptr(), LEN), all((me + 2) % 3));

        // What a rank has no part of stays as it is.
        let root = Collective::Reduce { root: 1 };
        on.collective(root, [Some(send), Some(recv)], what).unwrap();
        cuda!(cuStreamSynchronize(raw => *mut c_void));
        let reduced = if me == 1 { expected } else { all((me + 2) % 3) };
        assert_eq!(host(recv.as_ptr(), LEN), reduced);

        let too_long = (LEN + 1, DType::Float32, Op::Sum);
        let refused = on.collective(Collective::AllReduce, [Some(send), Some(recv)], too_long);
        assert!(refused.unwrap_err().to_string().contains("send buffer has"));
        let mut ours = vec![0f32; LEN];
        // SAFETY: it is refused.
        let ours = unsafe { DeviceMemory::from_raw(ours.as_mut_ptr().cast(), LEN * 4) };
        let refused = on.collective(Collective::AllReduce, [Some(ours), Some(recv)], what);
        assert!(refused.unwrap_err().to_string().contains("one kind"));
    });
}
