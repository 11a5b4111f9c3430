//! What is needed of libibverbs: its structs, and its functions, loaded at run time. The structs are those of the library's
//! stable binary interface (IBVERBS_1.1), of which later versions only append.

use libloading::os::unix::Library;
use std::{
    error::Error,
    ffi::{c_char, c_int, c_void},
    sync::OnceLock,
};

/// `struct ibv_context` as far as it is used.
#[repr(C)]
pub(crate) struct RawContext {
    pub(crate) device: *mut c_void,
    pub(crate) ops: [*mut c_void; 32],
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
}

/// The places of `struct ibv_context_ops` that have no function in the library.
const POLL_CQ: usize = 11;
const REQ_NOTIFY_CQ: usize = 12;
const POST_SEND: usize = 25;
const POST_RECV: usize = 26;

#[repr(C)]
pub(crate) struct Channel {
    pub(crate) context: *mut RawContext,
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut RawContext,
}

#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut RawContext,
    pub(crate) pointers: [*mut c_void; 5],
    pub(crate) handle: u32,
    pub(crate) number: u32,
}

#[repr(C)]
pub(crate) struct Mr {
    pub(crate) pointers: [*mut c_void; 3],
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) flags: u32,
    pub(crate) rest: [u32; 2],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWr,
    pub(crate) sg_list: *const Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) imm: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) rest: [u64; 9],
}

#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut RecvWr,
    pub(crate) sg_list: *const Sge,
    pub(crate) num_sge: c_int,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Cap {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
}

#[repr(C)]
pub(crate) struct QpInit {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: Cap,
    pub(crate) kind: u32,
    pub(crate) sig_all: c_int,
}

#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
pub(crate) struct Ah {
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) state: u32,
    pub(crate) cur_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) access: u32,
    pub(crate) cap: Cap,
    pub(crate) ah: Ah,
    pub(crate) alt_ah: Ah,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `struct ibv_port_attr`, with room for what later versions append.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Port {
    pub(crate) state: u32,
    pub(crate) max_mtu: u32,
    pub(crate) active_mtu: u32,
    pub(crate) gids: c_int,
    pub(crate) caps: u32,
    pub(crate) max_msg: u32,
    pub(crate) counters: [u32; 2],
    pub(crate) pkeys: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) small: [u8; 8],
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) rest: [u32; 16],
}

/// The head of `struct ibv_device_attr`, with room for the rest of it.
#[repr(C)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [u8; 64],
    pub(crate) ids: [u64; 4],
    pub(crate) vendor: [u32; 3],
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) caps: u32,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) rest: [u64; 48],
}

#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) element: *mut c_void,
    pub(crate) kind: u32,
}

/// Protection domain, offset, length, address in requests, descriptor, access.
pub(crate) type RegisterDmabuf = unsafe extern "C" fn(*mut c_void, u64, usize, u64, c_int, c_int) -> *mut Mr;

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) -> $out:ty;)*) => {
        /// The library's functions. It stays loaded.
        pub(crate) struct Verbs {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $out,)*
            /// `ibv_reg_dmabuf_mr`, which came with rdma-core 34.
            pub(crate) reg_dmabuf_mr: Option<RegisterDmabuf>,
        }

        #[cfg(test)]
        impl Verbs {
            /// Functions none of which is to be called.
            pub(crate) fn for_test() -> Verbs {
                Verbs {
                    $($name: {
                        unsafe extern "C" fn never($(_: $arg),*) -> $out {
                            unreachable!(stringify!($name))
                        }
                        never
                    },)*
                    reg_dmabuf_mr: None,
                }
            }
        }

        fn load() -> Result<Verbs, String> {
            // SAFETY: the library's start has no demands of its own.
            let library = unsafe { Library::new("libibverbs.so.1") }
                .map_err(|why| {
                    let why = why.source().map_or_else(|| why.to_string(), ToString::to_string);
                    format!("libibverbs.so.1 cannot be loaded ({why}): install rdma-core (Debian: libibverbs1, ibverbs-providers)")
                })?;
            let verbs = Verbs {
                // SAFETY: functions of these names have these types.
                $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                    .map_err(|why| format!("libibverbs.so.1 lacks a function: {why}"))?,)*
                // SAFETY: as above.
                reg_dmabuf_mr: unsafe { library.get(b"ibv_reg_dmabuf_mr\0") }.ok().map(|found| *found),
            };
            std::mem::forget(library);
            // What is registered is not for forked children, whose writes would take its pages from the device. It refuses where
            // memory was registered before: then somebody else has decided that.
            // SAFETY: no demands.
            unsafe { (verbs.ibv_fork_init)() };
            Ok(verbs)
        }
    };
}

