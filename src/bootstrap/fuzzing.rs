//! Targets of this floor: see [`crate::fuzzing`].

use super::{
    UniqueId,
    meeting::Meeting,
    messages::{Answer, Comes, Join, Waits, Word},
    view::View,
};
use crate::fuzzing::part;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

/// A unique id.
pub(crate) fn id(bytes: &[u8]) {
    let Ok(bytes) = bytes.try_into() else {
        return;
    };
    match UniqueId::from_bytes(bytes) {
        Ok(id) => {
            assert!(!format!("{id:?} {}", id.places()).is_empty());
            let again = UniqueId::from_bytes(id.to_bytes()).expect("what was written can be read");
            assert_eq!(again.to_bytes(), id.to_bytes());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The messages of init and of the control tree, and what is made of a table.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => drop(read::<Comes>(bytes)),
        1 => {
            if let Some(Answer::Table(table)) = read(bytes) {
                let ranks = table.seats.len();
                if !table.fits(ranks) {
                    return;
                }
                for (me, peer) in (0..ranks.min(4) as u32).flat_map(|me| [(me, 0), (me, 1), (0, me)]) {
                    assert_eq!(table.addresses(me, peer).is_empty(), peer as usize >= ranks);
                    let (together, _) = table.spots(me, peer, None);
                    assert!(together.iter().all(|spot| !spot.to_string().is_empty()));
                }
            }
        }
        2 => drop(read::<Word>(bytes)),
        _ => {
            if let Some(waits) = read::<Waits>(bytes) {
                let records = waits.records.iter().map(ToString::to_string);
                let waits_in = waits.waits_in.map(|operation| operation.to_string());
                let newest = waits.newest().map(|call| call.to_string());
                let mut told = records.chain(waits_in).chain(newest);
                assert!(told.all(|text| !text.is_empty()));
            }
        }
    }
}

/// What can be read can be written, and means the same.
fn read<M: DeserializeOwned + Serialize>(bytes: &[u8]) -> Option<M> {
    let Ok((message, [])) = postcard::take_from_bytes::<M>(bytes) else {
        return None;
    };
    let once = postcard::to_stdvec(&message).expect("a message can be written");
    let again: M = postcard::from_bytes(&once).expect("what was written can be read");
    assert_eq!(postcard::to_stdvec(&again).ok(), Some(once));
    Some(message)
}

/// A meeting to which ranks come and from which they go: the secret holds out strangers, not nonsense.
pub(crate) fn meeting(bytes: &[u8]) {
    let (mut meeting, now, mut rest) = (Meeting::default(), Instant::now(), bytes);
    let (mut come, mut is_over) = (0, false);
    while let Some((&[what, rank], after)) = rest.split_first_chunk() {
        let (said, after) = part(after).unwrap_or_default();
        rest = after;
        let here = (what & 8 != 0).then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let answer = match what % 4 {
            0 | 1 => match postcard::from_bytes::<Join>(said) {
                Ok(join) => {
                    come += 1;
                    meeting.arrive(rank.into(), join, here, now)
                }
                Err(_) => None,
            },
            2 => meeting.depart(rank.into()),
            _ => {
                meeting.deny(rank.into(), here);
                meeting.expire(None)
            }
        };
        match answer {
            Some(Answer::Table(table)) => {
                assert!(table.fits(table.seats.len()) && table.seats.len() <= come && table.cores > 0);
                is_over = true;
            }
            Some(Answer::Refused { what, .. }) => {
                assert!(!what.is_empty());
                is_over = true;
            }
            Some(Answer::Spent) => unreachable!("a place says so, not a meeting"),
            None => {}
        }
        if is_over {
            return; // nobody is listened to any more
        }
    }
}

/// What a rank hears from its neighbours in the control tree, and sees of them.
pub(crate) fn view(bytes: &[u8]) {
    let Some((&[ranks, me], mut rest)) = bytes.split_first_chunk() else {
        return;
    };
    let ranks = u32::from(ranks % 16) + 1;
    let me = u32::from(me) % ranks;
    let mut view = View::new(me, ranks);
    while let Some((&[what, peer], after)) = rest.split_first_chunk() {
        let (said, after) = part(after).unwrap_or_default();
        rest = after;
        let peer = u32::from(peer) % ranks;
        if peer == me {
            view.leave(None);
            continue;
        }
        match what % 4 {
            0 => view.connect(peer),
            1 => view.disconnect(peer),
            2 => view.lose(peer, String::new()),
            _ => {
                if let Ok(word) = postcard::from_bytes::<Word>(said) {
                    view.hear(peer, word);
                }
            }
        }
        let _ = (view.effects(), view.settled(), view.finished());
        assert!(view.wants().is_none_or(|peer| peer < ranks && peer != me));
    }
}
