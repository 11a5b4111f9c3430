//! Buffers and numbers of C's, checked.

use crate::{
    mem::Region,
    types::{DType, Error, Result},
};
use std::ffi::{c_int, c_void};

/// The `count` elements at `data`; `name` is the argument's. Any alignment will do, and NULL where `count` is 0.
///
/// # Safety
/// The elements are readable, and writable if the region is written, for as long as the region is used; nothing else
/// changes them meanwhile, unless as the collective itself says.
///
/// # Errors
/// [`Error::Invalid`] for NULL, and for a size that no buffer can have.
pub(super) unsafe fn region<'m>(
    name: &str,
    data: *const c_void,
    count: usize,
    dtype: DType,
) -> Result<Region<'m>> {
    let bytes = count
        .checked_mul(dtype.size())
        .filter(|&bytes| isize::try_from(bytes).is_ok());
    let Some(bytes) = bytes else {
        return Err(Error::invalid(format!(
            "{name} cannot hold {count} elements of {dtype}: no buffer has more than {} bytes. Counts are elements, \
             not bytes, and never negative",
            isize::MAX
        )));
    };
    if bytes == 0 {
        return Ok(Region::empty());
    }
    if data.is_null() {
        return Err(Error::invalid(format!(
            "{name} is NULL: it must hold {count} elements of {dtype} ({bytes} bytes)"
        )));
    }
    if data.addr().checked_add(bytes).is_none() {
        return Err(Error::invalid(format!(
            "{name} is {data:p}: {bytes} bytes from there go past the end of memory"
        )));
    }
    // SAFETY: the caller's promise; the bytes do not wrap around, just checked.
    Ok(unsafe { Region::from_raw(data.cast_mut().cast(), bytes) })
}

/// The `bytes` bytes at `data`, if [`region`] takes them.
///
/// # Safety
/// As for [`region`].
#[inline]
pub(super) unsafe fn region_if_good<'m>(data: *const c_void, bytes: usize) -> Option<Region<'m>> {
    if bytes == 0 {
        return Some(Region::empty());
    }
    let is_good = !data.is_null() && data.addr().checked_add(bytes).is_some();
    // SAFETY: the caller's promise; the bytes do not wrap around.
    is_good.then(|| unsafe { Region::from_raw(data.cast_mut().cast(), bytes) })
}

/// A number that must not be negative, such as a rank; `name` is the argument's.
///
/// # Errors
/// [`Error::Invalid`] when it is.
pub(super) fn index(name: &str, value: c_int) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::invalid(format!("{name} is {value}: it must not be negative")))
}

/// Puts `value` where C wants it.
///
/// # Safety
/// `place` is NULL or may be written.
///
/// # Errors
/// [`Error::Invalid`] for NULL.
pub(super) unsafe fn put<T>(name: &str, place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Error::invalid(format!(
            "{name} is NULL: it must point at where the answer goes"
        )));
    }
    // SAFETY: the caller's promise. What was there is C's and has no destructor.
    unsafe { place.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn region_at(at: usize, count: usize, dtype: DType) -> Result<Region<'static>> {
        // SAFETY: the region is not read or written.
        unsafe { region("sendbuff", ptr::without_provenance(at), count, dtype) }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (count, dtype) in [
            (usize::MAX, DType::Int8),
            (usize::MAX, DType::Float64),
            (1 << 63, DType::Int8),
            (1 << 61, DType::Float32),
            (1 << 60, DType::Float64),
        ] {
            let refused = region_at(4096, count, dtype).unwrap_err().to_string();
            assert!(refused.contains("sendbuff cannot hold"), "{refused}");
        }
        let past = region_at(usize::MAX - 3, 2, DType::Int32)
            .unwrap_err()
            .to_string();
        assert!(past.contains("past the end of memory"), "{past}");
    }

    #[test]
    fn null_is_for_nothing() {
        assert_eq!(region_at(0, 0, DType::Float64).unwrap().len(), 0);
        let refused = region_at(0, 3, DType::Float64).unwrap_err().to_string();
        assert_eq!(
            refused,
            "sendbuff is NULL: it must hold 3 elements of float64 (24 bytes)"
        );
    }

    #[test]
    fn any_alignment_will_do() {
        let region = region_at(4097, 3, DType::Float64).unwrap();
        assert_eq!((region.as_ptr().addr(), region.len()), (4097, 24));
    }
}
