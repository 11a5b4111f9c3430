//! Sockets, framing and the authenticated handshake.

mod parcel;

pub(crate) use parcel::Parcel;
