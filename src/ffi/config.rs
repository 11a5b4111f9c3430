//! Reading a [`cclConfig_t`].

use super::types::{CONFIG_MAGIC, CONFIG_UNDEF_INT, cclConfig_t};
use crate::{
    comm::Config,
    sys::helpers::Helpers,
    types::{Error, Result},
};
use std::{
    ffi::{CStr, c_char, c_int},
    ptr,
    time::Duration,
};

/// Bytes of the struct in version 0.1, the first: what every program has. It stays when fields are added.
const FIRST_SIZE: usize = 64;

/// What C asks for.
///
/// # Safety
/// `config` is NULL or points at a `size_t` and at as many bytes as that says; its texts are NULL or end with NUL.
///
/// # Errors
/// [`Error::Invalid`] for what cannot be meant, [`Error::Usage`] for what is not there yet.
pub(super) unsafe fn read(config: *const cclConfig_t) -> Result<Config> {
    if config.is_null() {
        return Ok(Config::of_this_thread());
    }
    // SAFETY: the caller's promise.
    let config = unsafe { whole(config)? };
    supported(&config)?;
    // SAFETY: the caller's promise about the texts.
    let text = |name, at| unsafe { text(name, at) };
    Ok(Config {
        timeout: match config.timeout {
            CONFIG_UNDEF_INT => None,
            milliseconds => Some(deadline(milliseconds)?),
        },
        name: text("name", config.name)?,
        transport: text("transport", config.transport)?,
        algorithm: text("algorithm", config.algorithm)?,
        reproducible: config.reproducible == 1,
        threads: match config.threads {
            CONFIG_UNDEF_INT => None,
            // As many as there may be are no more than that.
            threads => match usize::try_from(threads) {
                Ok(threads @ 1..) => Some(threads.min(Helpers::MOST)),
                _ => {
                    return Err(Error::invalid(format!(
                        "threads is {threads} in the cclConfig_t: it must be at least 1"
                    )));
                }
            },
        },
        ..Config::of_this_thread()
    })
}

/// Whether C wants to wait until the communicator is there.
///
/// # Safety
/// As [`read`].
///
/// # Errors
/// As [`read`].
pub(super) unsafe fn blocks(config: *const cclConfig_t) -> Result<bool> {
    // SAFETY: the caller's promise.
    Ok(config.is_null() || unsafe { whole(config)? }.blocking != 0)
}

/// A deadline from C.
///
/// # Errors
/// [`Error::Invalid`] when it is not positive.
pub(super) fn deadline(milliseconds: c_int) -> Result<Duration> {
    match u64::try_from(milliseconds) {
        Ok(milliseconds @ 1..) => Ok(Duration::from_millis(milliseconds)),
        _ => Err(Error::invalid(format!(
            "the timeout is {milliseconds} milliseconds: it must be at least 1"
        ))),
    }
}

/// The fields as this version knows them: those that the program's version lacks have their defaults, those that this
/// one lacks are left unread.
///
/// # Safety
/// As [`read`]; `config` is not NULL.
unsafe fn whole(config: *const cclConfig_t) -> Result<cclConfig_t> {
    let wrong = |what: String| {
        Error::invalid(format!(
            "the cclConfig_t {what}: begin with `cclConfig_t config = CCL_CONFIG_INITIALIZER;`"
        ))
    };
    // SAFETY: a program's config begins with its size, whatever its version; it need not be aligned.
    let size = unsafe { config.cast::<usize>().read_unaligned() };
    if size < FIRST_SIZE {
        return Err(wrong(format!(
            "says that it is {size} bytes, but the smallest is {FIRST_SIZE}"
        )));
    }
    let mut known = cclConfig_t::INITIALIZER;
    let bytes = size.min(size_of::<cclConfig_t>());
    // SAFETY: the program's struct has `size` bytes, `known` has at least `bytes`, and every bit pattern is a value of
    // its fields. Sizes end between fields, as those of all versions do.
    unsafe { ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut known).cast(), bytes) };
    match known.magic {
        CONFIG_MAGIC => Ok(known),
        magic => Err(wrong(format!("holds {magic:#x} where its magic number belongs"))),
    }
}

