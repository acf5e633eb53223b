//! The distributions whose packages make up kernels and root file systems.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distribution {
    Debian,
    Ubuntu,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A release of a distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    pub(crate) distribution: Distribution,
    /// The release's code name, for example `bookworm`.
    pub(crate) name: &'static str,
}

impl Suite {
    pub(crate) const fn debian(name: &'static str) -> Suite {
        Suite { distribution: Distribution::Debian, name }
    }

    pub(crate) const fn ubuntu(name: &'static str) -> Suite {
        Suite { distribution: Distribution::Ubuntu, name }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.distribution, self.name)
    }
}
