//! Which of a port's addresses is its own: GIDs, as InfiniBand calls them.

use crate::settings::Settings;

/// One of the port's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) index: u32,
    /// RoCE version 2, which goes by UDP and is routed as that.
    pub(crate) is_v2: bool,
    pub(crate) gid: [u8; 16],
}

/// The best of the table, and why: what the user says; InfiniBand: the first; RoCE: version 2, of the family that is preferred, and
/// link-local addresses last.
///
/// # Errors
/// Why there is none.
pub(crate) fn choose(
    table: &[Entry],
    infiniband: bool,
    settings: &Settings,
) -> Result<(Entry, &'static str), String> {
    if let Some(said) = settings.gid_index {
        let found = table.iter().find(|entry| entry.index == said);
        let found = found.map(|&entry| (entry, "CCL_IB_GID_INDEX says so"));
        return found.ok_or_else(|| format!("CCL_IB_GID_INDEX={said}: the port has no such address"));
    }
    let grade = |entry: &Entry| match () {
        () if infiniband => (0, "it is the port's first"),
        () if !entry.is_v2 => (4, "there is none of RoCE v2"),
        () if is_link_local(entry.gid) => (3, "RoCE v2, link-local: there is no other address"),
        () if is_ipv4(entry.gid) && !settings.prefers_ipv6 => (1, "RoCE v2 by IPv4"),
        () if is_ipv4(entry.gid) => (2, "RoCE v2 by IPv4: there is no IPv6 address"),
        () if settings.prefers_ipv6 => (1, "RoCE v2 by IPv6"),
        () => (2, "RoCE v2 by IPv6: there is no IPv4 address"),
    };
    // Of equals the first.
    let best = table.iter().min_by_key(|entry| grade(entry).0);
    let best = best.ok_or_else(|| "the port has no address (GID)".to_owned())?;
    Ok((*best, grade(best).1))
}

fn is_ipv4(gid: [u8; 16]) -> bool {
    gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

fn is_link_local(gid: [u8; 16]) -> bool {
    gid[0] == 0xfe && gid[1] & 0xc0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<Entry> {
        let entry = |index, is_v2, ip: &str| {
            let gid = match ip.parse().unwrap() {
                std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(ip) => ip.octets(),
            };
            Entry { index, is_v2, gid }
        };
        vec![
            entry(0, false, "fe80::1"),
            entry(1, true, "fe80::1"),
            entry(2, false, "10.0.0.1"),
            entry(4, true, "10.0.0.1"),
            entry(5, true, "fd00::1"),
        ]
    }

    #[test]
    fn the_address_is_of_roce_v2_and_the_right_family() {
        let mut settings = Settings::of_environment().unwrap();
        let mut table = table();
        let mut chosen = |table: &[Entry], infiniband, ipv6, said| {
            (settings.prefers_ipv6, settings.gid_index) = (ipv6, said);
            choose(table, infiniband, &settings).map(|(entry, _)| entry.index)
        };
        assert_eq!(chosen(&table, false, false, None), Ok(4));
        assert_eq!(chosen(&table, false, true, None), Ok(5));
        assert_eq!(chosen(&table, true, false, None), Ok(0));
        assert_eq!(chosen(&table, false, false, Some(2)), Ok(2));
        assert!(
            chosen(&table, false, false, Some(3))
                .unwrap_err()
                .contains("CCL_IB_GID_INDEX=3")
        );
        table.remove(3);
        assert_eq!(chosen(&table, false, false, None), Ok(5));
        table.truncate(3);
        assert_eq!(chosen(&table, false, false, None), Ok(1));
        table.remove(1);
        assert_eq!(chosen(&table, false, false, None), Ok(0));
        assert!(chosen(&[], false, false, None).is_err());
    }
}
