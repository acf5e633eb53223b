//! Raises the limit on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit. Each CPU takes two descriptors. The usual limit of 1,024
/// protects programs that use `select`, and this program does not. Children that start later inherit the new limit.
pub fn allow_most() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => log::info!("descriptors: {maximum:?} instead of {current:?}"),
        // The old limit stays. An operation that runs out of descriptors reports that itself.
        Err(e) => log::info!("descriptors: no more than {current:?}: {e}"),
    }
}
