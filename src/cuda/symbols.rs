//! The driver's functions that are used, as `cuda.h` declares them for CUDA 12.2, by their names in `libcuda.so.1`.
//!
//! Results are plain numbers and no enum: newer drivers have numbers that are not known here.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    path::Path,
};

use libloading::Library;

/// `CUcontext`.
pub(super) type RawContext = *mut c_void;
/// `CUstream`.
pub(super) type RawStream = *mut c_void;
/// `CUmodule`.
pub(super) type RawModule = *mut c_void;
/// `CUfunction`.
pub(super) type RawFunction = *mut c_void;
/// `CUipcMemHandle`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct IpcHandle(pub(super) [u8; 64]);
/// `CUdeviceptr`.
pub(super) type Address = u64;
/// `CUevent`.
pub(super) type RawEvent = *mut c_void;
/// `CUgraph`, or `CUgraphExec`.
pub(super) type RawGraph = *mut c_void;
/// `CUuserObject`.
pub(super) type RawObject = *mut c_void;
/// `CUstreamBatchMemOpParams` of those that write and wait.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct MemOp {
    pub(super) operation: c_int,
    pub(super) address: Address,
    pub(super) value: u64,
    pub(super) flags: c_uint,
    pub(super) alias: Address,
    pub(super) rest: u64,
}
const _: () = assert!(size_of::<MemOp>() == 48);

macro_rules! symbols {
    (
        all: { $($(#[$meta:meta])* $field:ident = $symbol:literal ($($argument:ty),* $(,)?);)* }
        newer: { $($new_field:ident = $new_symbol:literal ($($new_argument:ty),* $(,)?);)* }
    ) => {
        /// What `libcuda.so.1` exports of these.
        pub(super) struct Symbols {
            $($(#[$meta])* pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            $(pub(super) $new_field: Option<unsafe extern "C" fn($($new_argument),*) -> c_int>,)*
        }

        impl Symbols {
            /// Finds them all, and of those that newer drivers have what is there.
            ///
            /// # Errors
            /// The name of the first that is not there.
            ///
            /// # Safety
            /// The library is NVIDIA's, or has the same functions; it stays loaded.
            pub(super) unsafe fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Symbols {
                    $(
                        $(#[$meta])*
                        // SAFETY: the caller's promise: the function has this type, and stays.
                        $field: unsafe {
                            *library
                                .get(concat!($symbol, "\0").as_bytes())
                                .map_err(|_| $symbol)?
                        },
                    )*
                    $(
                        // SAFETY: as above.
                        $new_field: unsafe { library.get(concat!($new_symbol, "\0").as_bytes()) }
                            .ok()
                            .map(|found| *found),
                    )*
                })
            }
        }
    };
}

symbols! {
    all: {
        error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        error_text = "cuGetErrorString"(c_int, *mut *const c_char);
        device = "cuDeviceGet"(*mut c_int, c_int);
        pci_address = "cuDeviceGetPCIBusId"(*mut c_char, c_int, c_int);
        retain_primary = "cuDevicePrimaryCtxRetain"(*mut RawContext, c_int);
        push = "cuCtxPushCurrent_v2"(RawContext);
        pop = "cuCtxPopCurrent_v2"(*mut RawContext);
        current = "cuCtxGetCurrent"(*mut RawContext);
        context_device = "cuCtxGetDevice"(*mut c_int);
        context_id = "cuCtxGetId"(RawContext, *mut u64);
        pointer_attributes = "cuPointerGetAttributes"(c_uint, *mut c_int, *mut *mut c_void, Address);
        address_range = "cuMemGetAddressRange_v2"(*mut Address, *mut usize, Address);
        register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        unregister = "cuMemHostUnregister"(*mut c_void);
        device_address = "cuMemHostGetDevicePointer_v2"(*mut Address, *mut c_void, c_uint);
        to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, RawStream);
        to_device = "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, RawStream);
        stream_context = "cuStreamGetCtx"(RawStream, *mut RawContext);
        stream_id = "cuStreamGetId"(RawStream, *mut u64);
        capture_info = "cuStreamGetCaptureInfo_v2"(
            RawStream, *mut c_int, *mut u64, *mut RawGraph, *mut *const c_void, *mut usize,
        );
        write_value = "cuStreamWriteValue32_v2"(RawStream, Address, u32, c_uint);
        batch = "cuStreamBatchMemOp_v2"(RawStream, c_uint, *mut MemOp, c_uint);
        create_event = "cuEventCreate"(*mut RawEvent, c_uint);
        destroy_event = "cuEventDestroy_v2"(RawEvent);
        record_event = "cuEventRecord"(RawEvent, RawStream);
        query_event = "cuEventQuery"(RawEvent);
        wait_event = "cuStreamWaitEvent"(RawStream, RawEvent, c_uint);
        create_object = "cuUserObjectCreate"(
            *mut RawObject, *mut c_void, unsafe extern "C" fn(*mut c_void), c_uint, c_uint,
        );
        release_object = "cuUserObjectRelease"(RawObject, c_uint);
        retain_object = "cuGraphRetainUserObject"(RawGraph, RawObject, c_uint, c_uint);
        init = "cuInit"(c_uint);
        device_count = "cuDeviceGetCount"(*mut c_int);
        allocate = "cuMemAlloc_v2"(*mut Address, usize);
        free = "cuMemFree_v2"(Address);
        create_stream = "cuStreamCreate"(*mut RawStream, c_uint);
        #[cfg(feature = "cli")]
        begin_capture = "cuStreamBeginCapture_v2"(RawStream, c_int);
        #[cfg(feature = "cli")]
        end_capture = "cuStreamEndCapture"(RawStream, *mut RawGraph);
        #[cfg(feature = "cli")]
        instantiate = "cuGraphInstantiateWithFlags"(*mut RawGraph, RawGraph, u64);
        #[cfg(feature = "cli")]
        launch_graph = "cuGraphLaunch"(RawGraph, RawStream);
        #[cfg(feature = "cli")]
        destroy_graph = "cuGraphDestroy"(RawGraph);
        #[cfg(feature = "cli")]
        destroy_launched = "cuGraphExecDestroy"(RawGraph);
        synchronize = "cuStreamSynchronize"(RawStream);
        copy = "cuMemcpyDtoDAsync_v2"(Address, Address, usize, RawStream);
        attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        load_module = "cuModuleLoadData"(*mut RawModule, *const c_void);
        unload_module = "cuModuleUnload"(RawModule);
        function = "cuModuleGetFunction"(*mut RawFunction, RawModule, *const c_char);
        launch = "cuLaunchKernel"(
            RawFunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, RawStream, *mut *mut c_void, *mut *mut c_void,
        );
        enable_peer = "cuCtxEnablePeerAccess"(RawContext, c_uint);
        export = "cuIpcGetMemHandle"(*mut IpcHandle, Address);
        import = "cuIpcOpenMemHandle_v2"(*mut Address, IpcHandle, c_uint);
        wait_value = "cuStreamWaitValue32_v2"(RawStream, Address, u32, c_uint);
    }
    newer: {
        load_function = "cuFuncLoad"(RawFunction);
        exchange_mode = "cuThreadExchangeStreamCaptureMode"(*mut c_int);
    }
}

/// Where the dynamic loader finds the driver.
pub(super) fn file() -> &'static Path {
    Path::new("libcuda.so.1")
}
