//! Ports that can be used: which, with what address, and their memory.

use crate::{
    forks,
    gid::{self, Entry},
    nearness::{self, Nearness},
    settings::Settings,
    verbs::{self, Channel, DeviceAttr, Port, RawContext, Verbs},
};
use std::{cell::RefCell, cmp::Reverse, ffi::CStr, ffi::c_void, fs, io, ptr};

const ACTIVE: u32 = 4;
const INFINIBAND: u8 = 1;
/// `IBV_QPF_GRH_REQUIRED` of a port's flags.
const NEEDS_GLOBAL: u8 = 1;

/// An open port: its device's context, and a protection domain and a channel for completions of its own.
pub(crate) struct Device {
    pub(crate) verbs: &'static Verbs,
    pub(crate) raw: *mut RawContext,
    pub(crate) pd: *mut c_void,
    pub(crate) channel: *mut Channel,
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) megabits: u32,
    pub(crate) numa_node: i32,
    pub(crate) max_sge: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_write: u64,
    pub(crate) mtu: u32,
    pub(crate) lid: u16,
    pub(crate) infiniband: bool,
    /// Whether packets must have the head with which they find their way between subnets, InfiniBand or not.
    pub(crate) needs_global: bool,
    pub(crate) gid: [u8; 16],
    pub(crate) gid_index: u8,
    /// Why this address was chosen.
    pub(crate) reason: &'static str,
    /// How many of its bits are the subnet's.
    pub(crate) subnet: u32,
    /// What the device has told of the port that is not over.
    pub(crate) trouble: RefCell<Option<String>>,
}

/// The ports that are used.
pub(crate) struct Found {
    pub(crate) devices: Vec<Device>,
    /// Why others are left out.
    pub(crate) others: Vec<String>,
    /// What `CCL_IB_HCA` lists and is not there.
    pub(crate) missing: Vec<String>,
}

