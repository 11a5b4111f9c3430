//! PMIx: what the servers of a launcher carry between the processes of a job, by its client library, which is loaded when
//! it is needed.
//!
//! Of the library's structs only what has been the same since PMIx 2 is used: a process is a name of 256 bytes and a
//! number, and a value begins with its type and, 8 bytes on, a union of which a pointer to text is one member.
//! Source: `pmix_common.h` of PMIx 2 to 5.

use super::{fork, thread};
use libloading::Library;
use std::{
    error::Error,
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::{self, ManuallyDrop},
    ptr,
    sync::OnceLock,
};
use zeroize::{Zeroize, Zeroizing};

/// The client library, as Linux distributions and launchers install it.
const LIBRARY: &str = "libpmix.so.2";

/// Gives all processes of this one's job the text that rank 0 of the job brings; `mine` is `Some` there and only there.
/// Blocks until all have called this, for ever if one does not.
///
/// What the program itself does with PMIx is not disturbed: the library counts who has begun. But it cannot begin once more
/// when the last one has ended, as an MPI_Init after this would; so the end is that of the process.
///
/// # Errors
/// A text that says which step went wrong.
pub(crate) fn share(key: &CStr, rank: u32, mine: Option<&str>) -> Result<Zeroizing<String>, String> {
    let client = Client::begin()?;
    let shared = client.share(key, rank, mine);
    if end_at_exit(client.pmix.finalize) {
        mem::forget(client);
    }
    shared
}

/// Whether `finalize` will be called when this process ends, as [`Client`] would have done.
fn end_at_exit(finalize: Finalize) -> bool {
    static AT_EXIT: OnceLock<(Finalize, u32)> = OnceLock::new();
    extern "C" fn end() {
        // A forked child is no client.
        if let Some((finalize, generation)) = AT_EXIT.get()
            && *generation == fork::generation()
        {
            // SAFETY: it ends what `Client::begin` has begun, once; there are no settings; the library is still loaded.
            unsafe { finalize(ptr::null(), 0) };
        }
    }
    AT_EXIT.set((finalize, fork::generation())).is_ok() && thread::at_exit(end).is_ok()
}
/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    /// The job's name.
    space: [u8; 256],
    rank: u32,
}

/// The beginning of a `pmix_value_t`, and more room than any version has behind it.
#[repr(C)]
struct Value {
    kind: u16,
    text: *mut c_char,
    rest: [u64; 6],
}

type Status = c_int;
type Init = unsafe extern "C" fn(*mut Process, *mut c_void, usize) -> Status;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> Status;
type Commit = unsafe extern "C" fn() -> Status;
type Fence = unsafe extern "C" fn(*const Process, usize, *const c_void, usize) -> Status;
type Get =
    unsafe extern "C" fn(*const Process, *const c_char, *const c_void, usize, *mut *mut Value) -> Status;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> Status;
type ErrorText = unsafe extern "C" fn(Status) -> *const c_char;

/// What is used of the library.
struct Functions {
    init: Init,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    finalize: Finalize,
    error_text: ErrorText,
}

impl Functions {
    fn load() -> Result<Functions, String> {
        let reason = |e: libloading::Error| e.source().map_or(e.to_string(), ToString::to_string);
        let lacks = |e| format!("{LIBRARY} lacks a function: {}", reason(e));
        // SAFETY: the library's initialisers are those of a library that is made to be loaded into any program.
        let library = unsafe { Library::new(LIBRARY) };
        // Never unloaded: it may have threads of its own, and functions that run at the end of the process.
        let library = ManuallyDrop::new(library.map_err(|e| format!("it cannot be loaded: {}", reason(e)))?);
        // SAFETY: each name stands with its type in `pmix.h`; the functions stay, as the library does.
        unsafe {
            Ok(Functions {
                init: *library.get(c"PMIx_Init").map_err(lacks)?,
                put: *library.get(c"PMIx_Put").map_err(lacks)?,
                commit: *library.get(c"PMIx_Commit").map_err(lacks)?,
                fence: *library.get(c"PMIx_Fence").map_err(lacks)?,
                get: *library.get(c"PMIx_Get").map_err(lacks)?,
                finalize: *library.get(c"PMIx_Finalize").map_err(lacks)?,
                error_text: *library.get(c"PMIx_Error_string").map_err(lacks)?,
            })
        }
    }

    fn check(&self, what: &str, status: Status) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: it takes any number, and gives NULL or a text that is never freed.
        let text = unsafe {
            let text = (self.error_text)(status);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy())
        };
        Err(format!("{what} failed: {} ({status})", text.unwrap_or_default()))
    }
}

/// This process as a client of its launcher's server, until it is dropped.
struct Client {
    pmix: Functions,
    me: Process,
}

