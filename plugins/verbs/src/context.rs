//! [`Context`]: the devices and connections of one rank.

use crate::{
    abi::{Event, Host},
    connection::{self, Connection},
    device::{self, Device, Found},
    forks,
    nearness::{self, Nearness},
    settings::{Fault, Settings},
    verbs::{AsyncEvent, Verbs, verbs},
};
use std::{
    cell::{Cell, OnceCell, Ref, RefCell},
    ffi::{CStr, CString, c_int},
    io, ptr,
};

/// `ccl_net_context`.
pub(crate) struct Context {
    verbs: &'static Verbs,
    host: *const Host,
    pub(crate) settings: Settings,
    /// Ready when a completion channel or a device's own events are.
    pub(crate) epoll: c_int,
    devices: Vec<Device>,
    pub(crate) connections: RefCell<Vec<*mut Connection>>,
    /// Where the next poll begins, so that none waits for ever behind another one.
    next: Cell<usize>,
    /// Polls that nothing came of since the devices' own events were looked for.
    idle: Cell<u32>,
    counts: Cell<Counts>,
    /// Writes so far, where a test has one of them go wrong.
    writes: Cell<u64>,
    /// What ended connections that is no peer's fault, if anything did.
    failed: OnceCell<String>,
    /// What the last poll found: room for the next one.
    found: RefCell<Vec<Event>>,
}

/// What was asked of the devices.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) inline: u64,
    /// Of which the device tells when they are done.
    pub(crate) signaled: u64,
    pub(crate) bytes: u64,
    pub(crate) polls: u64,
    pub(crate) completions: u64,
    pub(crate) sleeps: u64,
}

