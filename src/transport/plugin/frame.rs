//! What the two sides of a link say to each other before there is a wire: it goes over the connections of the bootstrap.

use super::{
    DEPTH, MAX_ENDS,
    abi::MAX_BYTES,
    ring::{Place, RING},
};
use crate::transport::{LANES, MAX_MESSAGE};
use std::slice;

/// What one side brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The plugin's bytes for each end.
    pub(super) bytes: Vec<Vec<u8>>,
    pub(super) places: Places,
}

/// Where the other side may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    /// On the desk of the sender, who asks for a link.
    Desk(Place),
    /// In the rings of the receiver, who answers, by lane.
    Rings(Vec<Place>),
}

impl Greeting {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, places) = match &self.places {
            Places::Desk(desk) => (DESK, slice::from_ref(desk)),
            Places::Rings(rings) => (RINGS, rings.as_slice()),
        };
        let mut out = [PREFIX, &facts(), &[kind, self.bytes.len() as u8]].concat();
        for bytes in &self.bytes {
            out.extend((bytes.len() as u16).to_le_bytes());
            out.extend(bytes);
        }
        for Place { address, keys } in places {
            out.extend(address.to_le_bytes());
            out.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
        }
        out
    }

    /// What this version would say.
    pub(super) fn decode(bytes: &[u8]) -> Option<Greeting> {
        let rest = bytes.strip_prefix(PREFIX)?.strip_prefix(&facts()[..])?;
        let (&[kind, count], mut rest) = rest.split_first_chunk()?;
        if !(1..=MAX_ENDS).contains(&count.into()) {
            return None;
        }
        let mut bytes = Vec::new();
        for _ in 0..count {
            let (len, behind) = rest.split_first_chunk()?;
            let len = usize::from(u16::from_le_bytes(*len));
            let (one, behind) = behind.split_at_checked(len).filter(|_| len <= MAX_BYTES)?;
            bytes.push(one.to_vec());
            rest = behind;
        }
        let mut number = || {
            let (number, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u64::from_le_bytes(*number))
        };
        let mut place = || {
            let (address, keys) = (number()?, (0..count).map(|_| number()).collect::<Option<_>>()?);
            Some(Place { address, keys })
        };
        let places = match kind {
            DESK => Places::Desk(place()?),
            RINGS => Places::Rings((0..LANES).map(|_| place()).collect::<Option<_>>()?),
            _ => return None,
        };
        rest.is_empty().then_some(Greeting { bytes, places })
    }
}

/// Whether a parcel is about a link of this transport.
pub(crate) fn is_greeting(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFIX)
}

fn facts() -> Vec<u8> {
    let facts = [VERSION, LANES, DEPTH, MAX_MESSAGE, RING];
    facts
        .iter()
        .flat_map(|&fact| (fact as u64).to_le_bytes())
        .collect()
}

const PREFIX: &[u8] = b"ccl-net\0";
/// Changes whenever the meaning of the bytes does.
const VERSION: usize = 2;
const DESK: u8 = 0;
const RINGS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn greetings_round_trip(bytes in prop::collection::vec(prop::collection::vec(0u8.., 0..MAX_BYTES), 1..=MAX_ENDS),
                                address: u64, key: u64, answers: bool, cut: prop::sample::Index) {
            let place = Place { address, keys: std::iter::repeat_n(key, bytes.len()).collect() };
            let places = if answers { Places::Rings(vec![place; LANES]) } else { Places::Desk(place) };
            let greeting = Greeting { bytes, places };
            let said = greeting.encode();
            prop_assert!(said.len() <= crate::net::Parcel::MAX_BYTES);
            prop_assert_eq!(Greeting::decode(&said), Some(greeting));
            prop_assert_eq!(Greeting::decode(&said[..cut.index(said.len())]), None);
        }
    }
}