impl Client {
    fn begin() -> Result<Client, String> {
        let pmix = Functions::load()?;
        let mut me = Process {
            space: [0; 256],
            rank: u32::MAX,
        };
        // SAFETY: `me` has room for what is written, a `pmix_proc_t`; there are no further settings.
        let status = unsafe { (pmix.init)(&raw mut me, ptr::null_mut(), 0) };
        pmix.check("PMIx_Init", status)?;
        Ok(Client { pmix, me })
    }

    fn share(&self, key: &CStr, rank: u32, mine: Option<&str>) -> Result<Zeroizing<String>, String> {
        if self.me.rank != rank {
            let theirs = self.me.rank;
            return Err(format!("this process is rank {theirs} there, not {rank}"));
        }
        if let Some(text) = mine {
            self.put(key, text)?;
        }
        self.fence()?;
        self.get(key, 0)
    }

    fn put(&self, key: &CStr, text: &str) -> Result<(), String> {
        let text = CString::new(text).map_err(|_| "a text with a zero byte".to_owned())?;
        let mut text = Zeroizing::new(text.into_bytes_with_nul());
        let mut value = Value {
            kind: TEXT,
            text: text.as_mut_ptr().cast(),
            rest: [0; 6],
        };
        let key = padded(key)?;
        // SAFETY: after PMIx_Init; the key ends with zeros, in as many bytes as its type has; the value is a text, which is
        // copied during the call.
        let status = unsafe { (self.pmix.put)(EVERYWHERE, key.as_ptr().cast(), &raw mut value) };
        self.pmix.check("PMIx_Put", status)?;
        // SAFETY: after PMIx_Init.
        let status = unsafe { (self.pmix.commit)() };
        self.pmix.check("PMIx_Commit", status)
    }

    fn fence(&self) -> Result<(), String> {
        // SAFETY: after PMIx_Init; no list of processes stands for all of the job; there are no settings.
        let status = unsafe { (self.pmix.fence)(ptr::null(), 0, ptr::null(), 0) };
        self.pmix.check("PMIx_Fence", status)
    }

    fn get(&self, key: &CStr, rank: u32) -> Result<Zeroizing<String>, String> {
        let whose = Process { rank, ..self.me };
        let key = padded(key)?;
        let mut found: *mut Value = ptr::null_mut();
        let (whose, key) = (&raw const whose, key.as_ptr().cast());
        // SAFETY: after PMIx_Init; name and key end with zeros, in as many bytes as their types have; `found` has room for
        // a pointer; there are no settings.
        let status = unsafe { (self.pmix.get)(whose, key, ptr::null(), 0, &raw mut found) };
        self.pmix.check("PMIx_Get", status)?;
        if found.is_null() {
            return Err("PMIx_Get gave nothing".to_owned());
        }
        // SAFETY: the value is the caller's; only fields are read that every version has.
        let (kind, text) = unsafe { ((*found).kind, (*found).text) };
        if kind != TEXT || text.is_null() {
            return Err(format!("PMIx_Get gave a value of type {kind}, not a text")); // it stays behind
        }
        // SAFETY: a text ends with a zero byte; text and value are ours, made by malloc, and not used after this.
        let copy = unsafe {
            let bytes = std::slice::from_raw_parts_mut(text.cast::<u8>(), libc::strlen(text));
            let copy = std::str::from_utf8(bytes).map(|text| Zeroizing::new(text.to_owned()));
            bytes.zeroize();
            libc::free(text.cast());
            libc::free(found.cast());
            copy
        };
        copy.map_err(|_| "PMIx_Get gave a text that is not UTF-8".to_owned())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: it ends what `begin` has begun, once; there are no settings. Its failure makes no difference to what was
        // carried.
        unsafe { (self.pmix.finalize)(ptr::null(), 0) };
    }
}

/// `key` as a `pmix_key_t`: older versions may copy it whole.
fn padded(key: &CStr) -> Result<[u8; KEY], String> {
    let mut bytes = [0; KEY];
    let text = key.to_bytes();
    match bytes[..KEY - 1].get_mut(..text.len()) {
        Some(part) => part.copy_from_slice(text),
        None => return Err("the key is too long for PMIx".to_owned()),
    }
    Ok(bytes)
}

const SUCCESS: Status = 0;
/// `PMIX_STRING`.
const TEXT: u16 = 3;
/// `PMIX_GLOBAL`: for processes of this host and of others.
const EVERYWHERE: u8 = 3;
/// Bytes of a `pmix_key_t`.
const KEY: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn the_layouts_are_those_of_the_header() {
        assert_eq!((size_of::<Process>(), offset_of!(Process, rank)), (260, 256));
        assert_eq!((offset_of!(Value, kind), offset_of!(Value, text)), (0, 8));
        assert!(padded(c"key").unwrap().starts_with(b"key\0"));
        assert!(padded(&CString::new([b'k'; KEY]).unwrap()).is_err());
    }
}
