//! The most that can flow through a network, and the cut that says why: Dinic's algorithm, without recursion.

/// A network. Capacities are whole numbers, so that cuts are exact.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    first: Vec<Vec<u32>>,
    arcs: Vec<Arc>,
    /// Arcs that were looked at.
    pub(super) looks: u64,
}

#[derive(Debug, Clone, Copy)]
struct Arc {
    to: u32,
    capacity: u128,
    left: u128,
}

impl Network {
    pub(super) fn new(vertices: usize) -> Self {
        Network {
            first: vec![Vec::new(); vertices],
            ..Network::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len()
    }

    pub(super) fn add_vertex(&mut self) -> usize {
        self.first.push(Vec::new());
        self.first.len() - 1
    }

    /// Adds an arc, and gives back its place for [`Network::set`].
    pub(super) fn add(&mut self, from: usize, to: usize, capacity: u128) -> usize {
        let at = self.arcs.len();
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            self.first[from].push(self.arcs.len() as u32); // A few for each edge of a graph.
            self.arcs.push(Arc {
                to: to as u32,
                capacity,
                left: capacity,
            });
        }
        at
    }

    pub(super) fn set(&mut self, arc: usize, capacity: u128) {
        self.arcs[arc].capacity = capacity;
    }

    /// The vertex that an arc leaves.
    pub(super) fn begin(&self, arc: usize) -> usize {
        self.arcs[arc ^ 1].to as usize
    }

    /// The vertex that an arc leads to.
    pub(super) fn end(&self, arc: usize) -> usize {
        self.arcs[arc].to as usize
    }

    /// The most that flows, and which vertices are then on the side of where it begins.
    pub(super) fn flow(&mut self, from: usize, to: usize) -> (u128, Vec<bool>) {
        for arc in &mut self.arcs {
            arc.left = arc.capacity;
        }
        let mut flow = 0;
        loop {
            let levels = self.levels(from);
            if levels[to] == u32::MAX {
                return (flow, levels.into_iter().map(|level| level != u32::MAX).collect());
            }
            let mut next = vec![0; self.len()];
            while let Some(way) = self.way(from, to, &levels, &mut next) {
                let most = way.iter().map(|&arc| self.arcs[arc].left).min().unwrap_or(0);
                for arc in way {
                    self.arcs[arc].left -= most;
                    self.arcs[arc ^ 1].left += most;
                }
                flow += most;
            }
        }
    }

    /// How many arcs with something left lead to each vertex.
    fn levels(&mut self, from: usize) -> Vec<u32> {
        let mut levels = vec![u32::MAX; self.len()];
        levels[from] = 0;
        let mut queue = std::collections::VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            self.looks += self.first[at].len() as u64;
            for &arc in &self.first[at] {
                let Arc { to, left, .. } = self.arcs[arc as usize];
                if left > 0 && levels[to as usize] == u32::MAX {
                    levels[to as usize] = levels[at] + 1;
                    queue.push_back(to as usize);
                }
            }
        }
        levels
    }

    /// One more shortest way with something left on it; what leads nowhere is not looked at again.
    fn way(&mut self, from: usize, to: usize, levels: &[u32], next: &mut [usize]) -> Option<Vec<usize>> {
        let mut way: Vec<usize> = Vec::new();
        let mut at = from;
        while at != to {
            self.looks += 1;
            match self.first[at].get(next[at]) {
                Some(&arc) => {
                    let Arc { to, left, .. } = self.arcs[arc as usize];
                    if left > 0 && levels[to as usize] == levels[at] + 1 {
                        way.push(arc as usize);
                        at = to as usize;
                    } else {
                        next[at] += 1;
                    }
                }
                None => {
                    let back = way.pop()?;
                    at = self.arcs[back ^ 1].to as usize;
                    next[at] += 1;
                }
            }
        }
        Some(way)
    }
}
