//! A program that uses a whole CPU, with a name that no other process has: a daemon sees all processes of the machine.

use testkit::native;
use testkit::target::Target;

/// One of the compiled C programs under a name of its own. Dropping it kills it.
pub(crate) struct Busy {
    name: String,
    target: Target,
}

impl Busy {
    /// Starts the program `native`, `kernel` … and waits until it works.
    pub(crate) fn start(program: &str) -> Busy {
        let (target, name) = native::start_under_own_name(program);
        Busy { name, target }
    }

    /// The name of its process.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn pid(&self) -> u32 {
        self.target.pid()
    }

    /// Whether a stack is of its process.
    pub(crate) fn has(&self, stack: &[String]) -> bool {
        stack[0] == self.name
    }
}
