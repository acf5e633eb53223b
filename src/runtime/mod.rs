//! Runtimes whose code is no file's. Each is a stage: it finds its processes, leaves what describes their code to the walker
//! (`World::described`), has the symbolizer name it, says whose names come late (`World::readiness`), knows whole names of
//! threads (`World::thread_names`), and adds its rows to the report.

mod hotspot;

use crate::plan::{Control, Settings};
use crate::world::Stage;

/// Makes the stage of a runtime.
type Runtime = fn(&Settings, &Control) -> Box<dyn Stage>;

/// All runtimes that are known, in the order in which they are asked.
const RUNTIMES: [Runtime; 1] = [hotspot::stage];

/// The stages of all runtimes.
pub(crate) fn stages(settings: &Settings, control: &Control) -> impl Iterator<Item = Box<dyn Stage>> {
    RUNTIMES.into_iter().map(move |runtime| runtime(settings, control))
}
