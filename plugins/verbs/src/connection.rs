//! [`Connection`]: a reliable queue pair and its completion queue.

use crate::{
    abi::{self, Event, Segment, Setup},
    context::Context,
    device::Device,
    memory,
    settings::Fault,
    verbs::{self, Ah, Cap, Cq, Qp, QpAttr, QpInit, SendWr, Sge, Wc},
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::VecDeque,
    ffi::{CStr, c_void},
    io,
    net::Ipv6Addr,
    ptr,
};

/// `ccl_net_connection`.
pub(crate) struct Connection {
    pub(crate) context: *mut Context,
    pub(crate) setup: Setup,
    qp: Cell<*mut Qp>,
    cq: Cell<*mut Cq>,
    psn: u32,
    max_inline: Cell<usize>,
    max_sge: usize,
    /// Writes of which the device has not told that they are done, nor of a later one.
    posted: Cell<u32>,
    /// Those since the last one that it tells of, and before each of those.
    quiet: Cell<u32>,
    runs: RefCell<VecDeque<u32>>,
    /// Whether the other side can receive: the first one greets when it can, and the other one waits for that.
    ready: Cell<bool>,
    /// Completion events of the channel that have to be acknowledged.
    pub(crate) events: Cell<u32>,
    /// Why, if it has.
    pub(crate) failed: OnceCell<String>,
    told: Cell<bool>,
}

/// The layout of the bytes that are exchanged; its first byte is its version.
const BYTES: usize = 30;
const LAYOUT: u8 = 1;
/// The id of the greeting, which is not told.
const GREETING: u64 = u64::MAX - 1;
/// Of so many writes that nothing is to be told of the device tells of one, so that there is room again.
const QUIET_RUN: u32 = 16;

/// Of a write.
pub(crate) const MOST_SEGMENTS: usize = 8;
/// The longest write that goes with its request, where the device has that.
const INLINE_BYTES: u32 = 128;

const RC: u32 = 2;
const REMOTE_WRITE: u32 = 2;
const WRITE_WITH_IMMEDIATE: u32 = 1;
const SIGNALED: u32 = 2;
const INLINE: u32 = 8;
const RECEIVED: u32 = 129;

const INIT: (u32, i32) = (1, 57);
const TO_RECEIVE: (u32, i32) = (2, 1_216_897);
const TO_SEND: (u32, i32) = (3, 77_313);
const TO_ERROR: (u32, i32) = (6, 1);
/// Of such a mask: the way to the other side is set, by an address of the port.
const USES_ADDRESS: i32 = 1 << 7;

/// What the bytes of an end say of its port: whether it is InfiniBand, and its address.
pub(crate) fn address(bytes: &[u8]) -> Option<(bool, [u8; 16])> {
    let bytes = bytes
        .first_chunk::<BYTES>()
        .filter(|all| bytes.len() == BYTES && all[0] == LAYOUT)?;
    Some((bytes[1] == 1, *bytes.last_chunk()?))
}

impl Connection {
    /// A queue pair that can receive as soon as it is joined. [`destroy`](Connection::destroy) ends it.
    ///
    /// # Safety
    /// The context stays where it is as long as the connection.
    pub(crate) unsafe fn create(context: *mut Context, setup: Setup) -> Result<*mut Connection, String> {
        // SAFETY: the caller's promise.
        let device = unsafe { &*context }.device(setup.device)?;
        let mut random = [0u8; 4];
        // SAFETY: room for as many bytes.
        if unsafe { libc::getrandom(random.as_mut_ptr().cast(), 4, 0) } != 4 {
            return Err(format!("getrandom: {}", io::Error::last_os_error()));
        }
        let made = Box::into_raw(Box::new(Connection {
            context,
            setup,
            qp: Cell::new(ptr::null_mut()),
            cq: Cell::new(ptr::null_mut()),
            psn: u32::from_ne_bytes(random) & 0xff_ffff,
            max_inline: Cell::new(0),
            max_sge: device.max_sge.min(MOST_SEGMENTS as u32) as usize,
            posted: Cell::new(0),
            quiet: Cell::new(0),
            runs: RefCell::default(),
            ready: Cell::new(setup.first != 0),
            events: Cell::new(0),
            failed: OnceCell::new(),
            told: Cell::new(false),
        }));
        // SAFETY: it was just made, and stays where it is.
        match unsafe { (*made).make(made.cast()) } {
            Ok(()) => Ok(made),
            Err(why) => {
                // SAFETY: nobody else knows it.
                unsafe { Connection::destroy(made) };
                Err(why)
            }
        }
    }

