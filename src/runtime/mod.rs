//! Runtimes, which generate or interpret code that is in no file. Each is a stage: it finds its processes, passes
//! unwind descriptions to the unwinder (`World::described`), makes the symbolizer name the code, and adds rows to the
//! report. A runtime reports whose names come late (`World::readiness`) and whole names of threads
//! (`World::thread_names`).

mod hotspot;

use crate::capture::AllocationProbes;
use crate::plan::{Control, JavaAllocations, Settings};
use crate::world::Stage;

/// Makes the stage of a runtime.
type Runtime = fn(&Settings, &Control) -> Box<dyn Stage>;

/// All known runtimes, in the order in which their stages run.
const RUNTIMES: [Runtime; 1] = [hotspot::stage];

/// The stages of all runtimes.
pub(crate) fn stages(settings: &Settings, control: &Control) -> impl Iterator<Item = Box<dyn Stage>> {
    RUNTIMES.into_iter().map(move |runtime| runtime(settings, control))
}

/// The stage that samples allocations. It works for all runtimes: HotSpot is the only one so far.
pub(crate) fn allocations(probes: AllocationProbes, sampled: JavaAllocations) -> Box<dyn Stage> {
    hotspot::allocations(probes, sampled)
}
