//! Safe calls of a plugin's functions: [`Wire`], its [`End`]s and their [`Memory`].

use super::{
    abi::{
        self, AGAIN, ErrorText, Event, Host, MAX_BYTES, OK, RawConnection, RawContext, RawMemory, Segment,
        Setup,
    },
    library::{Plugin, intern, tidy},
};
use crate::{
    mem::{Region, shared::Allocation},
    sys::{area::Area, fork::generation},
};
use smallvec::SmallVec;
use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    cell::Cell,
    ffi::{CStr, CString, c_char, c_int},
    fmt,
    os::fd::BorrowedFd,
    ptr,
    sync::Arc,
};
use tracing::{debug, info, warn};

/// A plugin that was opened for one rank of a communicator. As the links it belongs to one thread at a time.
pub(crate) struct Wire {
    plugin: Plugin,
    raw: *mut RawContext,
    devices: Vec<Device>,
    /// Another one in a forked child, which does nothing with it.
    generation: u32,
    _host: Box<Host>,
    /// What the host names.
    _gpu: Option<CString>,
}

// SAFETY: a plugin takes calls of any thread, of one context one at a time (`ccl_net.h`). The links that share a wire belong to
// one thread at a time, and ends and memory are parts of links.
unsafe impl Send for Wire {}
// SAFETY: as above.
unsafe impl Sync for Wire {}

/// A port of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    name: String,
    port: u32,
    megabits: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)?;
        match self.megabits {
            0 => Ok(()),
            speed => write!(f, " ({} Gbit/s)", f64::from(speed) / 1000.0),
        }
    }
}

impl Wire {
    /// Opens `plugin` for one rank of a communicator, which works with the GPU of this PCI address.
    ///
    /// # Errors
    /// Why it cannot be used here.
    pub(crate) fn open(
        plugin: Plugin,
        rank: usize,
        ranks: usize,
        gpu: Option<CString>,
    ) -> Result<Arc<Wire>, String> {
        let host = Box::new(Host {
            size: size_of::<Host>() as u32,
            rank: rank as u32,
            ranks: ranks as u32,
            log,
            gpu: gpu.as_deref().map_or(ptr::null(), CStr::as_ptr),
        });
        let said = |why| format!("plugin {}: {why}", plugin.name());
        let mut raw = ptr::null_mut();
        // SAFETY: the host, and what it names, stay where they are as long as the context.
        asked(|why| unsafe { (plugin.functions().open)(&raw const *host, &raw mut raw, why) })
            .map_err(said)?;
        if raw.is_null() {
            return Err(said("open gave no context".to_owned()));
        }
        let mut wire = Wire {
            plugin,
            raw,
            devices: Vec::new(),
            generation: generation(),
            _host: host,
            _gpu: gpu,
        };
        wire.devices = wire.list().map_err(said)?;
        let devices: Vec<String> = wire.devices.iter().map(Device::to_string).collect();
        let (identity, devices) = (plugin.identity(), devices.join(", "));
        info!(rank, ranks, "init: plugin {identity} uses {devices}");
        Ok(Arc::new(wire))
    }

    /// The plugin's name.
    pub(crate) fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn list(&self) -> Result<Vec<Device>, String> {
        // SAFETY: the context is open.
        let count = unsafe { (self.plugin.functions().devices)(self.raw) };
        if count == 0 {
            return Err("it has no device".to_owned());
        }
        let one = |index| {
            let mut device = abi::Device {
                name: [0; 64],
                port: 0,
                megabits: 0,
                numa_node: -1,
                max_segments: 0,
                max_write: 0,
            };
            // SAFETY: the context is open, and the struct is `ccl_net_device`.
            asked(|why| unsafe { (self.plugin.functions().device)(self.raw, index, &raw mut device, why) })?;
            let name =
                CStr::from_bytes_until_nul(&device.name).map_err(|_| "a device has no name".to_owned())?;
            let name = tidy(&name.to_string_lossy());
            match device.max_segments < 2 || device.max_write < LEAST_WRITE {
                true => Err(format!(
                    "device {name} writes {} pieces and {} bytes at once, and 2 and {LEAST_WRITE} are needed",
                    device.max_segments, device.max_write
                )),
                false => Ok(Device {
                    name,
                    port: device.port,
                    megabits: device.megabits,
                }),
            }
        };
        (0..count.min(MAX_DEVICES)).map(one).collect()
    }

    pub(super) fn devices(&self) -> usize {
        self.devices.len()
    }