    /// Its queues. `word` is where it is, which events of the completion queue tell.
    fn make(&self, word: *mut c_void) -> Result<(), String> {
        let device = self.device()?;
        // One more of each for the greeting.
        let (sends, receives) = (self.setup.writes + QUIET_RUN + 1, self.setup.arrivals + 1);
        if sends.max(receives) > device.max_wr {
            return Err(format!(
                "{device}: it takes {} requests of a queue pair, too few",
                device.max_wr
            ));
        }
        let failed = |what| format!("{device}: {}", memory::reason(what));
        let entries = (sends + receives + 1) as i32;
        // SAFETY: the device is open, and this stays where it is until the queue is destroyed.
        let cq = unsafe { (device.verbs.ibv_create_cq)(device.raw, entries, word, device.channel, 0) };
        if cq.is_null() {
            return Err(failed("ibv_create_cq"));
        }
        self.cq.set(cq);
        // Small writes go inline where the device has that; one that has not refuses, or gives 0.
        for inline in [INLINE_BYTES, 0] {
            let cap = Cap {
                send_wr: sends,
                recv_wr: receives,
                send_sge: self.max_sge as u32,
                recv_sge: 1,
                inline,
            };
            let mut init = QpInit {
                qp_context: ptr::null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq: ptr::null_mut(),
                cap,
                kind: RC,
                sig_all: 0,
            };
            // SAFETY: domain and queue live.
            self.qp
                .set(unsafe { (device.verbs.ibv_create_qp)(device.pd, &mut init) });
            self.max_inline.set(init.cap.inline as usize);
            if !self.qp.get().is_null() {
                break;
            }
        }
        if self.qp.get().is_null() {
            return Err(failed("ibv_create_qp"));
        }
        let attr = QpAttr {
            access: REMOTE_WRITE,
            port_num: device.port,
            pkey_index: self.context().settings.pkey_index,
            ..QpAttr::default()
        };
        self.modify(attr, INIT, "INIT")?;
        for _ in 0..receives {
            self.receive()?;
        }
        self.arm()
    }

    fn context(&self) -> &Context {
        // SAFETY: it lives as long as this, and is shared.
        unsafe { &*self.context }
    }

    fn device(&self) -> Result<&Device, String> {
        self.context().device(self.setup.device)
    }

    /// What the other side joins by.
    pub(crate) fn bytes(&self) -> Result<[u8; BYTES], String> {
        let device = self.device()?;
        let mut bytes = [0; BYTES];
        bytes[0] = LAYOUT;
        bytes[1] = u8::from(device.infiniband);
        bytes[2] = device.mtu as u8;
        // SAFETY: the queue pair lives.
        bytes[4..8].copy_from_slice(&unsafe { (*self.qp.get()).number }.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.psn.to_le_bytes());
        bytes[12..14].copy_from_slice(&device.lid.to_le_bytes());
        bytes[14..].copy_from_slice(&device.gid);
        Ok(bytes)
    }

