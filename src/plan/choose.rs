//! Which algorithm, tiles and channels a call gets: a pure function of what all ranks know alike.

use super::{
    algo::{Algorithm, fitting},
    layout::{Layout, Tiling},
    schedule::Schedule,
};
use crate::types::{Collective, Error};

/// The algorithm for a vector of `bytes` among `ranks`: the one that is `forced` if it fits the collective.
///
/// # Errors
/// [`Error::Internal`] when there is none at all.
pub(crate) fn algorithm(
    collective: Collective,
    ranks: usize,
    bytes: usize,
    forced: Option<&str>,
) -> Result<&'static Algorithm, Error> {
    if let Some(algorithm) = fitting(collective).find(|algorithm| Some(algorithm.name) == forced) {
        return Ok(algorithm);
    }
    let mut fits = fitting(collective);
    let short = fits.next();
    let choice = if ranks <= DIRECT_RANKS || bytes < RING_BYTES {
        short
    } else {
        fits.next().or(short)
    };
    choice.ok_or_else(|| Error::internal(format!("no algorithm for {}", collective.name())))
}

/// Up to this many ranks direct exchange is as good as a ring at any size.
const DIRECT_RANKS: usize = 8;
/// From this size on a ring's few peers beat direct exchange's few steps among many ranks.
const RING_BYTES: usize = 1 << 20;

/// Cuts a call into tiles for a link whose messages hold up to `max_message` bytes, with up to `lanes` lanes. Returns
/// the tiling and how many tiles are in flight.
///
/// # Errors
/// [`Error::Usage`] when the schedule's messages do not fit a link.
pub(crate) fn tiling(
    schedule: &Schedule,
    layout: &Layout,
    element: usize,
    max_message: usize,
    lanes: usize,
) -> Result<(Tiling, usize), Error> {
    let message_grains = schedule.largest_message().max(1);
    let room = max_message / message_grains / element;
    if room == 0 {
        return Err(Error::usage(format!(
            "a message of {message_grains} blocks does not fit the {max_message} bytes of a link's slot: force another algorithm"
        )));
    }
    let longest = layout.longest();
    let wanted = (TILE_BYTES / element).clamp(1, room);
    let most = longest
        .div_ceil(TILES_WANTED)
        .next_multiple_of((SMALL_TILE / element).max(1))
        .min(wanted);
    let tiling = Tiling::new(longest, most, (64 / element).min(room));
    let copies = (lanes / schedule.channels.len().max(1))
        .min(IN_FLIGHT)
        .min(tiling.tiles);
    Ok((tiling, copies.max(1)))
}

/// The largest tile: the ring slots of a few of them stay in a core's second-level cache.
const TILE_BYTES: usize = 32 << 10;
/// The least tile, where a call is cut only to have several in flight.
const SMALL_TILE: usize = 8 << 10;
/// The number of tiles that a short call is cut into, so that one is written while another is read.
const TILES_WANTED: usize = 4;
/// Tiles in flight.
const IN_FLIGHT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::algo::Request;

    #[test]
    fn an_algorithm_is_forced_where_it_fits() {
        let name = |forced| algorithm(Collective::AllReduce, 4, 8, forced).unwrap().name;
        assert_eq!(
            [name(None), name(Some("ring")), name(Some("chain"))],
            ["direct", "ring", "direct"]
        );
    }

    #[test]
    fn every_tile_fits_a_slot() {
        for ranks in [1, 2, 5, 64] {
            for count in [0, 1, 1000, 1 << 20, 1 << 40] {
                for element in [1, 2, 4, 8] {
                    let request = Request {
                        collective: Collective::AllReduce,
                        ranks,
                        rank: 0,
                    };
                    let schedule = (algorithm(Collective::AllReduce, ranks, count, None)
                        .unwrap()
                        .build)(&request);
                    let layout = Layout {
                        count,
                        blocks: schedule.blocks as usize,
                        grains: 1,
                    };
                    let (tiling, copies) = tiling(&schedule, &layout, element, 4096, 8).unwrap();
                    assert!(tiling.elements * element * schedule.largest_message() <= 4096);
                    assert!(copies >= 1 && copies <= tiling.tiles && copies * schedule.channels.len() <= 8);
                }
            }
        }
    }
}