    /// How many connections of each device a direction of a link is to have.
    pub(super) fn connections(&self) -> usize {
        // SAFETY: the context is open.
        let wanted = self.plugin.later().connections.map(|f| unsafe { f(self.raw) });
        wanted.map_or(1, |wanted| wanted.max(1) as usize)
    }

    /// The device whose end best meets the one that gave these bytes; `or_else` where the plugin leaves that to others.
    pub(super) fn meet(&self, bytes: &[u8], or_else: usize) -> Result<usize, String> {
        let Some(meet) = self.plugin.later().meet else {
            return Ok(or_else);
        };
        let mut device = or_else as u32;
        // SAFETY: the context is open, and so many bytes are there.
        asked(|why| unsafe { meet(self.raw, bytes.as_ptr(), bytes.len(), &raw mut device, why) })
            .map_err(|why| format!("plugin {}: {why}", self.name()))?;
        match (device as usize) < self.devices() {
            true => Ok(device as usize),
            false => Err(format!("plugin {}: meet gave device {device}", self.name())),
        }
    }

    /// What is said of an end at the device of this number.
    pub(super) fn at(&self, device: usize) -> String {
        let device = self.devices.get(device).map(Device::to_string);
        format!("plugin {}, device {}", self.name(), device.unwrap_or_default())
    }

    /// Takes in what has happened: up to as many events as there is room for.
    pub(super) fn poll(&self, events: &mut [Event]) -> Result<usize, String> {
        let (most, mut count) = (events.len() as u32, 0);
        // SAFETY: the context is open, and there is room for so many events.
        asked(|why| unsafe {
            (self.plugin.functions().poll)(self.raw, events.as_mut_ptr(), most, &raw mut count, why)
        })?;
        match count <= most {
            true => Ok(count as usize),
            false => Err(format!("poll gave {count} events where {most} fit")),
        }
    }

    /// What becomes readable when there is something to [`poll`](Wire::poll).
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the context is open.
        let fd = unsafe { (self.plugin.functions().descriptor)(self.raw) };
        // SAFETY: it stays open as long as the context, which is borrowed.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Has the descriptor tell of what comes from now on.
    pub(super) fn arm(&self) -> Result<(), String> {
        // SAFETY: the context is open.
        asked(|why| unsafe { (self.plugin.functions().arm)(self.raw, why) })
    }

    fn is_ours(&self) -> bool {
        self.generation == generation()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: it is open; ends and memory are gone, as each has a share in this.
            unsafe { (self.plugin.functions().close)(self.raw) };
        }
    }
}

/// One end of a connection.
pub(super) struct End {
    wire: Arc<Wire>,
    /// Null once it was closed.
    raw: Cell<*mut RawConnection>,
    device: usize,
}

// SAFETY: as for `Wire`.
unsafe impl Send for End {}

impl End {
    /// Makes an end, and the bytes by which the other side joins it. `setup.device` is one of the wire's.
    pub(super) fn create(wire: &Arc<Wire>, setup: &Setup) -> Result<(End, Vec<u8>), String> {
        let mut bytes = vec![0; MAX_BYTES];
        let (mut raw, mut len) = (ptr::null_mut(), bytes.len());
        let device = setup.device as usize;
        // SAFETY: the context is open, and there is room for so many bytes.
        let made = asked(|why| unsafe {
            let create = wire.plugin.functions().create;
            create(
                wire.raw,
                setup,
                &raw mut raw,
                bytes.as_mut_ptr(),
                &raw mut len,
                why,
            )
        });
        let said = |why| format!("{}: {why}", wire.at(device));
        made.map_err(said)?;
        if raw.is_null() {
            return Err(said("create gave no connection".to_owned()));
        }
        let end = End {
            wire: Arc::clone(wire),
            raw: Cell::new(raw),
            device,
        };
        if len > bytes.len() {
            return Err(said(format!("create gave {len} bytes where {MAX_BYTES} fit")));
        }
        bytes.truncate(len);
        Ok((end, bytes))
    }

    /// Joins it with the one that gave these bytes.
    pub(super) fn join(&self, bytes: &[u8]) -> Result<(), String> {
        let raw = self.raw.get();
        if raw.is_null() {
            return Err(self.said("it was closed"));
        }
        // SAFETY: the connection is there, and so are the bytes.
        let joined = asked(|why| unsafe {
            (self.wire.plugin.functions().join)(raw, bytes.as_ptr(), bytes.len(), why)
        });
        joined.map_err(|why| self.said(&why))
    }

