//! The edges that lanes go over, numbered without gaps; and which of them can never be what slows a message down.

use super::network::Network;
use super::program::Programs;

/// Edges in use.
#[derive(Debug)]
pub(super) struct Used {
    /// The network's numbers.
    pub(super) of: Vec<u32>,
    /// Bytes a second.
    pub(super) capacities: Vec<f64>,
    /// Grains that go over each in a tile.
    pub(super) grains: Vec<f64>,
}

impl Used {
    /// Numbers the edges of all lanes anew, and adds up what goes over each.
    pub(super) fn number(programs: &mut Programs, network: &Network) -> Used {
        let mut numbers = vec![u32::MAX; network.edges()];
        let mut of = Vec::new();
        for edge in programs.all_edges() {
            let number = &mut numbers[*edge as usize];
            if *number == u32::MAX {
                *number = of.len() as u32;
                of.push(*edge);
            }
            *edge = *number;
        }
        let mut grains = vec![0.0; of.len()];
        for lane in 0..programs.lanes.len() {
            for &edge in programs.edges(lane) {
                grains[edge as usize] += programs.lanes[lane].grains;
            }
        }
        let capacities = of.iter().map(|&edge| network.capacity(edge)).collect();
        Used {
            of,
            capacities,
            grains,
        }
    }

    /// Takes those out of all ways that can carry all that their neighbours on these ways let through: trunks of a fabric that is
    /// not oversubscribed, say.
    pub(super) fn prune(&self, programs: &mut Programs) {
        let (before, after) = neighbours(programs, self.of.len());
        let ahead = self.decide(&before, &vec![false; self.of.len()]);
        // What is behind does not rely on those, so that no two rely on each other.
        let behind = self.decide(&after, &ahead);
        programs.retain_edges(|edge| !ahead[edge as usize] && !behind[edge as usize]);
    }

    /// Which edges get no more from their neighbours on one side than they carry. A neighbour lets through what it carries; one that
    /// is `passed`, or has been found to be such an edge, what its own neighbours let through. Edges in a circle are none.
    fn decide(&self, neighbours: &Neighbours, passed: &[bool]) -> Vec<bool> {
        let mut bounds: Vec<Option<f64>> = vec![None; self.of.len()];
        let mut freed = vec![false; self.of.len()];
        for _ in 0..MOST_EDGES {
            let mut goes_on = false;
            for edge in 0..bounds.len() {
                if bounds[edge].is_some() {
                    continue;
                }
                let sum = match neighbours.ends[edge] {
                    true => Some(f64::INFINITY),
                    false => neighbours.of(edge).map(|other| bounds[other]).sum(),
                };
                let Some(sum) = sum else { continue };
                goes_on = true;
                freed[edge] = !passed[edge] && sum <= self.capacities[edge] * EQUAL;
                let through = freed[edge] || passed[edge];
                bounds[edge] = Some(if through { sum } else { self.capacities[edge] });
            }
            if !goes_on {
                break;
            }
        }
        freed
    }
}

/// On a way, as far as it matters here.
const MOST_EDGES: usize = 40;

/// So that sums of equal parts are as large as the whole.
const EQUAL: f64 = 1.0 + 1e-9;

/// For each edge those that lanes come from, or go on to.
struct Neighbours {
    pairs: Vec<u64>,
    first: Vec<u32>,
    /// Whether a lane begins or ends there: nothing is known of what a rank might send.
    ends: Vec<bool>,
}

impl Neighbours {
    fn of(&self, edge: usize) -> impl Iterator<Item = usize> {
        let pairs = &self.pairs[self.first[edge] as usize..self.first[edge + 1] as usize];
        pairs.iter().map(|pair| (pair & u64::from(u32::MAX)) as usize)
    }
}

fn neighbours(programs: &Programs, edges: usize) -> (Neighbours, Neighbours) {
    let mut pairs = [Vec::new(), Vec::new()];
    let mut ends = [vec![false; edges], vec![false; edges]];
    let mut last = [vec![u32::MAX; edges], vec![u32::MAX; edges]];
    for lane in 0..programs.lanes.len() {
        let way = programs.edges(lane);
        let (Some(first), Some(end)) = (way.first(), way.last()) else {
            continue;
        };
        (ends[0][*first as usize], ends[1][*end as usize]) = (true, true);
        for pair in way.windows(2) {
            for (side, [edge, other]) in [[pair[1], pair[0]], [pair[0], pair[1]]].into_iter().enumerate() {
                if std::mem::replace(&mut last[side][edge as usize], other) != other {
                    pairs[side].push(u64::from(edge) << 32 | u64::from(other));
                }
            }
        }
    }
    let [before, after] = pairs;
    let [begins, ends] = ends;
    (index(before, begins), index(after, ends))
}

fn index(mut pairs: Vec<u64>, ends: Vec<bool>) -> Neighbours {
    pairs.sort_unstable();
    pairs.dedup();
    let mut first = vec![0_u32; ends.len() + 1];
    for pair in &pairs {
        first[(pair >> 32) as usize + 1] += 1;
    }
    for edge in 0..ends.len() {
        first[edge + 1] += first[edge];
    }
    Neighbours { pairs, first, ends }
}
