//! The devices that there are, by their numbers, for who names one before any other use of them.

use super::driver::Driver;
use crate::types::{Error, Result};
use std::mem;

/// The driver, and the number of its devices, 1 or more.
///
/// # Errors
/// Why there is none that can be used, in a line.
pub(super) fn counted() -> Result<(&'static Driver, i32), String> {
    let driver = Driver::load()?;
    let mut count = 0;
    // SAFETY: it writes the number.
    let result = unsafe { (driver.symbols.device_count)(&raw mut count) };
    let counted = driver.checked("cuDeviceGetCount", result);
    counted.map_err(|e| format!("the CUDA driver does not work: {e}"))?;
    match count {
        ..1 => Err("there is a CUDA driver, but no GPU".to_owned()),
        count => Ok((driver, count)),
    }
}

/// Whether there are devices with all of `numbers`.
///
/// # Errors
/// [`Error::Usage`] where there is none at all; [`Error::Invalid`] for a number that none has.
pub(crate) fn check(numbers: &[i32]) -> Result<()> {
    let (_, count) = counted().map_err(Error::usage)?;
    match numbers.iter().position(|number| !(0..count).contains(number)) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(format!(
            "there is no CUDA device {} for rank {at}: there are {count} here, from 0 on",
            numbers[at]
        ))),
    }
}

/// Makes the device with this number the current one of this thread from now on, in its primary context.
///
/// # Errors
/// [`Error::Usage`] where there is no driver; [`Error::Cuda`].
pub(crate) fn make_current(number: i32) -> Result<()> {
    let (driver, _) = counted().map_err(Error::usage)?;
    driver.enter(driver.primary(number)?).map(mem::forget)
}