    /// Joins the end that said `bytes`.
    pub(crate) fn join(&self, bytes: &[u8]) -> Result<(), String> {
        if let Some(why) = self.failed.get() {
            return Err(why.clone()); // its card has gone meanwhile
        }
        let (device, settings) = (self.device()?, &self.context().settings);
        let Some(bytes) = bytes
            .first_chunk::<BYTES>()
            .filter(|all| bytes.len() == BYTES && all[0] == LAYOUT)
        else {
            return Err(format!("{device}: the other side's plugin is another version"));
        };
        if (bytes[1] == 1) != device.infiniband {
            return Err(format!(
                "{device}: one side is InfiniBand, the other one Ethernet"
            ));
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mtu = u32::from(bytes[2]);
        if !(1..=5).contains(&mtu) {
            return Err(format!("{device}: the other side's MTU is {mtu}"));
        }
        let mut dgid = [0; 16];
        dgid.copy_from_slice(&bytes[14..]);
        let is_elsewhere = dgid[..8] != device.gid[..8];
        let lid = u16::from_le_bytes([bytes[12], bytes[13]]);
        // To another subnet of InfiniBand a router's, which the address names.
        let router = u16::from_be_bytes([dgid[4], dgid[5]]);
        let dlid = match device.infiniband && is_elsewhere && router != 0 {
            true => router,
            false => lid,
        };
        let ah = Ah {
            dgid,
            sgid_index: device.gid_index,
            hop_limit: 255,
            traffic_class: settings.traffic_class,
            dlid,
            sl: settings.service_level,
            is_global: u8::from(device.needs_global || is_elsewhere),
            port_num: device.port,
            ..Ah::default()
        };
        let attr = QpAttr {
            path_mtu: mtu.min(device.mtu),
            dest_qp_num: word(4) & 0xff_ffff,
            rq_psn: word(8) & 0xff_ffff,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ah,
            ..QpAttr::default()
        };
        let route = |why| {
            let [own, other] = [device.gid, dgid].map(|gid| Ipv6Addr::from(gid).to_canonical());
            let hint = match !device.infiniband && own.is_ipv4() != other.is_ipv4() {
                true => " (one is IPv4, the other IPv6: CCL_SOCKET_FAMILY and CCL_IB_GID_INDEX choose)",
                false => "",
            };
            format!("{why}: from {own} to {other}{hint}")
        };
        self.modify(attr, TO_RECEIVE, "RTR").map_err(route)?;
        let attr = QpAttr {
            timeout: settings.timeout,
            retry_cnt: settings.retries,
            rnr_retry: 6,
            sq_psn: self.psn,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        self.modify(attr, TO_SEND, "RTS")?;
        if self.setup.first != 0 {
            self.post(&[], 0, 0, 0, GREETING)?;
        }
        Ok(())
    }

    fn modify(&self, mut attr: QpAttr, (state, mask): (u32, i32), name: &str) -> Result<(), String> {
        let device = self.device()?;
        attr.state = state;
        // SAFETY: the queue pair lives.
        match unsafe { (device.verbs.ibv_modify_qp)(self.qp.get(), &mut attr, mask) } {
            0 => Ok(()),
            status => {
                let why = io::Error::from_raw_os_error(status);
                let by = match mask & USES_ADDRESS {
                    0 => String::new(),
                    _ => format!(" (address {} of the port)", device.gid_index),
                };
                Err(format!("{device}: ibv_modify_qp to {name}: {why}{by}"))
            }
        }
    }

    fn receive(&self) -> Result<(), String> {
        if self.qp.get().is_null() {
            return Ok(()); // what has come before is told
        }
        // SAFETY: the queue pair lives.
        match unsafe { verbs::post_recv(self.qp.get()) } {
            0 => Ok(()),
            status => Err(format!("ibv_post_recv: {}", io::Error::from_raw_os_error(status))),
        }
    }

    /// Posts a write; false where there is no room now, or the other side cannot receive yet.
    pub(crate) fn write(
        &self,
        segments: &[Segment],
        address: u64,
        key: u64,
        immediate: u32,
        id: u64,
    ) -> Result<bool, String> {
        if self.failed.get().is_some() {
            return Ok(true); // it is lost, of which CCL_NET_FAILED tells
        }
        if !self.ready.get() || self.posted.get() == self.setup.writes + QUIET_RUN {
            return Ok(false);
        }
        let mut key = key as u32;
        // One without bytes has no key.
        let fault = (!segments.is_empty()).then(|| self.context().fault()).flatten();
        match fault {
            None => {}
            Some(Fault::WrongKey) => key = !key,
            Some(Fault::Destroyed) => self.drop_pair(),
            Some(Fault::Error) => self.modify(QpAttr::default(), TO_ERROR, "ERROR")?,
        }
        self.post(segments, address, key, immediate, id)?;
        self.posted.set(self.posted.get() + 1);
        Ok(true)
    }

    fn post(&self, parts: &[Segment], address: u64, key: u32, imm: u32, id: u64) -> Result<(), String> {
        let mut list = [Sge::default(); MOST_SEGMENTS];
        if parts.len() > self.max_sge {
            return Err("a write of too many segments".to_owned());
        }
        let mut all = 0;
        for (to, part) in list.iter_mut().zip(parts) {
            // SAFETY: registered memory of this context.
            let lkey = unsafe { (*part.memory).lkey };
            *to = Sge {
                addr: part.address as u64,
                length: part.len as u32,
                lkey,
            };
            all += part.len;
        }
        if self.qp.get().is_null() {
            return Ok(()); // it is lost
        }
        let is_quiet = id == abi::UNTOLD && self.quiet.get() + 1 < QUIET_RUN;
        let inline = if all > 0 && all <= self.max_inline.get() {
            INLINE
        } else {
            0
        };
        let mut wr = SendWr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: list.as_ptr(),
            num_sge: parts.len() as i32,
            opcode: WRITE_WITH_IMMEDIATE,
            flags: inline | if is_quiet { 0 } else { SIGNALED },
            imm: imm.to_be(),
            remote_addr: address,
            rkey: key,
            rest: [0; 9],
        };
        // SAFETY: the queue pair lives, and the list as long as the call.
        match unsafe { verbs::post_send(self.qp.get(), &mut wr) } {
            0 => {
                match is_quiet {
                    true => self.quiet.set(self.quiet.get() + 1),
                    false => self.runs.borrow_mut().push_back(self.quiet.take()),
                }
                self.context().count(|counts| {
                    counts.writes += 1;
                    counts.signaled += u64::from(!is_quiet);
                    counts.inline += u64::from(inline != 0);
                    counts.bytes += all as u64;
                });
                Ok(())
            }
            status => Err(format!("ibv_post_send: {}", io::Error::from_raw_os_error(status))),
        }
    }

    /// Adds events of what has completed, while there is room for them.
    pub(crate) fn poll(&self, events: &mut Vec<Event>, most: usize) {
        while self.failed.get().is_none() && events.len() < most {
            let mut done = [Wc::default(); 16];
            let room = (most - events.len()).min(done.len());
            // SAFETY: the queue lives.
            let n = unsafe { verbs::poll_cq(self.cq.get(), &mut done[..room]) };
            if n < 0 {
                self.break_off("ibv_poll_cq failed");
            }
            self.context().count(|counts| {
                counts.polls += 1;
                counts.completions += n.max(0) as u64;
            });
            for wc in &done[..n.max(0) as usize] {
                if let Err(why) = self.completed(wc, events) {
                    self.break_off(&why);
                    break;
                }
            }
            if n < room as i32 {
                break;
            }
        }
        if self.failed.get().is_some() && events.len() < most && !self.told.replace(true) {
            events.push(Event {
                connection: self.setup.number,
                id: 0,
                kind: abi::FAILED,
                immediate: 0,
            });
        }
    }

    fn completed(&self, wc: &Wc, events: &mut Vec<Event>) -> Result<(), String> {
        // What else is in it is only defined where the status is good.
        if wc.status != 0 {
            let verbs = self.context().verbs();
            // SAFETY: the library's texts are constants.
            let text = unsafe { CStr::from_ptr((verbs.ibv_wc_status_str)(wc.status)).to_string_lossy() };
            return Err(format!(
                "{text} (status {}, vendor's {:#x})",
                wc.status, wc.vendor_err
            ));
        }
        let connection = self.setup.number;
        if wc.opcode == RECEIVED {
            self.receive()?;
            if !self.ready.replace(true) {
                return Ok(());
            }
            let immediate = u32::from_be(wc.imm);
            events.push(Event {
                connection,
                id: 0,
                kind: abi::ARRIVED,
                immediate,
            });
            return Ok(());
        }
        let quiet = self.runs.borrow_mut().pop_front().unwrap_or_default();
        let own = u32::from(wc.wr_id != GREETING);
        self.posted.set(self.posted.get() - quiet - own);
        if ![GREETING, abi::UNTOLD].contains(&wc.wr_id) {
            events.push(Event {
                connection,
                id: wc.wr_id,
                kind: abi::WRITTEN,
                immediate: 0,
            });
        }
        Ok(())
    }

    /// It has failed: from here on nothing reads or writes its memory.
    pub(crate) fn break_off(&self, why: &str) {
        if self.failed.get().is_some() {
            return;
        }
        self.context().asynchronous(); // the device may know more of it
        let device = self.device();
        let trouble = device
            .as_ref()
            .ok()
            .and_then(|device| device.trouble.borrow().clone());
        let is_own = trouble.is_some();
        let before = trouble
            .filter(|trouble| trouble != why)
            .map_or_else(String::new, |it| format!("; before: {it}"));
        let name = device.map_or_else(|why| why, ToString::to_string);
        let why = self.failed.get_or_init(|| format!("{name}: {why}{before}"));
        if is_own {
            self.context().take_blame(why);
        }
        self.drop_pair();
    }

    /// The queue pair's end: when it is gone the device is done with its requests, and takes none from the other side.
    fn drop_pair(&self) {
        let qp = self.qp.replace(ptr::null_mut());
        if !qp.is_null() {
            // SAFETY: made once, and not used from here on.
            unsafe { (self.context().verbs().ibv_destroy_qp)(qp) };
        }
    }

    pub(crate) fn arm(&self) -> Result<(), String> {
        // SAFETY: the queue lives.
        match unsafe { verbs::req_notify_cq(self.cq.get()) } {
            0 => Ok(()),
            status => Err(format!(
                "ibv_req_notify_cq: {}",
                io::Error::from_raw_os_error(status)
            )),
        }
    }

    /// Whether an asynchronous event is about it.
    pub(crate) fn is_about(&self, element: *mut c_void) -> bool {
        !element.is_null() && (element == self.qp.get().cast() || element == self.cq.get().cast())
    }

    /// Destroys it: the completion queue after its user, and after its events were acknowledged, for which that waits.
    ///
    /// # Safety
    /// It is one that [`create`](Connection::create) made, and nobody uses it any more.
    pub(crate) unsafe fn destroy(at: *mut Connection) {
        // SAFETY: the caller's promise.
        let this = unsafe { &*at };
        let (context, cq) = (this.context(), this.cq.get());
        this.drop_pair();
        if !cq.is_null() {
            context.drain_channel(this.setup.device);
            let events = this.events.get();
            // SAFETY: made once, and as many events were taken.
            unsafe {
                if events > 0 {
                    (context.verbs().ibv_ack_cq_events)(cq, events);
                }
                (context.verbs().ibv_destroy_cq)(cq);
            }
        }
        // SAFETY: it came from a box.
        drop(unsafe { Box::from_raw(at) });
    }
}
