//! NVML: what NVIDIA's driver tells of GPUs and their NVLinks, by its library, which is loaded when it is needed.
//!
//! `nvml-wrapper` (0.13) has no call for the fabric, and its call for what a link leads to never gives the answer: these two are
//! made here.

use nvml_wrapper::{Device, NvLink, Nvml, enum_wrappers::nv_link::Capability, error::NvmlError};
use nvml_wrapper_sys::bindings as raw;
use std::{ffi::OsStr, mem};

/// The driver's library, as the loader finds it.
pub(crate) const LIBRARY: &str = "libnvidia-ml.so.1";

/// What NVML tells of a GPU. What it does not know or has no call for is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// NVML's number of it.
    pub(crate) index: u32,
    /// As NVML writes it: `00000000:0F:00.0`.
    pub(crate) bus_id: String,
    pub(crate) uuid: Option<String>,
    /// Compute capability: 90 for 9.0.
    pub(crate) sm: Option<u32>,
    /// Links that are up and carry data between GPUs, in the order of their numbers.
    pub(crate) links: Vec<Link>,
    pub(crate) fabric: Option<Fabric>,
}

/// One NVLink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Of the other end.
    pub(crate) bus_id: String,
    /// What that is.
    pub(crate) end: End,
    /// NVML's number of a version of NVLink (`nvmlNvlinkVersion_t`).
    pub(crate) version: Option<u32>,
}

/// What an NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Gpu,
    Switch,
    /// A POWER processor.
    Processor,
    Unknown,
}

/// The domain of NVLinks that several hosts share, and which part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fabric {
    /// 32 hexadecimal digits.
    pub(crate) cluster: String,
    pub(crate) clique: u32,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// There is no library, or no driver.
    Absent(String),
    /// There is a driver, with which something is wrong.
    Broken(String),
}

/// All GPUs, in NVML's order, by the library of that name or path.
pub(crate) fn gpus(library: &OsStr) -> Result<Vec<Gpu>, Silence> {
    let nvml = Nvml::builder().lib_path(library).init().map_err(|error| {
        let text = format!("{}: {error}", library.display());
        match error {
            NvmlError::LibloadingError(_)
            | NvmlError::DriverNotLoaded
            | NvmlError::LibraryNotFound
            | NvmlError::FailedToLoadSymbol(_) => Silence::Absent(text),
            _ => Silence::Broken(text),
        }
    })?;
    let broken = |error: NvmlError| Silence::Broken(format!("{}: {error}", library.display()));
    let count = nvml.device_count().map_err(broken)?;
    let mut gpus = Vec::new();
    for index in 0..count {
        // One that this process may not look at, or that fell off the bus, does not hide the others.
        let device = nvml.device_by_index(index);
        let found = device.and_then(|device| Ok((device.pci_info()?.bus_id, device)));
        match found {
            Ok((bus_id, device)) => gpus.push(gpu(index, bus_id, &device)),
            Err(error) => tracing::debug!("NVML's GPU {index}: {error}"),
        }
    }
    Ok(gpus)
}

fn gpu(index: u32, bus_id: String, device: &Device) -> Gpu {
    let capability = device.cuda_compute_capability().ok();
    Gpu {
        index,
        bus_id,
        uuid: device.uuid().ok(),
        sm: capability.and_then(|of| u32::try_from(of.major * 10 + of.minor).ok()),
        links: links(device),
        fabric: fabric(device),
    }
}

fn links(device: &Device) -> Vec<Link> {
    let mut links = Vec::new();
    for number in 0..MOST_LINKS {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => {}
            Err(NvmlError::InvalidArg) => break, // There are no more.
            Ok(false) | Err(_) => continue,
        }
        // Older drivers have no word for the capability.
        if matches!(link.has_capability(Capability::P2p), Ok(false)) {
            continue;
        }
        if let Ok(remote) = link.remote_pci_info() {
            links.push(Link {
                bus_id: remote.bus_id,
                end: end(&link),
                version: link.version().ok(),
            });
        }
    }
    links
}

/// More than any GPU has.
const MOST_LINKS: u32 = 64;

fn end(link: &NvLink) -> End {
    let device = link.device();
    let Ok(ask) = device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref() else {
        return End::Unknown;
    };
    let mut kind = raw::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    // SAFETY: the handle is of the library whose function this is, which `device` keeps loaded and begun; the answer is one
    // number, for which there is room.
    let told = unsafe { ask(device.handle(), link.link(), &mut kind) };
    match kind {
        _ if told != raw::nvmlReturn_enum_NVML_SUCCESS => End::Unknown,
        raw::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => End::Gpu,
        raw::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => End::Switch,
        raw::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_IBMNPU => End::Processor,
        _ => End::Unknown,
    }
}

/// The fabric, once the GPU has become a part of it. Drivers before 550 have an older call.
fn fabric(device: &Device) -> Option<Fabric> {
    let lib = device.nvml().lib();
    // SAFETY: numbers and arrays of them, of which any bits are values.
    let mut info: raw::nvmlGpuFabricInfoV_t = unsafe { mem::zeroed() };
    // The second version, which is a beginning of the newest: all drivers with this call know it.
    info.version = mem::size_of::<raw::nvmlGpuFabricInfo_v2_t>() as u32 | 2 << 24;
    let told = lib.nvmlDeviceGetGpuFabricInfoV.as_ref().ok().map(|ask| {
        // SAFETY: as in `end`; the library writes what is of the version that we ask for, which is no longer than `info`.
        unsafe { ask(device.handle(), &mut info) }
    });
    let (cluster, clique, state, status) = match told {
        Some(raw::nvmlReturn_enum_NVML_SUCCESS) => (info.clusterUuid, info.cliqueId, info.state, info.status),
        _ => {
            let ask = lib.nvmlDeviceGetGpuFabricInfo.as_ref().ok()?;
            // SAFETY: as above.
            let mut info: raw::nvmlGpuFabricInfo_t = unsafe { mem::zeroed() };
            // SAFETY: as in `end`, with room for the one version that this call has.
            let told = unsafe { ask(device.handle(), &mut info) };
            if told != raw::nvmlReturn_enum_NVML_SUCCESS {
                return None;
            }
            (info.clusterUuid, info.cliqueId, info.state, info.status)
        }
    };
    let joined = u32::from(state) == raw::NVML_GPU_FABRIC_STATE_COMPLETED
        && status == raw::nvmlReturn_enum_NVML_SUCCESS
        && cluster != [0; 16];
    joined.then(|| Fabric {
        cluster: cluster.iter().map(|byte| format!("{byte:02x}")).collect(),
        clique,
    })
}
