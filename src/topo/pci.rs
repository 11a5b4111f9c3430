//! PCI's words: bus ids, classes, speeds, as sysfs and NCCL's files write them.

use super::{graph::NodeKind, speeds};

/// A bus id as `dddd:bb:dd.f` in lower case, whatever zeros its domain has and whether it names a function.
pub fn bus_id(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let mut parts = text.rsplitn(3, ':');
    let (device, bus, domain) = (parts.next().unwrap_or(""), parts.next(), parts.next());
    let Some(bus) = bus else {
        return text;
    };
    let domain = domain.unwrap_or("0").trim_start_matches('0');
    let function = if device.contains('.') { "" } else { ".0" };
    format!("{domain:0>4}:{bus:0>2}:{device}{function}")
}

/// The slot of a bus id: what its functions share.
pub fn slot(bus_id: &str) -> &str {
    bus_id.rsplit_once('.').map_or(bus_id, |(slot, _)| slot)
}

/// What a function says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ids {
    /// Class, subclass and interface.
    pub class: Option<u32>,
    /// Who made it.
    pub vendor: Option<u32>,
    /// Which of the vendor's it is.
    pub device: Option<u32>,
}

/// What a function is.
pub fn kind(ids: &Ids) -> NodeKind {
    let (vendor, Some(class)) = (ids.vendor, ids.class) else {
        return NodeKind::PciFunction;
    };
    match (class >> 16, class >> 8) {
        (_, 0x0604) => NodeKind::PciSwitch,
        (_, 0x0680) if vendor.is_none_or(|vendor| vendor == NVIDIA) => NodeKind::NvSwitch,
        (0x02, _) | (_, 0x0c06) => NodeKind::Nic,
        (0x03, _) if !is_console(ids) => NodeKind::Gpu,
        (0x12, _) if vendor == Some(HUAWEI) => NodeKind::Npu,
        (0x12, _) if vendor.is_none_or(|vendor| vendor == AMD) => NodeKind::Gpu,
        _ => NodeKind::PciFunction,
    }
}

/// A speed as sysfs tells it ("32.0 GT/s PCIe", "8 GT/s"), in tenths of GT/s.
pub fn speed(text: &str) -> Option<u32> {
    let number = text.split_whitespace().next()?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let tenth = part.get(..1)?.parse::<u32>().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth)
}

/// Bytes a second of a link, and what of its words cannot be true of a link in use, if anything. `busy`: the device is one
/// that no machine has on a single lane, or at the lowest speed, but while it is idle or behind a virtual bridge.
pub fn link(speed: Option<&str>, width: Option<&str>, busy: bool) -> (u64, Option<String>) {
    let lanes = width.and_then(|width| width.trim().parse::<u32>().ok());
    let tenths = speed.and_then(self::speed);
    let good_lanes = lanes.filter(|&lanes| (1..=32).contains(&lanes) && !(busy && lanes == 1));
    let good_speed = tenths.filter(|&tenths| speeds::pcie(tenths, 1).is_some() && !(busy && tenths == 25));
    let bytes = speeds::pcie(good_speed.unwrap_or(80), good_lanes.unwrap_or(16)).unwrap_or(speeds::PCIE);
    let mut odd = Vec::new();
    if let (Some(width), None) = (width, good_lanes) {
        odd.push(format!("link_width \"{width}\""));
    }
    if let (Some(speed), None) = (speed, good_speed) {
        odd.push(format!("link_speed \"{speed}\""));
    }
    (bytes, (!odd.is_empty()).then(|| odd.join(" and ")))
}

/// A number as sysfs and NCCL write it: hexadecimal after `0x`, else decimal.
pub fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
const HUAWEI: u32 = 0x19e5;

/// Vendors of displays that compute nothing: ASPEED, Matrox, Cirrus, Bochs, Red Hat, VMware, Microsoft, Huawei, virtio, Silicon
/// Motion, XGI, VirtualBox, Amazon.
const CONSOLES: [u32; 13] = [
    0x1a03, 0x102b, 0x1013, 0x1234, 0x1b36, 0x15ad, 0x1414, HUAWEI, 0x1af4, 0x126f, 0x18ca, 0x80ee, 0x1d0f,
];
/// AMD's displays of servers: ES1000, Radeon 7000, Rage XL.
const AMD_CONSOLES: [u32; 4] = [0x515e, 0x5159, 0x4752, 0x5969];

fn is_console(ids: &Ids) -> bool {
    ids.vendor.is_some_and(|vendor| CONSOLES.contains(&vendor))
        || ids.vendor == Some(AMD) && ids.device.is_some_and(|device| AMD_CONSOLES.contains(&device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids_have_one_form() {
        for (given, wanted) in [
            ("0000:0F:00.0", "0000:0f:00.0"),
            ("00000000:0F:00.0", "0000:0f:00.0"),
            ("0008:01:00", "0008:01:00.0"),
            ("1:2.3", "0000:01:2.3"),
            ("10000:01:00.0", "10000:01:00.0"),
            ("fffffff:ff:ff.0", "fffffff:ff:ff.0"),
            ("", ""),
        ] {
            assert_eq!(bus_id(given), wanted, "{given}");
        }
    }

    #[test]
    fn displays_of_servers_are_no_gpus() {
        let of = |class, vendor, device| {
            kind(&Ids {
                class: Some(class),
                vendor: Some(vendor),
                device: Some(device),
            })
        };
        for (class, vendor, device, wanted) in [
            (0x030200, NVIDIA, 0x2330, NodeKind::Gpu),
            (0x038000, AMD, 0x74a1, NodeKind::Gpu),
            (0x120000, AMD, 0x74a1, NodeKind::Gpu),
            (0x120000, HUAWEI, 0xd802, NodeKind::Npu),
            (0x030000, HUAWEI, 0x1711, NodeKind::PciFunction),
            (0x030000, 0x1af4, 0x1050, NodeKind::PciFunction),
            (0x030000, 0x1a03, 0x2000, NodeKind::PciFunction),
            (0x030000, AMD, 0x515e, NodeKind::PciFunction),
            (0x030000, 0x1d0f, 0x1111, NodeKind::PciFunction),
        ] {
            assert_eq!(of(class, vendor, device), wanted, "{vendor:x}:{device:x}");
        }
    }

    #[test]
    fn links_that_are_idle_or_behind_a_virtual_bridge_are_not_believed() {
        let gb = |gb: f64| (gb * 1e9) as u64;
        assert_eq!(link(Some("32.0 GT/s PCIe"), Some("16"), true), (gb(48.0), None));
        assert_eq!(link(Some("16 GT/s"), Some("8"), false), (gb(12.0), None));
        assert_eq!(link(None, None, true), (gb(12.0), None));
        assert_eq!(link(Some("2.5 GT/s PCIe"), Some("1"), false), (187_500_000, None));
        for (speed, width, bytes, odd) in [
            ("", "0", 12.0, "link_width \"0\" and link_speed \"\""),
            ("2.5 GT/s", "16", 12.0, "link_speed \"2.5 GT/s\""),
            ("16 GT/s", "1", 24.0, "link_width \"1\""),
            (
                "Unknown speed",
                "255",
                12.0,
                "link_width \"255\" and link_speed \"Unknown speed\"",
            ),
        ] {
            assert_eq!(
                link(Some(speed), Some(width), true),
                (gb(bytes), Some(odd.to_owned()))
            );
        }
    }
}
