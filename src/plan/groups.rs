//! Which ranks are near each other: those of a group, as a rule the ranks of a host, talk at less cost than those of two.

use std::sync::Arc;

/// The ranks of a communicator in groups, none of them empty. A group's ranks need not follow each other, and groups may be of
/// different sizes. All ranks hold it alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Groups {
    /// Groups of `size` ranks that follow each other; the last may have fewer.
    Rows {
        ranks: usize,
        size: usize,
    },
    Listed(Arc<Listed>),
}

/// The members of each group, in their order, and each rank's group and place in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    members: Vec<Vec<usize>>,
    seats: Vec<Seat>,
    /// All of them one after the other, where that is another order than theirs.
    line: Option<Vec<usize>>,
}

/// A rank's group, and its place among the group's ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) group: usize,
    pub(crate) place: usize,
}

impl Groups {
    /// About as many groups as each has ranks: for ranks of which nothing is known.
    pub(crate) fn square(ranks: usize) -> Groups {
        let root = ranks.isqrt();
        let size = root + usize::from(root * root < ranks);
        Groups::Rows {
            ranks,
            size: size.max(1),
        }
    }

    /// Ranks with equal labels, those of rank 0, 1, …, are a group. Groups are numbered by their first ranks.
    pub(crate) fn listed<L: Ord>(labels: impl IntoIterator<Item = L>) -> Groups {
        let mut numbers = std::collections::BTreeMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut seats = Vec::new();
        for (rank, label) in labels.into_iter().enumerate() {
            let group = *numbers.entry(label).or_insert(members.len());
            if group == members.len() {
                members.push(Vec::new());
            }
            let place = members[group].len();
            members[group].push(rank);
            seats.push(Seat { group, place });
        }
        let line = members.concat();
        let line = (!line.is_sorted()).then_some(line);
        Groups::Listed(Arc::new(Listed { members, seats, line }))
    }

    /// The ranks of one group after the other, if that is not the order of their numbers.
    pub(crate) fn line(&self) -> Option<&[usize]> {
        match self {
            Groups::Rows { .. } => None,
            Groups::Listed(listed) => listed.line.as_deref(),
        }
    }

    /// The number of groups.
    pub(crate) fn count(&self) -> usize {
        match self {
            Groups::Rows { ranks, size } => ranks.div_ceil(*size),
            Groups::Listed(listed) => listed.members.len(),
        }
    }

    /// The number of ranks of a group.
    pub(crate) fn size(&self, group: usize) -> usize {
        match self {
            Groups::Rows { ranks, size } => (*ranks - group * size).min(*size),
            Groups::Listed(listed) => listed.members[group].len(),
        }
    }

    /// The rank at a place of a group.
    pub(crate) fn rank(&self, group: usize, place: usize) -> usize {
        match self {
            Groups::Rows { size, .. } => group * size + place,
            Groups::Listed(listed) => listed.members[group][place],
        }
    }

    /// Where a rank is.
    pub(crate) fn seat(&self, rank: usize) -> Seat {
        match self {
            Groups::Rows { size, .. } => Seat {
                group: rank / size,
                place: rank % size,
            },
            Groups::Listed(listed) => listed.seats[rank],
        }
    }

    /// The number of ranks of each group, if it is the same for all.
    pub(crate) fn even(&self) -> Option<usize> {
        let size = self.size(0);
        let alike = match self {
            Groups::Rows { ranks, size } => ranks.is_multiple_of(*size),
            Groups::Listed(listed) => listed.members.iter().all(|members| members.len() == size),
        };
        alike.then_some(size)
    }

    /// Whether there are two kinds of pairs of ranks: some in one group, and some in two.
    pub(crate) fn has_levels(&self) -> bool {
        self.count() > 1 && (0..self.count()).any(|group| self.size(group) > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_a_seat(labels in prop::collection::vec(0u8..5, 1..40)) {
            let ranks = labels.len();
            for groups in [Groups::listed(&labels), Groups::square(ranks)] {
                let mut seen = 0;
                for group in 0..groups.count() {
                    prop_assert!(groups.size(group) > 0);
                    for place in 0..groups.size(group) {
                        prop_assert_eq!(groups.seat(groups.rank(group, place)), Seat { group, place });
                        seen += 1;
                    }
                }
                prop_assert_eq!(seen, ranks);
                let sizes: Vec<_> = (0..groups.count()).map(|group| groups.size(group)).collect();
                prop_assert_eq!(groups.even(), sizes.iter().all(|size| *size == sizes[0]).then_some(sizes[0]));
                let mixed = sizes.len() > 1 && sizes.iter().any(|size| *size > 1);
                prop_assert_eq!(groups.has_levels(), mixed);
            }
            let groups = Groups::listed(&labels);
            for (a, b) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
                prop_assert_eq!(groups.seat(a).group == groups.seat(b).group, labels[a] == labels[b]);
            }
        }
    }

    #[test]
    fn a_square_has_as_many_groups_as_places() {
        let of = |ranks| {
            let groups = Groups::square(ranks);
            (groups.count(), groups.size(0), groups.even())
        };
        assert_eq!(of(1), (1, 1, Some(1)));
        assert_eq!(of(2), (1, 2, Some(2)));
        assert_eq!(of(9), (3, 3, Some(3)));
        assert_eq!(of(10), (3, 4, None));
        assert_eq!(of(100_000), (316, 317, None));
    }
}
