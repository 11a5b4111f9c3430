//! What reads bytes from outside, each as a function of bytes, for the program in `fuzz/`.
//!
//! A target ends well whatever it is given: it may say no, but neither panic nor go on for long, nor read outside its memory.

use crate::{
    bootstrap::{env, fuzzing as bootstrap},
    comm::tuning,
    net::fuzzing as net,
    plan::import::msccl::fuzzing as msccl,
    topo::read::fuzzing as topo,
    transport::{shm::fuzzing as shm, tcp::fuzzing as tcp},
};

/// Takes bytes from outside.
pub type Target = fn(&[u8]);

/// Each with its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("card", env::fuzzing::card),
    ("door", env::fuzzing::door),
    ("frame", net::frame),
    ("handshake", net::handshake),
    ("id", bootstrap::id),
    ("interfaces", net::interfaces),
    ("launch", env::fuzzing::launch),
    ("meeting", bootstrap::meeting),
    ("messages", bootstrap::messages),
    ("msccl", msccl::algorithm),
    ("pmi", env::fuzzing::pmi),
    ("shm", shm::segment),
    ("shm-parcel", shm::parcel),
    ("tcp", tcp::stream),
    ("topology", topo::topology),
    ("tuning", tuning::fuzzing),
    ("view", bootstrap::view),
];

/// A part of the bytes that is as long as its first byte says, and what follows; `None` at the end.
pub(crate) fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    Some(rest.split_at(rest.len().min(len.into())))
}
