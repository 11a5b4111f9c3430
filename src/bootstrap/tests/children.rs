//! Communicators that are made of others, and what happens to their parents meanwhile.

use super::{
    processes::{Actor, actors},
    *,
};
use crate::{
    bootstrap::{Child, Descent},
    transport::links::Opener,
    types::Cause,
};

/// Joins the child of all ranks that `split` makes, in the opposite order.
fn join_child(parent: &Membership, split: u64) -> Result<Membership, Error> {
    let members: Vec<usize> = (0..parent.ranks()).rev().collect();
    let child = Child::derive(
        parent,
        Descent::Split {
            number: split,
            color: 5,
        },
        &members,
    )?;
    join(Joining {
        child: Some(&child),
        ..joining(child.id(), members.len(), parent.ranks() - 1 - parent.rank())
    })
}

/// What a process answers to the order to join a child, which it then leaves.
pub(super) fn split(parent: &Membership, split: usize) -> String {
    match join_child(parent, split as u64) {
        Ok(child) => format!("rank {} of {}", child.rank(), child.ranks()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn children_of_threads_outlive_their_parents() {
    let parents = communicator(3);
    let children = |split| -> Vec<Membership> {
        thread::scope(|s| {
            let threads: Vec<_> = parents
                .iter()
                .map(|p| s.spawn(move || join_child(p, split)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap().unwrap()).collect()
        })
    };
    let (first, second) = (children(0), children(1));
    let ranks = |of: &[Membership]| of.iter().map(|m| m.rank()).collect::<Vec<_>>();
    assert_eq!((ranks(&first), ranks(&second)), (vec![2, 1, 0], vec![2, 1, 0]));
    drop(parents);
    second[1].raise(Cause::Aborted { rank: 1 });
    until("the verdict", || second.iter().all(|m| m.verdict().is_some()));
    assert!(first.iter().all(|m| !m.trouble()));
    first[0].open(0, Parcel::default()).unwrap();
}

#[test]
fn processes_make_child_after_child() {
    let mut actors = actors(3);
    for round in 0..20 {
        actors.iter_mut().for_each(|a| a.order(&format!("split {round}")));
        let answers: Vec<_> = actors.iter_mut().map(Actor::answer).collect();
        assert_eq!(answers, ["rank 2 of 3", "rank 1 of 3", "rank 0 of 3"]);
    }
}

/// Whoever of the four it is: the last one holds the meeting.
#[test]
fn a_rank_that_dies_before_it_comes_is_named_to_all() {
    for victim in [0, 1, 3] {
        let mut actors = actors(4);
        for (rank, actor) in actors.iter_mut().enumerate() {
            if rank != victim {
                actor.order("split 0");
            }
        }
        // The others may be anywhere on their way: no answer comes before all are there.
        let pid = actors[victim].pid();
        actors[victim].kill();
        for (rank, actor) in actors.iter_mut().enumerate() {
            if rank != victim {
                assert_eq!(
                    actor.answer(),
                    format!(
                        "rank {victim} of the parent was lost (its process {pid} ended) before all ranks had joined the \
                         new communicator"
                    )
                );
            }
        }
    }
}

#[test]
fn a_rank_that_dies_while_it_waits_is_named_to_all() {
    for victim in [0, 3] {
        let mut actors = actors(4);
        actors[victim].order("split 0");
        // The parent's rank 3 is the child's rank 0.
        let new = 3 - victim;
        actors[victim].kill();
        for rank in (0..4).filter(|&rank| rank != victim) {
            actors[rank].order("split 0");
        }
        for rank in (0..4).filter(|&rank| rank != victim) {
            let text = actors[rank].answer();
            let names = text.starts_with(&format!("rank {victim} of the parent was lost"));
            assert!(
                names || text.starts_with(&format!("rank {new} (process")),
                "{text}"
            );
        }
    }
}

#[test]
fn what_stops_the_parent_stops_a_meeting() {
    let parents = communicator(3);
    let texts: Vec<String> = thread::scope(|s| {
        let threads: Vec<_> = parents[1..]
            .iter()
            .map(|p| s.spawn(|| join_child(p, 0).err().unwrap().to_string()))
            .collect();
        parents[0].raise(Cause::Aborted { rank: 0 });
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for text in texts {
        assert_eq!(
            text,
            "the parent communicator was stopped: rank 0 aborted the communicator"
        );
    }
}

#[test]
fn who_has_come_is_answered_though_who_answers_has_left_the_parent() {
    let parents = communicator(2);
    let child = Child::derive(&parents[1], Descent::Shrink { number: 0 }, &[0, 1]).unwrap();
    parents[0].leave(None);
    until("word of it", || parents[1].departures());
    assert!(child.obstacle().is_some());
    child.note_come();
    assert_eq!((child.obstacle(), child.hopeless()), (None, false));
}

#[test]
fn a_rank_0_that_fails_is_told_and_one_that_leaves_is_missed() {
    // What the parent's rank 0, which is the child's rank 1, is told when rank 1 does this instead of joining.
    let told = |act: fn(&Membership)| {
        let parents = communicator(2);
        thread::scope(|s| {
            let other = s.spawn(|| split(&parents[0], 0));
            act(&parents[1]);
            other.join().unwrap()
        })
    };
    assert_eq!(
        told(|parent| drop(Child::derive(parent, Descent::Split { number: 0, color: 5 }, &[1, 0]).unwrap())),
        "rank 0 gave up before all ranks had joined: look at its error"
    );
    assert_eq!(
        told(|member| member.leave(None)),
        "rank 1 of the parent left it before all ranks had joined the new communicator"
    );
}
