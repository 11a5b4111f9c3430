//! What nodes and edges can be.

use serde::{Deserialize, Serialize};

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// A rank of a communicator.
    Rank,
    /// A graphics processor, or a part of one that ranks use as one.
    Gpu,
    /// A neural processor.
    Npu,
    /// Processor cores that belong together, such as those of one cache.
    Cores,
    /// A NUMA node.
    Numa,
    /// A processor package.
    Package,
    /// A host.
    Host,
    /// Where a tree of PCI devices begins.
    RootComplex,
    /// A PCI switch or bridge.
    PciSwitch,
    /// A PCI function of which no more is known.
    PciFunction,
    /// A switch of NVLinks, or a whole NVLink fabric.
    NvSwitch,
    /// A network adapter.
    Nic,
    /// A port of a network adapter.
    NicPort,
    /// A switch that hosts are plugged into.
    Leaf,
    /// A switch above leaves.
    Spine,
    /// A switch above spines.
    CoreSwitch,
    /// A wide-area network.
    Wan,
    /// Something between others, of unknown kind.
    Opaque,
}

/// What carries an edge's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Nothing: both ends are parts of one thing, such as a rank and its GPU.
    Local,
    /// NVIDIA's NVLink.
    #[serde(rename = "nvlink")]
    NvLink,
    /// AMD's Infinity Fabric between GPUs.
    #[serde(rename = "xgmi")]
    XGmi,
    /// Huawei's links between NPUs.
    Hccs,
    /// Between a processor and a GPU of one module.
    C2c,
    /// PCI Express.
    Pcie,
    /// Between NUMA nodes or packages.
    Socket,
    /// Between cores and their memory.
    Memory,
    /// Memory that processes share.
    Shm,
    /// InfiniBand.
    Ib,
    /// RDMA over Ethernet.
    Roce,
    /// Ethernet for TCP.
    Tcp,
    /// Between sites.
    Wan,
    /// Of unknown kind.
    Opaque,
}

/// How sure something is. The greater the surer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// From a table of what such parts usually do.
    Assumed,
    /// A source says so.
    Declared,
    /// Measured here.
    Measured,
}

impl NodeKind {
    /// Every kind.
    pub const ALL: [NodeKind; 18] = [
        NodeKind::Rank,
        NodeKind::Gpu,
        NodeKind::Npu,
        NodeKind::Cores,
        NodeKind::Numa,
        NodeKind::Package,
        NodeKind::Host,
        NodeKind::RootComplex,
        NodeKind::PciSwitch,
        NodeKind::PciFunction,
        NodeKind::NvSwitch,
        NodeKind::Nic,
        NodeKind::NicPort,
        NodeKind::Leaf,
        NodeKind::Spine,
        NodeKind::CoreSwitch,
        NodeKind::Wan,
        NodeKind::Opaque,
    ];

    /// Whether data may pass through on its way elsewhere. Where it ends (a GPU, a rank, a port whose host is not a router),
    /// going on takes a relay: somebody's work, not a link's.
    pub fn forwards(self) -> bool {
        !matches!(
            self,
            NodeKind::Rank | NodeKind::Gpu | NodeKind::Npu | NodeKind::PciFunction
        )
    }
}
