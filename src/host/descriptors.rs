//! How many files may be open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many open files as it may be allowed: each CPU takes two, and the usual limit of 1,024 is
/// there for programs that use `select`, which we do not. Children that it starts from now on inherit that.
pub fn allow_most() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => log::info!("descriptors: {maximum:?} instead of {current:?}"),
        // Then it is as it was; what does not fit says so.
        Err(e) => log::info!("descriptors: no more than {current:?}: {e}"),
    }
}
