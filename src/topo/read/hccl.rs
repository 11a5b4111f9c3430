//! HCCL's rank tables: servers with NPUs, or instances with devices, and super pods of servers.

use super::{
    Flaw, Format, Reading,
    document::{self, Value},
    page::Page,
};
use crate::topo::{
    graph::{Link, LinkKind, NodeId, NodeKind, Origin},
    words::short,
};
use std::collections::{HashMap, HashSet};

pub(super) const FORMAT: Format = Format {
    name: "hccl",
    about: "HCCL's rank table",
    sniff: |text| document::is_json_with(text, &["server_list", "group_list"]),
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let page = Page::new(text, source);
    let root = document::json(&page)?;
    let mut reader = Reader {
        page,
        hosts: HashMap::new(),
        devices: HashSet::new(),
        ranks: HashSet::new(),
        in_pods: HashSet::new(),
        network: None,
        next: 0,
    };
    for key in ["status", "version"] {
        if let Some(word) = root.word(key) {
            reader.page.graph.set_whole(key, word);
        }
    }
    if let Some(status) = root
        .get("status")
        .filter(|status| status.as_word() != Some("completed"))
    {
        reader
            .page
            .tell(status.at, "a table that is not completed: read as it is");
    }
    for server in root.list("server_list") {
        let host = reader.host(server);
        for device in server.list("device") {
            reader.device(host, device)?;
        }
    }
    for instance in root
        .list("group_list")
        .iter()
        .flat_map(|group| group.list("instance_list"))
    {
        let host = reader.host(instance);
        for device in instance.list("devices") {
            reader.device(host, device)?;
        }
    }
    reader.count(&root, "server_count");
    for pod in root.list("super_pod_list") {
        reader.pod(pod);
    }
    if reader.page.graph.is_empty() {
        return Err(reader.page.flaw(
            root.at,
            "no server",
            "a server_list, or a group_list with instances",
        ));
    }
    reader.join_npus();
    Ok(reader.page.done())
}

struct Reader<'t> {
    page: Page<'t>,
    hosts: HashMap<String, NodeId>,
    /// Devices of servers, by their numbers.
    devices: HashSet<(NodeId, String)>,
    ranks: HashSet<u32>,
    /// Servers of super pods.
    in_pods: HashSet<NodeId>,
    /// What the NPUs' network ports are plugged into.
    network: Option<NodeId>,
    /// The next rank of a table that does not number them.
    next: u32,
}

