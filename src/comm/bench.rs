//! What planning a call takes, for `benches/plan.rs`.

use super::plans::Plans;
use crate::{
    plan::{
        algo::{ALGORITHMS, Request},
        calibration::Calibration,
        choose,
        cost::{Load, Machine},
        forced::Forced,
        groups::Groups,
        layout::Layout,
    },
    sys::helpers::Helpers,
    transport::{CALL_LANES, MAX_MESSAGE},
    types::{Collective, DType, Error, Result},
};

/// The planner of one rank of a communicator, on hosts with 8 ranks each.
#[derive(Debug)]
pub struct Planner {
    machine: Machine,
    plans: Plans,
    ranks: usize,
}

impl Planner {
    /// Among so many ranks.
    pub fn new(ranks: usize) -> Planner {
        let groups = Groups::Rows { ranks, size: 8 };
        Planner {
            machine: Machine::of_hosts(8, groups, &Calibration::DEFAULT),
            plans: Plans::new(Helpers::new(1), false, false),
            ranks,
        }
    }

    fn load(&self, count: usize) -> Load {
        Load::new(Collective::AllReduce, self.ranks, count, DType::Float32)
    }

    /// A call that has not been made before, its proof left aside: the algorithm, rank 1's schedule and the tiles. Gives the tiles.
    ///
    /// # Errors
    /// As a call's.
    pub fn plan(&self, count: usize) -> Result<usize> {
        let load = self.load(count);
        let algorithm = choose::algorithm(&load, &self.machine, &Forced::default())?;
        let request = Request {
            collective: load.collective,
            ranks: self.ranks,
            rank: 1,
        };
        let schedule = algorithm.schedule(&request, self.machine.groups());
        let layout = Layout {
            count,
            blocks: schedule.blocks as usize,
            grains: schedule.grains as usize,
        };
        let counts = (algorithm.counts)(&load);
        let (tiling, _) = choose::tiling(
            schedule.extent(),
            &layout,
            &load,
            MAX_MESSAGE,
            CALL_LANES,
            self.machine.tile(&load, &counts),
        )?;
        Ok(tiling.tiles)
    }

    /// A call that may have been made before. Gives the tiles.
    ///
    /// # Errors
    /// As a call's.
    pub fn prepare(&mut self, count: usize) -> Result<usize> {
        let load = self.load(count);
        let (machine, forced) = (&self.machine, Forced::default());
        let choose = || choose::algorithm(&load, machine, &forced);
        let plan = self
            .plans
            .prepare(load, 1, machine, Some([0, 0]), (choose, String::new))?;
        Ok(plan.tiling.tiles)
    }
}

/// A rank's schedule of an all-reduce by an algorithm, among ranks of which 8 share a host. Gives its channels.
///
/// # Errors
/// [`Error::Usage`] if no algorithm is called that.
pub fn schedule(algorithm: &str, ranks: usize, rank: usize) -> Result<usize> {
    let one = ALGORITHMS.iter().find(|one| one.name == algorithm);
    let one = one.ok_or_else(|| Error::usage(format!("no algorithm is called {algorithm}")))?;
    let request = Request {
        collective: Collective::AllReduce,
        ranks,
        rank,
    };
    let groups = Groups::Rows { ranks, size: 8 };
    Ok(one.schedule(&request, Some(&groups)).channels.len())
}
