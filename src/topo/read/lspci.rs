//! `lspci -tv` is recognised, and what to give instead is told: it names neither classes nor bus ids of functions.

use super::{Format, page::Page};

pub(super) const FORMAT: Format = Format {
    name: "lspci-tree",
    about: "lspci -tv, which does not say what devices are",
    sniff: |text| find(text).is_some(),
    read: |text, source| {
        let page = Page::new(text, source);
        let at = find(text).unwrap_or(0);
        Err(page.flaw(
            at,
            "lspci -tv, which does not say which devices are GPUs or adapters, nor how fast they are joined",
            "nvidia-smi topo -m, hwloc's lstopo --of xml, or ccl-topo on the machine itself",
        ))
    },
};

/// Where the tree begins.
fn find(text: &str) -> Option<usize> {
    super::page::lines(text)
        .take(50)
        .find(|(_, line)| {
            let line = line.trim_start();
            let tree = line.strip_prefix("-[").or_else(|| line.strip_prefix("-+-["));
            tree.and_then(|tree| tree.split_once(']'))
                .is_some_and(|(bus, _)| bus.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'))
        })
        .map(|(at, _)| at)
}