    /// Writes the parts, one after the other, to an address of the other side. `false` if there is no room now.
    ///
    /// Until the wire tells that this is written, or that the connection has failed, they are not to be changed, and their memory
    /// is kept.
    pub(super) fn write(
        &self,
        parts: &[Part],
        (address, key): (u64, u64),
        immediate: u32,
        id: u64,
    ) -> Result<bool, String> {
        let raw = self.raw.get();
        if raw.is_null() {
            return Err(self.said("it was closed"));
        }
        let segment = |part: &Part| {
            let (memory, _) =
                part.memory.registered[self.device].ok_or("a write of memory that it does not know")?;
            Ok(Segment {
                address: part.bytes().as_ptr().cast_const().cast(),
                len: part.len,
                memory,
            })
        };
        let segments = parts
            .iter()
            .map(segment)
            .collect::<Result<SmallVec<[Segment; 2]>, &str>>();
        let segments = segments.map_err(|why| self.said(why))?;
        let (first, count) = match segments.is_empty() {
            true => (ptr::null(), 0),
            false => (segments.as_ptr(), segments.len() as u32),
        };
        let mut text = Text::new();
        let mut why = text.raw();
        let write = self.wire.plugin.functions().write;
        // SAFETY: the connection is there; what is written lies in registered memory, which outlives the end (`Memory`).
        let done = unsafe { write(raw, first, count, address, key, immediate, id, &raw mut why) };
        match done {
            OK => Ok(true),
            AGAIN => Ok(false),
            _ => Err(self.said(&text.said())),
        }
    }

    /// Why it has failed.
    pub(super) fn reason(&self) -> String {
        let mut text = Text::new();
        let raw = text.raw();
        if !self.raw.get().is_null() {
            // SAFETY: the connection is there, and there is room for so much text.
            unsafe { (self.wire.plugin.functions().describe)(self.raw.get(), raw.text, raw.size) };
        }
        self.said(&text.said())
    }

    /// Destroys it: from here on nothing is read or written by it.
    pub(super) fn close(&self) {
        let raw = self.raw.replace(ptr::null_mut());
        if self.wire.is_ours() && !raw.is_null() {
            // SAFETY: it was made, and is destroyed once.
            unsafe { (self.wire.plugin.functions().destroy)(raw) };
        }
    }

    fn said(&self, what: &str) -> String {
        format!("{}: {what}", self.wire.at(self.device))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}

/// Memory of this rank's that devices may read and write. What an end reads or writes is kept by those who have it do so.
pub(super) struct Memory {
    wire: Arc<Wire>,
    /// By device, where it is registered: what the plugin knows it by, and the key of the other side.
    registered: Vec<Option<(*mut RawMemory, u64)>>,
    base: *mut u8,
    len: usize,
    mapped: Mapped,
}

/// What keeps memory there while devices know it.
enum Mapped {
    /// It is this one's alone.
    Here(Layout),
    /// An allocation of a caller's. Though it be given back, nothing else comes to lie at its addresses.
    There(Arc<Area>),
}

// SAFETY: as for `Wire`; the bytes are reached through regions only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed pages for these devices, of which nobody else has any: they may be kept from forked children.
    pub(super) fn new(wire: &Arc<Wire>, devices: &[usize], len: usize) -> Result<Memory, String> {
        let page = rustix::param::page_size();
        let layout = Layout::from_size_align(len.next_multiple_of(page), page).map_err(|e| e.to_string())?;
        // SAFETY: it is not of no bytes.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return Err(format!("there are no {len} bytes of memory for rings"));
        }
        Memory::register(wire, devices.iter().copied(), (base, len), Mapped::Here(layout))
    }

    /// An allocation of a caller's, for all devices. `None` if it was given back.
    pub(super) fn of(wire: &Arc<Wire>, allocation: &Allocation) -> Option<Result<Memory, String>> {
        let area = allocation.mapping()?;
        let (base, len) = (area.region().as_ptr(), area.region().len());
        Some(Memory::register(
            wire,
            0..wire.devices(),
            (base, len),
            Mapped::There(area),
        ))
    }

    fn register(
        wire: &Arc<Wire>,
        devices: impl Iterator<Item = usize>,
        (base, len): (*mut u8, usize),
        mapped: Mapped,
    ) -> Result<Memory, String> {
        // What was registered goes where one device fails.
        let mut memory = Memory {
            wire: Arc::clone(wire),
            registered: vec![None; wire.devices()],
            base,
            len,
            mapped,
        };
        for device in devices {
            if memory.registered[device].is_some() {
                continue;
            }
            let (mut raw, mut key) = (ptr::null_mut(), 0);
            let register = wire.plugin.functions().register;
            // SAFETY: the context is open; the memory is there until it was deregistered.
            asked(|why| unsafe {
                let (raw, key) = (&raw mut raw, &raw mut key);
                register(wire.raw, device as u32, base.cast(), len, raw, key, why)
            })
            .map_err(|why| {
                format!(
                    "{}: {len} bytes of memory cannot be registered: {why}",
                    wire.at(device)
                )
            })?;
            memory.registered[device] = Some((raw, key));
        }
        Ok(memory)
    }

    /// All of it.
    pub(super) fn region(&self) -> Region<'_> {
        // SAFETY: it is mapped as long as this is there; no reference to its bytes is ever made.
        unsafe { Region::from_raw(self.base, self.len) }
    }

    /// Where the other side finds it.
    pub(super) fn address(&self) -> u64 {
        self.base.expose_provenance() as u64
    }

    /// By which the other side writes there, on connections of a device that knows it.
    pub(super) fn key(&self, device: usize) -> Option<u64> {
        self.registered[device].map(|(_, key)| key)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.wire.is_ours() {
            return; // in a forked child what is registered may not be mapped: it is not touched
        }
        for (raw, _) in self.registered.iter().flatten() {
            // SAFETY: it was registered; the ends that use it are gone, or done with it.
            unsafe { (self.wire.plugin.functions().deregister)(self.wire.raw, *raw) };
        }
        match &self.mapped {
            // SAFETY: it was allocated so; no device uses it any more, and no region, which would borrow this.
            Mapped::Here(layout) => unsafe { dealloc(self.base, *layout) },
            // Libraries that had kept it from children themselves give it to them now.
            Mapped::There(area) => area.keep_from_children(),
        }
    }
}