fn supported(config: &cclConfig_t) -> Result<()> {
    let flag = |name: &str, value: c_int| match value {
        0 | 1 | CONFIG_UNDEF_INT => Ok(()),
        _ => Err(Error::invalid(format!(
            "{name} is {value} in the cclConfig_t: it must be 0 or 1"
        ))),
    };
    flag("blocking", config.blocking)?;
    flag("reproducible", config.reproducible)?;
    match config.bufferBytes {
        0 => Ok(()),
        _ => Err(Error::usage(
            "a limit of buffer memory is not supported yet: leave bufferBytes at 0",
        )),
    }
}

/// # Safety
/// `at` is NULL or points at a text that ends with NUL.
unsafe fn text(field: &str, at: *const c_char) -> Result<Option<String>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise; the bytes are copied before the caller goes on.
    let text = unsafe { CStr::from_ptr(at) };
    match text.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Error::invalid(format!(
            "{field} in the cclConfig_t is not UTF-8: {text:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::types::version;

    fn of(change: impl FnOnce(&mut cclConfig_t)) -> Result<Config> {
        let mut config = cclConfig_t::INITIALIZER;
        change(&mut config);
        // SAFETY: a config of this version, with static texts.
        unsafe { read(&config) }
    }

    #[test]
    fn the_initializer_and_null_are_the_defaults() {
        // SAFETY: NULL is allowed.
        for config in [of(|_| ()).unwrap(), unsafe { read(ptr::null()) }.unwrap()] {
            assert_eq!(
                (config.timeout, config.name, config.transport, config.algorithm),
                (None, None, None, None)
            );
        }
        assert_eq!(
            size_of::<cclConfig_t>(),
            FIRST_SIZE,
            "fields were added: FIRST_SIZE stays, change this line"
        );
    }

    #[test]
    fn fields_arrive() {
        let config = of(|c| {
            (c.blocking, c.timeout, c.reproducible, c.threads) = (1, 1500, 1, 3);
            (c.name, c.transport, c.algorithm) = (c"trainer".as_ptr(), c"shm".as_ptr(), c"ring".as_ptr());
        });
        let config = config.unwrap();
        assert_eq!(config.timeout, Some(Duration::from_millis(1500)));
        assert!(config.reproducible && !of(|c| c.reproducible = 0).unwrap().reproducible);
        assert_eq!(config.name.as_deref(), Some("trainer"));
        assert_eq!((config.threads, of(|_| ()).unwrap().threads), (Some(3), None));
        assert_eq!(of(|c| c.threads = 96).unwrap().threads, Some(64));
        assert_eq!(
            (config.transport.as_deref(), config.algorithm.as_deref()),
            (Some("shm"), Some("ring"))
        );
    }

    #[test]
    fn a_later_version_s_fields_are_left_unread() {
        #[repr(C)]
        struct Later {
            config: cclConfig_t,
            more: [u64; 3],
        }
        let mut later = Later {
            config: cclConfig_t::INITIALIZER,
            more: [u64::MAX; 3],
        };
        later.config.size = size_of::<Later>();
        later.config.version = version() as u32 + 1;
        later.config.timeout = 7;
        // SAFETY: `size` bytes, as it says.
        let config = unsafe { read((&raw const later).cast()) }.unwrap();
        assert_eq!(config.timeout, Some(Duration::from_millis(7)));
        assert_eq!(later.more, [u64::MAX; 3]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |change: fn(&mut cclConfig_t), word: &str| match of(change) {
            Err(Error::Invalid { what }) => assert!(what.contains(word), "{what}"),
            other => panic!("{word}: {other:?}"),
        };
        refused(|c| c.size = 0, "says that it is 0 bytes");
        refused(|c| c.size = FIRST_SIZE - 1, "CCL_CONFIG_INITIALIZER");
        refused(|c| c.magic = 1, "magic");
        refused(|c| c.timeout = 0, "at least 1");
        refused(|c| c.timeout = -1, "at least 1");
        refused(|c| c.threads = -1, "threads is -1");
        refused(|c| c.threads = 0, "threads is 0");
        refused(|c| c.blocking = 2, "blocking is 2");
        refused(|c| c.reproducible = -1, "reproducible is -1");
        refused(
            |c| c.name = c"\xff".as_ptr(),
            "name in the cclConfig_t is not UTF-8",
        );
    }

    #[test]
    fn what_is_not_there_yet_says_so() {
        let missing = |change: fn(&mut cclConfig_t), word: &str| match of(change) {
            Err(Error::Usage { what }) => assert!(
                what.contains(word) && what.contains("not supported yet"),
                "{what}"
            ),
            other => panic!("{word}: {other:?}"),
        };
        missing(|c| c.bufferBytes = 1 << 20, "bufferBytes");
    }
}
