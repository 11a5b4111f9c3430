//! What links usually carry, for sources that name a link but not its speed: bytes a second one way.
//!
//! The figures are NCCL's (`src/graph/topo.h` and `topo.cc`, 2.31) and RCCL's for xGMI. They are what such a link gives in
//! practice, less than its raw rate; whatever was measured is better.

/// PCI Express with a raw rate of so many tenths of GT/s a lane, if there is such a generation.
pub fn pcie(tenths_of_gts: u32, lanes: u32) -> Option<u64> {
    let per_80_lanes = match tenths_of_gts {
        25 => 15,
        50 => 30,
        80 => 60,
        160 => 120,
        320 => 240,
        640 => 480,
        _ => return None,
    };
    Some((u64::from(lanes) * per_80_lanes).saturating_mul(GB / 80))
}

/// PCI Express of the third generation with 16 lanes, which is assumed where nothing is said.
pub const PCIE: u64 = 12 * GB;

/// The most of one NVLink of a version, in NVML's numbers (`nvmlNvlinkVersion_t`: 4 for 3.0, 7 for 5.0), as the GPUs for which it was
/// made have it.
pub fn nvlink_version(version: u32) -> Option<u64> {
    match version {
        1 => Some(18 * GB),
        2..=5 => Some(20 * GB),
        6 => Some(20_600 * MB),
        7 => Some(40_100 * MB),
        _ => None,
    }
}

/// One NVLink of a GPU of this compute capability (90 for 9.0).
pub fn nvlink(sm: Option<u32>) -> u64 {
    match sm {
        Some(100..) => 40_100 * MB,
        Some(90..) => 20_600 * MB,
        Some(86) => 12 * GB,
        Some(60..70) => 18 * GB,
        _ => 20 * GB,
    }
}

/// One xGMI link of a GPU whose architecture is called so: "906", "gfx942".
pub fn xgmi(gcn: &str) -> u64 {
    match gcn.trim_start_matches("gfx") {
        gcn if gcn.starts_with("94") || gcn.starts_with("95") => 48 * GB,
        gcn if gcn.starts_with("910") || gcn.starts_with("90a") => 36 * GB,
        _ => 24 * GB,
    }
}

/// Between two NUMA nodes of a host with such processors, in the words of `/proc/cpuinfo`.
pub fn socket(arch: &str, vendor: &str, family: u32, model: u32) -> u64 {
    let gb = match (arch, vendor) {
        ("ppc64" | "ppc64le", _) => 32,
        ("arm64" | "aarch64", _) => 6,
        (_, "AMD" | "AuthenticAMD") => 16,
        (_, "GenuineIntel") if family == 6 => match model {
            207.. => 40,
            143.. => 22,
            85.. => 10,
            _ => 6,
        },
        _ => 6,
    };
    gb * GB
}

/// A network port of so many megabits a second.
pub fn network(megabits: u64) -> u64 {
    megabits.saturating_mul(MB / 8)
}

/// Of a network port that does not say: 10 Gb/s.
pub const NETWORK_MEGABITS: u64 = 10_000;

/// Million bytes.
pub const MB: u64 = 1_000_000;

const GB: u64 = 1000 * MB;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_give_what_the_notes_say() {
        assert_eq!(pcie(80, 16), Some(PCIE));
        assert_eq!(pcie(25, 1), Some(187_500_000));
        assert_eq!(pcie(640, 16), Some(96 * GB));
        assert_eq!(pcie(33, 16), None);
        for (sm, gb) in [
            (60, 18.0),
            (70, 20.0),
            (80, 20.0),
            (86, 12.0),
            (89, 20.0),
            (90, 20.6),
            (100, 40.1),
        ] {
            assert_eq!(nvlink(Some(sm)), (gb * 1e9) as u64, "sm {sm}");
        }
        for (version, sm) in [(1, 60), (2, 70), (4, 80), (6, 90), (7, 100)] {
            assert_eq!(
                nvlink_version(version),
                Some(nvlink(Some(sm))),
                "version {version}"
            );
        }
        assert_eq!([nvlink_version(0), nvlink_version(99)], [None, None]);
        assert_eq!(
            [xgmi("906"), xgmi("910"), xgmi("gfx942")],
            [24, 36, 48].map(|gb| gb * GB)
        );
        for (vendor, family, model, gb) in [
            ("GenuineIntel", 6, 79, 6),
            ("GenuineIntel", 6, 85, 10),
            ("GenuineIntel", 6, 143, 22),
            ("GenuineIntel", 6, 207, 40),
            ("AuthenticAMD", 143, 49, 16),
            ("AMD", 23, 1, 16),
        ] {
            assert_eq!(
                socket("x86_64", vendor, family, model),
                gb * GB,
                "{vendor} {model}"
            );
        }
        assert_eq!(
            [socket("ppc64", "", 0, 0), socket("arm64", "", 0, 0)],
            [32 * GB, 6 * GB]
        );
        assert_eq!(network(200_000), 25 * GB);
    }
}