/// All ports that `CCL_IB_HCA` allows and that are up, the fastest first, and of equals the nearest.
///
/// Unless it lists them, only such as are as fast as the fastest, and of the same kind: links use all alike.
///
/// # Errors
/// Why there is none.
pub(crate) fn all(settings: &Settings, near: &Nearness) -> Result<Found, String> {
    let (verbs, choice) = (verbs::verbs()?, &settings.choice);
    let mut count = 0;
    // SAFETY: the library counts the list's devices.
    let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
    if list.is_null() || count == 0 {
        if !list.is_null() {
            // SAFETY: it came from the library.
            unsafe { (verbs.ibv_free_device_list)(list) };
        }
        return Err("there is no RDMA device on this machine (ibv_devices lists none)".to_owned());
    }
    let (mut found, mut refused, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..count as usize {
        // SAFETY: the list has as many, and their names end with a zero.
        let (at, name) = unsafe {
            let at = *list.add(i);
            (
                at,
                CStr::from_ptr((verbs.ibv_get_device_name)(at))
                    .to_string_lossy()
                    .into_owned(),
            )
        };
        for port in 1..=ports(&name) {
            names.push((name.clone(), port));
            if choice.takes(&name, port) {
                match Device::open(verbs, at, &name, port, settings) {
                    Ok(device) => found.push(device),
                    Err(why) => refused.push(format!("{name} port {port}: {why}")),
                }
            }
        }
    }
    // SAFETY: it came from the library, and contexts that are open do not need it.
    unsafe { (verbs.ibv_free_device_list)(list) };
    match (found.is_empty(), refused.is_empty()) {
        (false, _) => {
            found.sort_by_cached_key(|device| {
                (Reverse(device.megabits), near.far(&device.name, device.numa_node))
            });
            if !choice.is_list() {
                let megabits = found[0].megabits;
                // The same for all ranks of a host, whichever ports are near them.
                let infiniband = found
                    .iter()
                    .any(|device| device.megabits == megabits && device.infiniband);
                let others = found.extract_if(.., |device| {
                    device.megabits != megabits || device.infiniband != infiniband
                });
                let slower = |device: Device| format!("{device}: others are faster or of another kind");
                refused.extend(others.map(slower));
            }
            Ok(Found {
                devices: found,
                others: refused,
                missing: choice.missing(&names),
            })
        }
        (true, false) => Err(refused.join("; ")),
        (true, true) => Err(format!(
            "CCL_IB_HCA={choice} takes none of the devices {}",
            names
                .iter()
                .map(|(name, port)| format!("{name}:{port}"))
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

/// How many ports a device has.
fn ports(name: &str) -> u8 {
    let count = fs::read_dir(format!("/sys/class/infiniband/{name}/ports")).map_or(0, Iterator::count);
    u8::try_from(count).unwrap_or(u8::MAX)
}

fn sysfs(name: &str, rest: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/class/infiniband/{name}/{rest}")).ok()?;
    Some(text.trim().to_owned())
}

impl Device {
    fn open(
        verbs: &'static Verbs,
        at: *mut c_void,
        name: &str,
        port: u8,
        settings: &Settings,
    ) -> Result<Device, String> {
        let failed = |what| format!("{what}: {}", io::Error::last_os_error());
        // SAFETY: a device of the list.
        let raw = unsafe { (verbs.ibv_open_device)(at) };
        if raw.is_null() {
            return Err(failed("ibv_open_device"));
        }
        let mut device = Device::closed(verbs, raw, name, port);
        // SAFETY: the context is open.
        let own = unsafe { [(*raw).cmd_fd, (*raw).async_fd] };
        own.into_iter().for_each(forks::note);
        // Others, as of iWARP, make their connections in other ways.
        if let Some(kind) = sysfs(name, "node_type").filter(|kind| !kind.starts_with("1:")) {
            return Err(format!("it is no adapter of InfiniBand or RoCE but {kind:?}"));
        }
        // What has been opened is closed by `drop` where one of these fails.
        let mut state = Port::default();
        // SAFETY: all bytes zero are a value of it.
        let mut attr: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and there is room for what is asked.
        let (a, b) = unsafe {
            (
                (verbs.ibv_query_port)(raw, port, &mut state),
                (verbs.ibv_query_device)(raw, &mut attr),
            )
        };
        if a != 0 || b != 0 {
            return Err(format!(
                "it cannot be asked: {}",
                io::Error::from_raw_os_error(a.max(b))
            ));
        }
        if state.state != ACTIVE {
            let text = sysfs(name, &format!("ports/{port}/state")).unwrap_or_else(|| state.state.to_string());
            return Err(format!("the port is not active but {text:?}"));
        }
        if settings.pkey_index >= state.pkeys.max(1) {
            return Err(format!(
                "CCL_IB_PKEY={}: the port has {} partition keys, from place 0 on",
                settings.pkey_index, state.pkeys
            ));
        }
        device.infiniband = state.link_layer == INFINIBAND;
        device.needs_global = !device.infiniband || state.flags & NEEDS_GLOBAL != 0;
        device.lid = state.lid;
        device.mtu = settings
            .mtu
            .map_or(state.active_mtu, |mtu| mtu.min(state.active_mtu));
        device.max_sge = attr.max_sge.max(0) as u32;
        device.max_wr = attr.max_qp_wr.max(0) as u32;
        device.max_write = u64::from(state.max_msg);
        device.numa_node = sysfs(name, "device/numa_node")
            .and_then(|n| n.parse().ok())
            .unwrap_or(-1);
        let gigabits = sysfs(name, &format!("ports/{port}/rate"))
            .and_then(|rate| rate.split(' ').next().and_then(|n| n.parse::<f64>().ok()));
        device.megabits = gigabits.map_or(0, |n| (n * 1000.0) as u32);
        device.choose_gid(state.gids.max(0) as u32, settings)?;
        // SAFETY: the context is open.
        unsafe {
            device.pd = (verbs.ibv_alloc_pd)(raw);
            if device.pd.is_null() {
                return Err(failed("ibv_alloc_pd"));
            }
            device.channel = (verbs.ibv_create_comp_channel)(raw);
            if device.channel.is_null() {
                return Err(failed("ibv_create_comp_channel"));
            }
            forks::note((*device.channel).fd);
            for fd in [(*device.channel).fd, (*raw).async_fd] {
                let flags = libc::fcntl(fd, libc::F_GETFL);
                if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
                    return Err(failed("fcntl"));
                }
            }
        }
        Ok(device)
    }

    /// One of which nothing is open or known yet but `raw`.
    fn closed(verbs: &'static Verbs, raw: *mut RawContext, name: &str, port: u8) -> Device {
        Device {
            verbs,
            raw,
            pd: ptr::null_mut(),
            channel: ptr::null_mut(),
            name: name.to_owned(),
            port,
            megabits: 0,
            numa_node: -1,
            max_sge: 0,
            max_wr: 0,
            max_write: 0,
            mtu: 0,
            lid: 0,
            infiniband: false,
            needs_global: false,
            gid: [0; 16],
            gid_index: 0,
            reason: "",
            subnet: 0,
            trouble: RefCell::default(),
        }
    }

    /// One that is not open.
    #[cfg(test)]
    pub(crate) fn for_test(verbs: &'static Verbs, name: &str, port: u8) -> Device {
        Device::closed(verbs, ptr::null_mut(), name, port)
    }

    fn choose_gid(&mut self, count: u32, settings: &Settings) -> Result<(), String> {
        let kind = |index| {
            sysfs(
                &self.name,
                &format!("ports/{}/gid_attrs/types/{index}", self.port),
            )
        };
        let entry = |index| {
            let is_v2 = kind(index).is_some_and(|kind| kind.contains("v2"));
            Some(Entry {
                index,
                is_v2,
                gid: self.gid_at(index)?,
            })
        };
        let table: Vec<Entry> = (0..count.min(256)).filter_map(entry).collect();
        let (chosen, reason) = gid::choose(&table, self.infiniband, settings)?;
        (self.gid, self.gid_index, self.reason) = (chosen.gid, chosen.index as u8, reason);
        self.subnet = nearness::subnet(self.gid, self.infiniband);
        Ok(())
    }

    fn gid_at(&self, index: u32) -> Option<[u8; 16]> {
        let mut gid = [0; 16];
        // SAFETY: the context is open.
        let status = unsafe { (self.verbs.ibv_query_gid)(self.raw, self.port, index as i32, &mut gid) };
        (status == 0 && gid != [0; 16]).then_some(gid)
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} port {}", self.name, self.port)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: what was made, once, in the order opposite to that; connections and memory are gone.
        unsafe {
            if !self.channel.is_null() {
                forks::forget((*self.channel).fd);
                (self.verbs.ibv_destroy_comp_channel)(self.channel);
            }
            if !self.pd.is_null() {
                (self.verbs.ibv_dealloc_pd)(self.pd);
            }
            let own = [(*self.raw).cmd_fd, (*self.raw).async_fd];
            own.into_iter().for_each(forks::forget);
            (self.verbs.ibv_close_device)(self.raw);
        }
    }
}