/// A piece of memory that devices know, and which it keeps.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) memory: Arc<Memory>,
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Part {
    pub(super) fn bytes(&self) -> Region<'_> {
        self.memory.region().part(self.at, self.len)
    }

    /// The same, for as long as whoever says where a message is wanted leaves that to the link (`Link::land`).
    pub(super) fn landed<'l>(&self) -> Region<'l> {
        let bytes = self.bytes();
        // SAFETY: its mapping stays until the message is released; those who look at the message go on with it before, and what
        // they use after it they borrow from their caller.
        unsafe { Region::from_raw(bytes.as_ptr(), bytes.len()) }
    }
}

/// Devices that are made use of. A link has fewer, but the receiver's may be any of them.
const MAX_DEVICES: u32 = 64;
/// Bytes of a write that a device must take: the longest message with its head.
const LEAST_WRITE: u64 = 257 << 10;
const _: () = assert!(super::ring::LINE + crate::transport::MAX_MESSAGE <= LEAST_WRITE as usize);

/// Room for what a plugin says of an error.
struct Text([u8; 512]);

impl Text {
    fn new() -> Text {
        Text([0; 512])
    }

    fn raw(&mut self) -> ErrorText {
        ErrorText {
            text: self.0.as_mut_ptr().cast(),
            size: self.0.len(),
        }
    }

    fn said(&mut self) -> String {
        // Whatever the plugin did, it ends there.
        if let Some(last) = self.0.last_mut() {
            *last = 0;
        }
        let text = CStr::from_bytes_until_nul(&self.0).unwrap_or_default();
        match tidy(&text.to_string_lossy()) {
            text if text.is_empty() => "it gives no reason".to_owned(),
            text => text,
        }
    }
}

/// Calls a function that may fail.
fn asked(call: impl FnOnce(*mut ErrorText) -> c_int) -> Result<(), String> {
    let mut text = Text::new();
    let mut why = text.raw();
    match call(&raw mut why) {
        OK => Ok(()),
        _ => Err(text.said()),
    }
}

/// What a plugin tells goes where ccl's own lines go.
unsafe extern "C" fn log(host: *const Host, level: c_int, text: *const c_char) {
    if host.is_null() || text.is_null() {
        return;
    }
    // SAFETY: the plugin hands on the host that it was given, and a text with a zero at its end.
    let (host, text) = unsafe { (&*host, CStr::from_ptr(text)) };
    let (rank, ranks, text) = (host.rank, host.ranks, tidy(&text.to_string_lossy()));
    match level {
        ..=1 => warn!(rank, ranks, "plugin: {text}"),
        2 => info!(rank, ranks, "plugin: {text}"),
        _ => debug!(rank, ranks, "plugin: {text}"),
    }
}

/// A name for reports, such as `shm+verbs`.
pub(crate) fn joined(first: &str, second: &str) -> &'static str {
    intern(&format!("{first}+{second}"))
}