impl Reader<'_> {
    fn host(&mut self, server: &Value) -> NodeId {
        let name = server.word("server_id").unwrap_or("server");
        if !matches!(server.get("server_id"), Some(id) if id.as_word().is_some()) {
            self.page
                .tell(server.at, "a server without a server_id: taken as \"server\"");
        }
        if let Some(host) = self.hosts.get(name) {
            return *host;
        }
        let origin = self.page.origin(server.at);
        let host = self.page.graph.add_node(NodeKind::Host, name, None, origin);
        self.keep(host, server);
        self.hosts.insert(name.to_owned(), host);
        host
    }

    fn device(&mut self, host: NodeId, device: &Value) -> Result<(), Flaw> {
        let Some(number) = device.word("device_id") else {
            return Err(self
                .page
                .flaw(device.at, "a device without a device_id", "\"device_id\": \"0\""));
        };
        let origin = self.page.origin(device.at);
        if !self.devices.insert((host, number.to_owned())) {
            let number = short(number);
            let told = format!("a second device {number} of its server: kept as one more");
            self.page.tell(device.at, told);
        }
        let npu = self
            .page
            .graph
            .add_node(NodeKind::Npu, &format!("NPU {number}"), Some(host), origin);
        self.keep(npu, device);
        self.page.graph.join(host, npu, Link::new(LinkKind::Pcie, origin));
        self.rank(npu, device)?;
        let address = device.word("device_ip").filter(|address| !address.is_empty());
        if let Some(address) = address {
            let nic = self
                .page
                .graph
                .add_node(NodeKind::Nic, address, Some(npu), origin);
            self.page.graph.join(npu, nic, Link::new(LinkKind::Local, origin));
            let network = *self.network.get_or_insert_with(|| {
                self.page
                    .graph
                    .add_node(NodeKind::Opaque, "network", None, Origin::ASSUMED)
            });
            self.page
                .graph
                .join(nic, network, Link::new(LinkKind::Roce, origin));
        }
        Ok(())
    }

    fn rank(&mut self, npu: NodeId, device: &Value) -> Result<(), Flaw> {
        let rank = match device.get("rank_id") {
            None => self.next,
            Some(value) => {
                let rank = value.as_word().and_then(|word| word.trim().parse().ok());
                rank.ok_or_else(|| {
                    self.page
                        .flaw(value.at, "a rank_id that is no number", "a number from 0")
                })?
            }
        };
        self.next = rank.saturating_add(1);
        if !self.ranks.insert(rank) {
            return Err(self
                .page
                .flaw(device.at, format!("a second rank {rank}"), "a rank_id of its own"));
        }
        let origin = self.page.origin(device.at);
        let node = self
            .page
            .graph
            .add_node(NodeKind::Rank, &format!("rank {rank}"), Some(npu), origin);
        self.page.graph.set(node, "rank", &rank.to_string());
        self.page
            .graph
            .join(npu, node, Link::new(LinkKind::Local, origin));
        Ok(())
    }

    fn count(&mut self, root: &Value, key: &str) {
        let Some(value) = root.get(key) else {
            return;
        };
        let hosts = self.hosts.len();
        if value.as_word().and_then(|word| word.trim().parse().ok()) != Some(hosts) {
            let said = value.as_word().unwrap_or("no number").to_owned();
            self.page.tell(
                value.at,
                format!("{key} is {said}, but there are {hosts}: taken as those"),
            );
        }
    }

    /// All NPUs of a super pod are joined by one fabric.
    fn pod(&mut self, pod: &Value) {
        let origin = self.page.origin(pod.at);
        // All its servers have it as a word.
        let name = format!("super pod {}", short(pod.word("super_pod_id").unwrap_or("?")));
        let fabric = self.page.graph.add_node(NodeKind::Opaque, &name, None, origin);
        for server in pod.list("server_list") {
            let host = server
                .word("server_id")
                .and_then(|name| self.hosts.get(name))
                .copied();
            let Some(host) = host else {
                self.page
                    .tell(server.at, "a server that is not in the server_list: left out");
                continue;
            };
            if !self.in_pods.insert(host) {
                let told = "a server that is in a super pod already: left out";
                self.page.tell(server.at, told);
                continue;
            }
            self.page.graph.set(host, "super_pod", &name);
            for npu in self.npus(host) {
                self.page
                    .graph
                    .join(npu, fabric, Link::new(LinkKind::Hccs, origin));
            }
        }
    }

    /// NPUs of a server that is in no super pod are joined by links of its own, as a rule.
    fn join_npus(&mut self) {
        let mut hosts: Vec<NodeId> = self.hosts.values().copied().collect();
        hosts.sort();
        for host in hosts {
            let npus = self.npus(host);
            if npus.len() < 2 || self.in_pods.contains(&host) {
                continue;
            }
            let fabric = self
                .page
                .graph
                .add_node(NodeKind::Opaque, "HCCS", Some(host), Origin::ASSUMED);
            for npu in npus {
                self.page
                    .graph
                    .join(npu, fabric, Link::new(LinkKind::Hccs, Origin::ASSUMED));
            }
        }
    }

    fn npus(&self, host: NodeId) -> Vec<NodeId> {
        let graph = &self.page.graph;
        graph
            .children(host)
            .filter(|&node| graph.kind(node) == NodeKind::Npu)
            .collect()
    }

    fn keep(&mut self, node: NodeId, value: &Value) {
        for (key, value) in value.entries() {
            if let Some(word) = value.as_word() {
                self.page.graph.set(node, key, word);
            }
        }
    }
}