impl Context {
    /// Opens what can be used.
    ///
    /// # Safety
    /// The host lives as long as the context.
    pub(crate) unsafe fn open(host: *const Host) -> Result<Box<Context>, String> {
        let settings = Settings::of_environment()?;
        // SAFETY: the caller's promise.
        let near = Nearness::to(unsafe { Host::gpu(host) }.as_deref());
        let Found {
            devices,
            others,
            missing,
        } = device::all(&settings, &near)?;
        // SAFETY: no demands.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(format!("epoll_create1: {}", io::Error::last_os_error()));
        }
        forks::note(epoll);
        let context = Box::new(Context {
            verbs: verbs()?,
            host,
            settings,
            epoll,
            devices,
            connections: RefCell::default(),
            next: Cell::new(0),
            idle: Cell::new(0),
            counts: Cell::default(),
            writes: Cell::new(0),
            failed: OnceCell::new(),
            found: RefCell::default(),
        });
        for device in &context.devices {
            // SAFETY: both live as long as the device.
            for fd in unsafe { [(*device.channel).fd, (*device.raw).async_fd] } {
                let mut event = libc::epoll_event {
                    events: libc::EPOLLIN as u32,
                    u64: 0,
                };
                // SAFETY: descriptors that are open.
                if unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } < 0 {
                    return Err(format!("epoll_ctl: {}", io::Error::last_os_error()));
                }
            }
            let (index, reason, mtu) = (device.gid_index, device.reason, 128 << device.mtu);
            context.log(2, &format!("{device}: address {index} ({reason}), MTU {mtu}"));
        }
        if !missing.is_empty() {
            let (missing, choice) = (missing.join(", "), &context.settings.choice);
            context.log(1, &format!("CCL_IB_HCA={choice}: there is no {missing}"));
        }
        // Who names devices whole wants them; of a beginning that many have some may be down.
        let level = if context.settings.choice.names_devices() {
            1
        } else {
            2
        };
        for why in others {
            context.log(level, &format!("not used: {why}"));
        }
        let far = |device: &Device| format!("{device} ({})", near.far(&device.name, device.numa_node));
        let order: Vec<String> = context.devices.iter().map(far).collect();
        let order = order.join(", ");
        context.log(
            3,
            &format!("of equally fast ports those near {near} come first: {order}"),
        );
        Ok(context)
    }

    pub(crate) fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn device(&self, index: u32) -> Result<&Device, String> {
        self.devices
            .get(index as usize)
            .ok_or_else(|| format!("there is no device {index}"))
    }

    /// Which device best meets the end that said `bytes`: one with the same kind of link, then of the same subnet, then `or_else`.
    pub(crate) fn meet(&self, bytes: &[u8], or_else: u32) -> Result<u32, String> {
        let Some((infiniband, gid)) = connection::address(bytes) else {
            return Err("the other side's plugin is another version".to_owned());
        };
        let grade = |&index: &u32| {
            let device = &self.devices[index as usize];
            let is_alike = device.infiniband == infiniband;
            (
                is_alike,
                nearness::share(device.gid, gid, device.subnet),
                index == or_else,
            )
        };
        // Of equally good ones the last one is taken, and the first is the nearest.
        (0..self.devices.len() as u32)
            .rev()
            .max_by_key(grade)
            .ok_or_else(|| "there is no device".to_owned())
    }

    /// Whether this write is the one that a test has go wrong, and how.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let (fault, at) = self.settings.fault?;
        self.writes.set(self.writes.get() + 1);
        (self.writes.get() == at).then_some(fault)
    }

    fn log(&self, level: c_int, text: &str) {
        if let Ok(text) = CString::new(text) {
            // SAFETY: the host lives as long as this.
            unsafe { ((*self.host).log)(self.host, level, text.as_ptr()) };
        }
    }

    /// Takes a device's completion events off its channel and counts them at their connections.
    pub(crate) fn drain_channel(&self, index: u32) {
        let Ok(device) = self.device(index) else { return };
        loop {
            let (mut cq, mut word) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel lives and does not block. A queue's own word is its connection, which lives as long.
            unsafe {
                if (self.verbs.ibv_get_cq_event)(device.channel, &mut cq, &mut word) != 0 {
                    break;
                }
                let events = &(*word.cast::<Connection>()).events;
                events.set(events.get() + 1);
            }
        }
    }

    /// What the devices themselves tell.
    pub(crate) fn asynchronous(&self) {
        for index in 0..self.devices.len() {
            let device = &self.devices[index];
            let mut event = AsyncEvent {
                element: ptr::null_mut(),
                kind: 0,
            };
            // SAFETY: the context lives and its descriptor does not block; each event is acknowledged.
            while unsafe { (self.verbs.ibv_get_async_event)(device.raw, &mut event) } == 0 {
                // SAFETY: the library's texts are constants.
                let text = unsafe { CStr::from_ptr((self.verbs.ibv_event_type_str)(event.kind)) };
                let text = text.to_string_lossy().into_owned();
                // A card with several ports tells each of all.
                let port = event.element.addr() as u32;
                let is_other = OF_A_PORT.contains(&event.kind) && port != u32::from(device.port);
                if is_other {
                    // SAFETY: it came from there.
                    unsafe { (self.verbs.ibv_ack_async_event)(&mut event) };
                    continue;
                }
                self.log(
                    if BENIGN.contains(&event.kind) { 3 } else { 1 },
                    &format!("{device}: {text}"),
                );
                if [PORT_ACTIVE, PORT_ERROR, DEVICE_FATAL].contains(&event.kind) {
                    let lasts = event.kind != PORT_ACTIVE;
                    *device.trouble.borrow_mut() = lasts.then(|| format!("{text} (event {})", event.kind));
                }
                let element = event.element;
                // SAFETY: it came from there. Before anything is destroyed, which would wait for it.
                unsafe { (self.verbs.ibv_ack_async_event)(&mut event) };
                for &at in &*self.connections.borrow() {
                    // SAFETY: connections that are not destroyed yet.
                    let at = unsafe { &*at };
                    let own = OF_A_CONNECTION.contains(&event.kind) && at.is_about(element);
                    let is_dead = event.kind == DEVICE_FATAL && at.setup.device as usize == index;
                    if is_dead {
                        self.take_blame(&format!("{device}: {text} (event {})", event.kind));
                    }
                    if own || is_dead {
                        at.break_off(&format!("{text} (event {})", event.kind));
                    }
                }
            }
        }
    }

    /// A connection has ended by `why`, which is no peer's fault.
    pub(crate) fn take_blame(&self, why: &str) {
        self.failed.get_or_init(|| why.to_owned());
    }

    /// What has gone wrong here with connections, and is no peer's fault.
    pub(crate) fn failure(&self) -> Result<(), String> {
        self.failed.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Events of all connections, at most so many.
    pub(crate) fn poll(&self, most: usize) -> Ref<'_, [Event]> {
        let mut events = self.found.borrow_mut();
        events.clear();
        let connections = self.connections.borrow();
        let (count, next) = (connections.len(), self.next.get());
        for i in 0..count {
            // SAFETY: connections that are not destroyed yet.
            unsafe { (*connections[(next + i) % count]).poll(&mut events, most) };
        }
        self.next.set((next + 1) % count.max(1));
        drop(connections);
        // To ask a device is a system call.
        self.idle
            .set(if events.is_empty() { self.idle.get() + 1 } else { 0 });
        if self.idle.get() == IDLE {
            self.idle.set(0);
            self.asynchronous();
        }
        drop(events);
        Ref::map(self.found.borrow(), Vec::as_slice)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Takes off what made the descriptor readable, and asks for the next event of every queue.
    pub(crate) fn arm(&self) -> Result<(), String> {
        for index in 0..self.devices.len() {
            self.drain_channel(index as u32);
        }
        self.asynchronous();
        self.count(|counts| counts.sleeps += 1);
        for &at in &*self.connections.borrow() {
            // SAFETY: connections that are not destroyed yet.
            let at = unsafe { &*at };
            if at.failed.get().is_none() {
                at.arm()?;
            }
        }
        Ok(())
    }
}

/// Polls.
const IDLE: u32 = 4096;
const DEVICE_FATAL: u32 = 8;
const PORT_ACTIVE: u32 = 9;
const PORT_ERROR: u32 = 10;
/// What tells of a port, by its number: active, error, LID, keys, subnet manager, names, addresses.
const OF_A_PORT: [u32; 7] = [9, 10, 11, 12, 13, 17, 18];
/// Errors of a completion queue or a queue pair.
const OF_A_CONNECTION: [u32; 4] = [0, 1, 2, 3];
/// What is no reason to warn: established, drained, path migrated, port active, LID, keys, subnet manager, names, addresses.
const BENIGN: [u32; 9] = [4, 5, 6, 9, 11, 12, 13, 17, 18];

impl Drop for Context {
    fn drop(&mut self) {
        let Counts {
            writes,
            inline,
            signaled,
            bytes,
            polls,
            completions,
            sleeps,
        } = self.counts.get();
        self.log(
            2,
            &format!(
                "{writes} writes ({inline} inline, {signaled} signaled) of {bytes} bytes, {completions} completions by {polls} polls, {sleeps} times asleep"
            ),
        );
        forks::forget(self.epoll);
        // SAFETY: opened once.
        unsafe { libc::close(self.epoll) };
    }
}