functions! {
    ibv_fork_init: fn() -> c_int;
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut c_void;
    ibv_free_device_list: fn(*mut *mut c_void) -> ();
    ibv_get_device_name: fn(*mut c_void) -> *const c_char;
    ibv_open_device: fn(*mut c_void) -> *mut RawContext;
    ibv_close_device: fn(*mut RawContext) -> c_int;
    ibv_query_device: fn(*mut RawContext, *mut DeviceAttr) -> c_int;
    ibv_query_port: fn(*mut RawContext, u8, *mut Port) -> c_int;
    ibv_query_gid: fn(*mut RawContext, u8, c_int, *mut [u8; 16]) -> c_int;
    ibv_alloc_pd: fn(*mut RawContext) -> *mut c_void;
    ibv_dealloc_pd: fn(*mut c_void) -> c_int;
    ibv_reg_mr: fn(*mut c_void, *mut c_void, usize, c_int) -> *mut Mr;
    ibv_dereg_mr: fn(*mut Mr) -> c_int;
    ibv_create_comp_channel: fn(*mut RawContext) -> *mut Channel;
    ibv_destroy_comp_channel: fn(*mut Channel) -> c_int;
    ibv_create_cq: fn(*mut RawContext, c_int, *mut c_void, *mut Channel, c_int) -> *mut Cq;
    ibv_destroy_cq: fn(*mut Cq) -> c_int;
    ibv_get_cq_event: fn(*mut Channel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut Cq, u32) -> ();
    ibv_get_async_event: fn(*mut RawContext, *mut AsyncEvent) -> c_int;
    ibv_ack_async_event: fn(*mut AsyncEvent) -> ();
    ibv_create_qp: fn(*mut c_void, *mut QpInit) -> *mut Qp;
    ibv_modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut Qp) -> c_int;
    ibv_wc_status_str: fn(u32) -> *const c_char;
    ibv_event_type_str: fn(u32) -> *const c_char;
}

/// The library, or why there is none.
pub(crate) fn verbs() -> Result<&'static Verbs, String> {
    static VERBS: OnceLock<Result<Verbs, String>> = OnceLock::new();
    VERBS.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// `ibv_poll_cq`.
///
/// # Safety
/// The queue lives.
pub(crate) unsafe fn poll_cq(cq: *mut Cq, into: &mut [Wc]) -> c_int {
    type F = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
    // SAFETY: this place of the table has a function of this type, and the queue lives.
    unsafe {
        let f = std::mem::transmute::<*mut c_void, F>((*(*cq).context).ops[POLL_CQ]);
        f(cq, into.len() as c_int, into.as_mut_ptr())
    }
}

/// `ibv_req_notify_cq`, for every completion.
///
/// # Safety
/// The queue lives.
pub(crate) unsafe fn req_notify_cq(cq: *mut Cq) -> c_int {
    type F = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, F>((*(*cq).context).ops[REQ_NOTIFY_CQ])(cq, 0) }
}

/// `ibv_post_send`.
///
/// # Safety
/// The queue pair lives, the request and its list are sound.
pub(crate) unsafe fn post_send(qp: *mut Qp, wr: &mut SendWr) -> c_int {
    type F = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
    let mut bad = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, F>((*(*qp).context).ops[POST_SEND])(qp, wr, &mut bad) }
}

/// `ibv_post_recv` of a receive without memory: what comes is immediates.
///
/// # Safety
/// The queue pair lives.
pub(crate) unsafe fn post_recv(qp: *mut Qp) -> c_int {
    type F = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;
    let mut wr = RecvWr {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null(),
        num_sge: 0,
    };
    let mut bad = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, F>((*(*qp).context).ops[POST_RECV])(qp, &mut wr, &mut bad) }
}

macro_rules! offsets {
    ($of:ident $(= $size:literal)?: $($field:ident $at:literal),*) => {
        $(assert!(size_of::<$of>() == $size);)?
        $(assert!(std::mem::offset_of!($of, $field) == $at);)*
    };
}

// As a C program with the header of rdma-core 44.0 prints them, on x86-64: offsets, and sizes where nothing is left out.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DeviceAttr>() >= 232 && size_of::<Port>() >= 52);
    offsets!(RawContext: device 0, ops 8, cmd_fd 264, async_fd 268);
    offsets!(Channel: context 0, fd 8);
    offsets!(Cq: context 0);
    offsets!(Qp: context 0, handle 48, number 52);
    offsets!(Mr = 48: length 24, handle 32, lkey 36, rkey 40);
    offsets!(Wc = 48: wr_id 0, status 8, opcode 12, vendor_err 16, byte_len 20, imm 24, qp_num 28, src_qp 32, flags 36);
    offsets!(Sge = 16: addr 0, length 8, lkey 12);
    offsets!(SendWr = 128: wr_id 0, next 8, sg_list 16, num_sge 24, opcode 28, flags 32, imm 36, remote_addr 40, rkey 48);
    offsets!(RecvWr = 32: wr_id 0, next 8, sg_list 16, num_sge 24);
    offsets!(Cap = 20: send_wr 0, recv_wr 4, send_sge 8, recv_sge 12, inline 16);
    offsets!(QpInit = 64: qp_context 0, send_cq 8, recv_cq 16, srq 24, cap 32, kind 52, sig_all 56);
    offsets!(Ah = 32: dgid 0, flow_label 16, sgid_index 20, hop_limit 21, traffic_class 22, dlid 24, sl 26, src_path_bits 27, static_rate 28, is_global 29, port_num 30);
    offsets!(QpAttr = 144: state 0, path_mtu 8, rq_psn 20, sq_psn 24, dest_qp_num 28, access 32, cap 36, ah 56, alt_ah 88, pkey_index 120, max_rd_atomic 126, max_dest_rd_atomic 127, min_rnr_timer 128, port_num 129, timeout 130, retry_cnt 131, rnr_retry 132, rate_limit 136);
    offsets!(Port: state 0, active_mtu 8, gids 12, max_msg 20, lid 34, link_layer 46);
    offsets!(DeviceAttr: max_qp 108, max_qp_wr 112, max_sge 120, max_mr 136, max_pd 140);
    offsets!(AsyncEvent = 16: element 0, kind 8);
};
