//! Native allocators, for the event `native-alloc`: which functions allocate in a process, and the programs at them.

mod c_library;
mod choice;
mod functions;
mod link_order;
mod process;
mod stage;

use crate::capture::AllocationProbes;
use crate::world::Stage;

/// Makes the stage. `launched`: the process that waits to execute the command, if there is one.
pub(crate) fn stage(probes: AllocationProbes, launched: Option<u32>) -> Box<dyn Stage> {
    Box::new(stage::NativeAllocations::new(probes, launched))
}
