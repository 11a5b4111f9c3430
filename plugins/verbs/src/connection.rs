//! [`Connection`]: a reliable queue pair and its completion queue.

use crate::{
    abi::{self, Event, Segment, Setup},
    context::Context,
    settings::number,
    verbs::{self, Ah, Cap, Cq, Qp, QpAttr, QpInit, SendWr, Sge, Wc},
};
use std::{ffi::CStr, io, ptr};

/// `ccl_net_connection`.
pub(crate) struct Connection {
    pub(crate) context: *mut Context,
    pub(crate) setup: Setup,
    qp: *mut Qp,
    cq: *mut Cq,
    psn: u32,
    max_inline: usize,
    max_sge: usize,
    posted: u32,
    /// Whether the other side can receive: the first one greets when it can, and the other one waits for that.
    ready: bool,
    /// Completion events of the channel that have to be acknowledged.
    pub(crate) events: u32,
    pub(crate) failed: Option<String>,
    pub(crate) told: bool,
}

/// The layout of the bytes that are exchanged; its first byte is its version.
const BYTES: usize = 30;
const LAYOUT: u8 = 1;
/// The id of the greeting, which is not told.
const GREETING: u64 = u64::MAX;

const RC: u32 = 2;
const WRITE_WITH_IMMEDIATE: u32 = 1;
const SIGNALED: u32 = 2;
const INLINE: u32 = 8;
const RECEIVED: u32 = 129;

const INIT: (u32, i32) = (1, 57);
const TO_RECEIVE: (u32, i32) = (2, 1_216_897);
const TO_SEND: (u32, i32) = (3, 77_313);

impl Connection {
    /// A queue pair that can receive as soon as it is joined.
    ///
    /// # Safety
    /// The context stays where it is as long as the connection.
    pub(crate) unsafe fn create(context: *mut Context, setup: Setup) -> Result<Box<Connection>, String> {
        // SAFETY: the caller's promise.
        let device = unsafe { &*context }.device(setup.device)?;
        // One more of each for the greeting.
        let (sends, receives) = (setup.writes + 1, setup.arrivals + 1);
        if sends.max(receives) > device.max_wr {
            return Err(format!(
                "{device}: it takes {} requests of a queue pair, too few",
                device.max_wr
            ));
        }
        let failed = |what: &str| format!("{device}: {what}: {}", io::Error::last_os_error());
        let mut random = [0u8; 4];
        // SAFETY: room for as many bytes.
        if unsafe { libc::getrandom(random.as_mut_ptr().cast(), 4, 0) } != 4 {
            return Err(failed("getrandom"));
        }
        let mut made = Box::new(Connection {
            context,
            setup,
            qp: ptr::null_mut(),
            cq: ptr::null_mut(),
            psn: u32::from_ne_bytes(random) & 0xff_ffff,
            max_inline: 0,
            max_sge: device.max_sge.min(8) as usize,
            posted: 0,
            ready: setup.first != 0,
            events: 0,
            failed: None,
            told: false,
        });
        let entries = (sends + receives + 1) as i32;
        // SAFETY: the device is open. The queue's own word is this connection, which stays in its box.
        unsafe {
            let word = (&raw mut *made).cast();
            made.cq = (device.verbs.ibv_create_cq)(device.raw, entries, word, device.channel, 0);
        }
        if made.cq.is_null() {
            return Err(failed("ibv_create_cq"));
        }
        // Small writes go inline where the device has that; one that has not refuses, or gives 0.
        for inline in [128, 0] {
            let mut init = QpInit {
                qp_context: ptr::null_mut(),
                send_cq: made.cq,
                recv_cq: made.cq,
                srq: ptr::null_mut(),
                cap: Cap {
                    send_wr: sends,
                    recv_wr: receives,
                    send_sge: made.max_sge as u32,
                    recv_sge: 1,
                    inline,
                },
                kind: RC,
                sig_all: 0,
            };
            // SAFETY: domain and queue live.
            made.qp = unsafe { (device.verbs.ibv_create_qp)(device.pd, &mut init) };
            made.max_inline = init.cap.inline as usize;
            if !made.qp.is_null() {
                break;
            }
        }
        if made.qp.is_null() {
            return Err(failed("ibv_create_qp"));
        }
        const REMOTE_WRITE: u32 = 2;
        let mut attr = QpAttr {
            access: REMOTE_WRITE,
            port_num: device.port,
            ..QpAttr::default()
        };
        attr.pkey_index = number("CCL_IB_PKEY", 0, 65535)?.unwrap_or(0) as u16;
        made.modify(attr, INIT, "INIT")?;
        for _ in 0..receives {
            made.receive()?;
        }
        // SAFETY: the queue lives.
        let status = unsafe { verbs::req_notify_cq(made.cq) };
        if status != 0 {
            return Err(format!(
                "{device}: ibv_req_notify_cq: {}",
                io::Error::from_raw_os_error(status)
            ));
        }
        Ok(made)
    }

