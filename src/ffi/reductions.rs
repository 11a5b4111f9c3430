//! Reductions that C makes: pre-multiplied sums.

use super::{
    memory::put,
    now_on_entry,
    types::{cclComm_t, cclDataType_t, cclRedOp_t, cclResult_t, cclScalarResidence_t},
};
use crate::types::{DType, Error, Op, Reducing, Result};
use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{c_int, c_void},
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
};

/// The reductions that were made on a communicator.
#[derive(Default)]
pub(super) struct Made(Mutex<HashMap<cclRedOp_t, Scalar>>);

/// What a rank's elements are multiplied by.
#[derive(Clone, Copy)]
struct Scalar {
    dtype: DType,
    /// It lies at the lowest address.
    bits: u64,
}

/// Where a scalar lies.
pub(super) const DEVICE: cclScalarResidence_t = 0;
pub(super) const HOST_IMMEDIATE: cclScalarResidence_t = 1;

/// The first number of a reduction that C makes.
const FIRST: cclRedOp_t = 4096;

/// The next number, whichever communicator it is for: so a number is not found on another one.
static NEXT: AtomicI32 = AtomicI32::new(FIRST);

impl Made {
    fn all(&self) -> MutexGuard<'_, HashMap<cclRedOp_t, Scalar>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a pre-multiplied sum and returns its number.
    fn add(&self, scalar: Scalar) -> cclRedOp_t {
        let mut all = self.all();
        loop {
            let after = |n| Some(if n == c_int::MAX { FIRST } else { n + 1 });
            // The closure never says `None`. After 2^31 numbers they come again; those in use are passed over.
            let (Ok(number) | Err(number)) = NEXT.fetch_update(Relaxed, Relaxed, after);
            if let Entry::Vacant(place) = all.entry(number) {
                place.insert(scalar);
                return number;
            }
        }
    }

    /// The reduction that C calls `op`, for elements of `dtype`, as it is now.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none, or not for this type.
    pub(super) fn reducing(&self, op: cclRedOp_t, dtype: DType) -> Result<Reducing> {
        if op < FIRST {
            return Op::from_number(op).map(Reducing::from);
        }
        let scalar = self.all().get(&op).copied().ok_or_else(|| unknown(op))?;
        if scalar.dtype != dtype {
            return Err(Error::invalid(format!(
                "reduction operation {op} was made for {}: it cannot combine elements of {dtype}",
                scalar.dtype
            )));
        }
        Ok(Reducing {
            op: Op::PreMulSum,
            scalar: Some(scalar.bits),
        })
    }
}

fn unknown(op: cclRedOp_t) -> Error {
    Error::invalid(format!(
        "reduction operation {op} is none that cclRedOpCreatePreMulSum made on this communicator, or was destroyed"
    ))
}

/// Makes a reduction that multiplies this rank's elements by `*scalar` when they are read, and adds what the ranks have.
///
/// Each rank makes its own, at any time, and may have another scalar. `*op` may be passed to calls on `comm` with elements
/// of type `datatype`, until cclRedOpDestroy; a call that was made keeps what it needs. Products of 16- and 8-bit floats
/// are rounded before they are added; integers wrap.
///
/// @param scalar An element of type `datatype`, of any alignment. It is read during the call.
/// @param residence cclScalarHostImmediate. cclScalarDevice is not supported yet.
/// @return cclSuccess; cclInvalidArgument; cclInvalidUsage for cclScalarDevice.
///
/// # Safety
/// `op` is NULL, which is an invalid argument, or may be written. `scalar` is NULL, too, or holds an element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cclRedOpCreatePreMulSum(
    op: *mut cclRedOp_t,
    scalar: *mut c_void,
    datatype: cclDataType_t,
    residence: cclScalarResidence_t,
    comm: cclComm_t,
) -> cclResult_t {
    now_on_entry(comm, |entry| {
        let dtype = DType::from_number(datatype)?;
        match residence {
            HOST_IMMEDIATE => {}
            DEVICE => {
                return Err(Error::usage(
                    "cclScalarDevice is not supported yet: pass a scalar in host memory and cclScalarHostImmediate",
                ));
            }
            other => {
                return Err(Error::invalid(format!(
                    "residence is {other}: it must be cclScalarHostImmediate ({HOST_IMMEDIATE})"
                )));
            }
        }
        if scalar.is_null() {
            return Err(Error::invalid(format!(
                "scalar is NULL: it must point at an element of {dtype}"
            )));
        }
        if op.is_null() {
            return Err(Error::invalid(
                "op is NULL: it must point at where the answer goes",
            ));
        }
        let mut bits = 0u64;
        // SAFETY: the caller's promise: an element lies there, of 8 bytes at most.
        unsafe { ptr::copy_nonoverlapping(scalar.cast::<u8>(), (&raw mut bits).cast(), dtype.size()) };
        let made = entry.reductions.add(Scalar { dtype, bits });
        // SAFETY: the caller's promise.
        unsafe { put("op", op, made) }
    })
}

/// Gives back what cclRedOpCreatePreMulSum made on `comm`. Calls that were made with it go on. What is not given back goes
/// with the communicator.
#[unsafe(no_mangle)]
pub extern "C" fn cclRedOpDestroy(op: cclRedOp_t, comm: cclComm_t) -> cclResult_t {
    now_on_entry(comm, |entry| {
        let made = entry.reductions.all().remove(&op);
        made.map(|_| ()).ok_or_else(|| unknown(op))
    })
}
