//! Sockets, framing and the authenticated handshake.

mod accept;
mod address;
mod dial;
mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handshake;
pub(crate) mod interfaces;
mod noise;
mod parcel;
mod patience;
mod presence;
mod rails;
mod seal;
mod secret;

pub(crate) use accept::{Greeter, Greeting, Kind};
pub(crate) use address::{Address, fill_random, hex, ip_bytes, unhex};
pub(crate) use dial::{DialError, Dialer, Dialing, Round, SILENCE, Target};
pub(crate) use frame::{Channel, Frame, FrameError, Packed};
pub(crate) use handshake::{CommId, Hello, MEETING, Refused, Role, VERSION};
pub(crate) use interfaces::{Selection, Way};
pub(crate) use parcel::Parcel;
pub(crate) use patience::{Failure, LONGEST_SILENCE, Patience, Tried, tell_tried};
pub(crate) use presence::{Presence, Said, setting};
pub(crate) use rails::{Rail, Rails};
pub(crate) use seal::{ALTERED, Connection, Guard, Opener, Protection, Sealer};
pub(crate) use secret::Secret;
