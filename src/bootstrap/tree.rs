//! The control tree: who talks to whom. A pure function of the ranks that are still there.

/// Children of a rank as long as everybody is there. Wide, so that few hops join any two ranks and few processes wait
/// for one whose control thread is slow; narrow enough that the lowest rank of some hundreds is not swamped.
const ARITY: u32 = 8;

/// The parent of `rank`: its nearest ancestor in heap order that is there, else the lowest rank that is there, which
/// has none itself. Always a lower rank, so that there are no cycles; and a rank keeps its parent as long as that is
/// there, because ancestors and the lowest rank only go away.
///
/// `lowest` is the lowest rank for which `there` holds.
pub(super) fn parent(rank: u32, lowest: u32, there: impl Fn(u32) -> bool) -> Option<u32> {
    let mut ancestor = rank;
    while ancestor > 0 {
        ancestor = (ancestor - 1) / ARITY;
        if there(ancestor) {
            return Some(ancestor);
        }
    }
    (rank > lowest).then_some(lowest)
}

/// The parent and the children of `rank` among `ranks` ranks, of which some are there. `rank` itself is.
pub(super) fn neighbours(
    rank: u32,
    ranks: u32,
    lowest: u32,
    there: impl Fn(u32) -> bool,
) -> (Option<u32>, Vec<u32>) {
    let child = |&r: &u32| there(r) && parent(r, lowest, &there) == Some(rank);
    (
        parent(rank, lowest, &there),
        (rank + 1..ranks).filter(child).collect(),
    )
}

/// The neighbour of `me` on the way to `rank`, another rank that is there.
pub(super) fn toward(rank: u32, me: u32, lowest: u32, there: impl Fn(u32) -> bool) -> Option<u32> {
    let mut below = rank;
    while let Some(above) = parent(below, lowest, &there) {
        if above == me {
            return Some(below);
        }
        below = above;
    }
    parent(me, lowest, there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_tree_is_a_heap() {
        assert_eq!(neighbours(0, 17, 0, |_| true), (None, (1..9).collect()));
        assert_eq!(neighbours(1, 17, 0, |_| true), (Some(0), (9..17).collect()));
        assert_eq!(neighbours(16, 17, 0, |_| true), (Some(1), vec![]));
        assert_eq!(neighbours(0, 1, 0, |_| true), (None, vec![]));
    }

    #[test]
    fn orphans_go_to_the_nearest_ancestor_or_the_lowest() {
        assert_eq!(parent(80, 0, |r| r != 9), Some(1)); // 80 -> 9 -> 1 -> 0
        assert_eq!(parent(80, 0, |r| r != 9 && r != 1), Some(0));
        assert_eq!(parent(80, 2, |r| r != 9 && r > 1), Some(2));
        assert_eq!(neighbours(2, 5, 2, |r| r > 1), (None, vec![3, 4]));
    }

    proptest! {
        #[test]
        fn whoever_is_there_is_one_tree(there in prop::collection::vec(any::<bool>(), 1..120)) {
            let is = |r: u32| there[r as usize];
            let present: Vec<u32> = (0..there.len() as u32).filter(|&r| is(r)).collect();
            let mut edges = 0;
            for &r in &present {
                let (parent, children) = neighbours(r, there.len() as u32, present[0], is);
                prop_assert_eq!(parent.is_none(), r == present[0]);
                prop_assert!(parent.is_none_or(|p| p < r && is(p)));
                edges += children.len();
                for &other in present.iter().filter(|&&o| o != r) {
                    let hop = toward(other, r, present[0], is).unwrap();
                    prop_assert!(parent == Some(hop) || children.contains(&hop));
                    let back = toward(r, hop, present[0], is);
                    prop_assert!(hop == other || toward(other, hop, present[0], is) != back);
                }
                for c in children {
                    prop_assert_eq!(neighbours(c, there.len() as u32, present[0], is).0, Some(r));
                }
            }
            prop_assert_eq!(edges, present.len().saturating_sub(1));
        }
    }
}
