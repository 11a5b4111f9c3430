//! [`Memory`]: what a device may read and write.

use crate::{
    device::Device,
    verbs::{Mr, Verbs},
};
use std::{
    ffi::{c_int, c_void},
    io,
};

/// `ccl_net_memory`: a registered piece.
pub(crate) struct Memory {
    raw: *mut Mr,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Memory {
    /// Memory for writes, from here and from the other side.
    ///
    /// # Errors
    /// The system's reason, with the limit that is in the way if it is one.
    pub(crate) fn register(device: &Device, address: *mut c_void, len: usize) -> Result<Box<Memory>, String> {
        // SAFETY: the caller's memory, which it deregisters before it frees it.
        let raw = unsafe { (device.verbs.ibv_reg_mr)(device.pd, address, len, LOCAL_AND_REMOTE_WRITE) };
        Memory::of(device, raw, "ibv_reg_mr")
    }

    /// The same for a piece of a dma-buf.
    ///
    /// # Errors
    /// As [`register`](Memory::register); and where the library, the kernel or the card's driver cannot.
    pub(crate) fn register_dmabuf(device: &Device, piece: &Piece) -> Result<Box<Memory>, String> {
        let Some(register) = device.verbs.reg_dmabuf_mr else {
            return Err(format!(
                "{device}: libibverbs.so.1 has no {DMABUF}: rdma-core 34 or later is needed"
            ));
        };
        let Piece {
            fd,
            offset,
            address,
            len,
        } = *piece;
        // SAFETY: the protection domain lives; what is behind the descriptor the kernel keeps.
        let raw = unsafe { register(device.pd, offset, len, address, fd, LOCAL_AND_REMOTE_WRITE) };
        Memory::of(device, raw, DMABUF)
    }

    fn of(device: &Device, raw: *mut Mr, name: &str) -> Result<Box<Memory>, String> {
        if raw.is_null() {
            return Err(format!("{device}: {}", reason(name)));
        }
        // SAFETY: it was just made.
        let (lkey, rkey) = unsafe { ((*raw).lkey, (*raw).rkey) };
        Ok(Box::new(Memory { raw, lkey, rkey }))
    }

    pub(crate) fn deregister(self, verbs: &Verbs) {
        // SAFETY: nothing writes there any more: the connections are gone.
        unsafe { (verbs.ibv_dereg_mr)(self.raw) };
    }
}

/// A piece of a dma-buf, in the order in which [`ccl_net.h`](crate) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) fd: c_int,
    /// From the start of the buffer.
    pub(crate) offset: u64,
    /// What its first byte is called in requests.
    pub(crate) address: u64,
    pub(crate) len: usize,
}

const LOCAL_AND_REMOTE_WRITE: i32 = 3;
const DMABUF: &str = "ibv_reg_dmabuf_mr";

/// Why the function `what` failed just now, with what to do about it. Queues take locked memory, as what is registered does.
pub(crate) fn reason(what: &str) -> String {
    let why = io::Error::last_os_error();
    let advice = advice(what, why.raw_os_error(), locked_memory());
    format!("{what}: {why}{advice}")
}

/// The limit of locked memory in bytes, if there is one.
fn locked_memory() -> Option<u64> {
    // SAFETY: all bytes zero are a value of it, and the call fills it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit);
        limit.rlim_cur
    };
    (limit != libc::RLIM_INFINITY).then_some(limit)
}

/// What to do where the function `what` had no memory.
fn advice(what: &str, status: Option<i32>, limit: Option<u64>) -> String {
    match (status, limit) {
        (Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM), Some(limit)) => format!(
            "; the limit of locked memory (RLIMIT_MEMLOCK) is {} KiB: raise it by `ulimit -l unlimited`, \
             or memlock in /etc/security/limits.conf, or LimitMEMLOCK= of a service",
            limit / 1024
        ),
        (Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT), _) if what == DMABUF => {
            "; the card's driver cannot register dma-bufs: its memory goes through the host's".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Mr, Verbs};
    use std::sync::Mutex;

    type Call = (usize, u64, usize, u64, c_int, c_int);
    static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());

    /// Notes its arguments, and gives memory with keys that tell of them.
    unsafe extern "C" fn note(
        pd: *mut c_void,
        offset: u64,
        len: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut Mr {
        CALLS
            .lock()
            .unwrap()
            .push((pd.addr(), offset, len, iova, fd, access));
        if fd < 0 {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
            return std::ptr::null_mut();
        }
        Box::into_raw(Box::new(Mr {
            pointers: [std::ptr::null_mut(); 3],
            length: len,
            handle: 0,
            lkey: 7,
            rkey: 9,
        }))
    }

    unsafe extern "C" fn give_back(mr: *mut Mr) -> c_int {
        // SAFETY: one of `note`'s.
        drop(unsafe { Box::from_raw(mr) });
        0
    }

    #[test]
    fn a_piece_of_a_dmabuf_is_registered_as_it_is_said() {
        let mut verbs = Verbs::for_test();
        verbs.reg_dmabuf_mr = Some(note);
        verbs.ibv_dereg_mr = give_back;
        let verbs: &'static Verbs = Box::leak(Box::new(verbs));
        let device = std::mem::ManuallyDrop::new(Device::for_test(verbs, "mlx5_2", 1));
        // A tensor that begins inside of an allocation: the fd is of the whole, the address is the tensor's own.
        let piece = Piece {
            fd: 5,
            offset: 0x1_2000,
            address: 0x7f00_0001_2000,
            len: 300_000,
        };
        let memory = Memory::register_dmabuf(&device, &piece).unwrap();
        assert_eq!((memory.lkey, memory.rkey), (7, 9));
        let call = (
            device.pd.addr(),
            0x1_2000,
            300_000,
            0x7f00_0001_2000,
            5,
            LOCAL_AND_REMOTE_WRITE,
        );
        assert_eq!(CALLS.lock().unwrap().pop(), Some(call));
        memory.deregister(verbs);
        let error = Memory::register_dmabuf(&device, &Piece { fd: -1, ..piece })
            .err()
            .unwrap();
        assert!(error.starts_with("mlx5_2 port 1: ibv_reg_dmabuf_mr: "), "{error}");
        assert!(error.contains("cannot register dma-bufs"), "{error}");
        let old = std::mem::ManuallyDrop::new(Device::for_test(
            Box::leak(Box::new(Verbs::for_test())),
            "mlx4_0",
            2,
        ));
        let error = Memory::register_dmabuf(&old, &piece).err().unwrap();
        assert!(
            error.contains("mlx4_0 port 2: libibverbs.so.1 has no ibv_reg_dmabuf_mr"),
            "{error}"
        );
    }

    #[test]
    fn the_limit_is_named_where_it_is_one() {
        for what in ["ibv_reg_mr", "ibv_create_cq", DMABUF] {
            let said = advice(what, Some(libc::ENOMEM), Some(64 << 10));
            assert!(
                said.contains("(RLIMIT_MEMLOCK) is 64 KiB: raise it by `ulimit -l unlimited`"),
                "{said}"
            );
            assert_eq!(advice(what, Some(libc::ENOMEM), None), "");
            assert_eq!(advice(what, Some(libc::EINVAL), Some(1)), "");
        }
        assert_eq!(advice("ibv_create_cq", Some(libc::EOPNOTSUPP), Some(1)), "");
    }
}