    /// What the other side joins by.
    pub(crate) fn bytes(&self) -> Result<[u8; BYTES], String> {
        // SAFETY: the context lives as long as this.
        let device = unsafe { &*self.context }.device(self.setup.device)?;
        let mut bytes = [0; BYTES];
        bytes[0] = LAYOUT;
        bytes[1] = u8::from(device.infiniband);
        bytes[2] = device.mtu as u8;
        // SAFETY: the queue pair lives.
        bytes[4..8].copy_from_slice(&unsafe { (*self.qp).number }.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.psn.to_le_bytes());
        bytes[12..14].copy_from_slice(&device.lid.to_le_bytes());
        bytes[14..].copy_from_slice(&device.gid);
        Ok(bytes)
    }

    /// Joins the end that said `bytes`.
    pub(crate) fn join(&mut self, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the context lives as long as this.
        let device = unsafe { &*self.context }.device(self.setup.device)?;
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
        let ah = Ah {
            dgid,
            sgid_index: device.gid_index,
            hop_limit: 255,
            traffic_class: number("CCL_IB_TC", 0, 255)?.unwrap_or(0) as u8,
            dlid: u16::from_le_bytes([bytes[12], bytes[13]]),
            sl: number("CCL_IB_SL", 0, 15)?.unwrap_or(0) as u8,
            is_global: u8::from(!device.infiniband),
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
        self.modify(attr, TO_RECEIVE, "RTR")?;
        let attr = QpAttr {
            timeout: number("CCL_IB_TIMEOUT", 1, 31)?.unwrap_or(18) as u8,
            // 7 is for ever on some devices.
            retry_cnt: number("CCL_IB_RETRY_CNT", 0, 7)?.unwrap_or(6) as u8,
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
        // SAFETY: the context lives as long as this.
        let device = unsafe { &*self.context }.device(self.setup.device)?;
        attr.state = state;
        // SAFETY: the queue pair lives.
        match unsafe { (device.verbs.ibv_modify_qp)(self.qp, &mut attr, mask) } {
            0 => Ok(()),
            status => {
                let why = io::Error::from_raw_os_error(status);
                Err(format!(
                    "{device}: ibv_modify_qp to {name}: {why} (address {} of the port)",
                    device.gid_index
                ))
            }
        }
    }

    fn receive(&self) -> Result<(), String> {
        // SAFETY: the queue pair lives.
        match unsafe { verbs::post_recv(self.qp) } {
            0 => Ok(()),
            status => Err(format!("ibv_post_recv: {}", io::Error::from_raw_os_error(status))),
        }
    }

    /// Posts a write; false where there is no room now, or the other side cannot receive yet.
    pub(crate) fn write(
        &mut self,
        segments: &[Segment],
        address: u64,
        key: u64,
        immediate: u32,
        id: u64,
    ) -> Result<bool, String> {
        if self.failed.is_some() {
            return Ok(true); // it is lost, of which CCL_NET_FAILED tells
        }
        if !self.ready || self.posted == self.setup.writes {
            return Ok(false);
        }
        self.post(segments, address, key as u32, immediate, id)?;
        self.posted += 1;
        Ok(true)
    }

    fn post(&mut self, parts: &[Segment], address: u64, key: u32, imm: u32, id: u64) -> Result<(), String> {
        let mut list = [Sge::default(); 8];
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
        let inline = if all > 0 && all <= self.max_inline {
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
            flags: SIGNALED | inline,
            imm: imm.to_be(),
            remote_addr: address,
            rkey: key,
            rest: [0; 9],
        };
        // SAFETY: the queue pair lives, and the list as long as the call.
        match unsafe { verbs::post_send(self.qp, &mut wr) } {
            0 => Ok(()),
            status => Err(format!("ibv_post_send: {}", io::Error::from_raw_os_error(status))),
        }
    }

    /// Adds events of what has completed, while there is room for them.
    pub(crate) fn poll(&mut self, events: &mut Vec<Event>, most: usize) {
        while self.failed.is_none() && events.len() < most {
            let mut done = [Wc::default(); 16];
            let room = (most - events.len()).min(done.len());
            // SAFETY: the queue lives.
            let n = unsafe { verbs::poll_cq(self.cq, &mut done[..room]) };
            if n < 0 {
                self.break_off("ibv_poll_cq failed");
            }
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
        if self.failed.is_some() && !self.told && events.len() < most {
            self.told = true;
            events.push(Event {
                connection: self.setup.number,
                id: 0,
                kind: abi::FAILED,
                immediate: 0,
            });
        }
    }

    fn completed(&mut self, wc: &Wc, events: &mut Vec<Event>) -> Result<(), String> {
        // What else is in it is only defined where the status is good.
        if wc.status != 0 {
            // SAFETY: the context lives as long as this; the library's texts are constants.
            let text = unsafe {
                let verbs = (*self.context).verbs();
                CStr::from_ptr((verbs.ibv_wc_status_str)(wc.status)).to_string_lossy()
            };
            return Err(format!(
                "{text} (status {}, vendor's {:#x})",
                wc.status, wc.vendor_err
            ));
        }
        let connection = self.setup.number;
        if wc.opcode == RECEIVED {
            self.receive()?;
            if !self.ready {
                self.ready = true;
                return Ok(());
            }
            let immediate = u32::from_be(wc.imm);
            events.push(Event {
                connection,
                id: 0,
                kind: abi::ARRIVED,
                immediate,
            });
        } else if wc.wr_id != GREETING {
            self.posted -= 1;
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
    pub(crate) fn break_off(&mut self, why: &str) {
        if self.failed.is_some() {
            return;
        }
        // SAFETY: the context lives as long as this.
        let context = unsafe { &*self.context };
        let name = context
            .device(self.setup.device)
            .map_or_else(|why| why, ToString::to_string);
        self.failed = Some(format!("{name}: {why}"));
        if !self.qp.is_null() {
            // SAFETY: made once, and not used from here on. When it is gone the device is done with its requests.
            unsafe { (context.verbs().ibv_destroy_qp)(self.qp) };
            self.qp = ptr::null_mut();
        }
    }

    pub(crate) fn arm(&self) -> Result<(), String> {
        // SAFETY: the queue lives.
        match unsafe { verbs::req_notify_cq(self.cq) } {
            0 => Ok(()),
            status => Err(format!(
                "ibv_req_notify_cq: {}",
                io::Error::from_raw_os_error(status)
            )),
        }
    }

    /// Whether an asynchronous event is about it.
    pub(crate) fn is_about(&self, element: *mut std::ffi::c_void) -> bool {
        !element.is_null() && (element == self.qp.cast() || element == self.cq.cast())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the context lives as long as this. Each was made once; the queue after its user, and after its events were
        // acknowledged, for which destruction waits.
        unsafe {
            let verbs = (*self.context).verbs();
            if !self.qp.is_null() {
                (verbs.ibv_destroy_qp)(self.qp);
            }
            if !self.cq.is_null() {
                (*self.context).drain_channel(self.setup.device);
                if self.events > 0 {
                    (verbs.ibv_ack_cq_events)(self.cq, self.events);
                }
                (verbs.ibv_destroy_cq)(self.cq);
            }
        }
    }
}
