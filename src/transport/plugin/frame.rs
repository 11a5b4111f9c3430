//! What the two sides of a link say to each other before there is a wire: it goes over the connections of the bootstrap.

use super::{DEPTH, MAX_ENDS, abi::MAX_BYTES, ring::RING};
use crate::transport::{LANES, MAX_MESSAGE};

/// What one side brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The plugin's bytes for each end.
    pub(super) bytes: Vec<Vec<u8>>,
    /// The receiver's rings, of the receiver: where and by which key, by lane.
    pub(super) rings: Option<[(u64, u64); LANES]>,
}

impl Greeting {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = [
            PREFIX,
            &facts(),
            &[u8::from(self.rings.is_some()), self.bytes.len() as u8],
        ]
        .concat();
        for bytes in &self.bytes {
            out.extend((bytes.len() as u16).to_le_bytes());
            out.extend(bytes);
        }
        for (address, key) in self.rings.iter().flatten() {
            out.extend(address.to_le_bytes());
            out.extend(key.to_le_bytes());
        }
        out
    }

    /// What this version would say.
    pub(super) fn decode(bytes: &[u8]) -> Option<Greeting> {
        let rest = bytes.strip_prefix(PREFIX)?.strip_prefix(&facts()[..])?;
        let (&[has_rings, count], mut rest) = rest.split_first_chunk()?;
        if has_rings > 1 || !(1..=MAX_ENDS).contains(&count.into()) {
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
        let mut rings = None;
        if has_rings == 1 {
            let mut found = [(0, 0); LANES];
            for ring in &mut found {
                let (address, behind) = rest.split_first_chunk()?;
                let (key, behind) = behind.split_first_chunk()?;
                *ring = (u64::from_le_bytes(*address), u64::from_le_bytes(*key));
                rest = behind;
            }
            rings = Some(found);
        }
        rest.is_empty().then_some(Greeting { bytes, rings })
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
const VERSION: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn greetings_round_trip(bytes in prop::collection::vec(prop::collection::vec(0u8.., 0..MAX_BYTES), 1..MAX_ENDS),
                                place: Option<(u64, u64)>, cut: prop::sample::Index) {
            let greeting = Greeting { bytes, rings: place.map(|place| [place; LANES]) };
            let said = greeting.encode();
            prop_assert_eq!(Greeting::decode(&said), Some(greeting));
            prop_assert_eq!(Greeting::decode(&said[..cut.index(said.len())]), None);
        }
    }
}
