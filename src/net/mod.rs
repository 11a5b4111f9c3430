//! Sockets, framing and the authenticated handshake.

mod accept;
mod address;
mod dial;
mod frame;
mod handshake;
mod interfaces;
mod parcel;
mod secret;

pub(crate) use accept::{Greeter, Greeting, Kind};
pub(crate) use address::{Address, fill_random, hex};
pub(crate) use dial::{DialError, Dialer, Dialing, Failure, Patience, Target};
pub(crate) use frame::{Channel, Frame, FrameError, Packed};
pub(crate) use handshake::{CommId, Hello, MEETING, Refused, Role, VERSION};
pub(crate) use interfaces::own_address;
pub(crate) use parcel::Parcel;
pub(crate) use secret::Secret;
