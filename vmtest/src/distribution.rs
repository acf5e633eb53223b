//! Whose packages kernels and root file systems are made of.

use std::fmt;

/// A distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// Debian.
    Debian,
    /// Ubuntu.
    Ubuntu,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A distribution's release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    /// Whose it is.
    pub(crate) distribution: Distribution,
    /// Its code name.
    pub(crate) name: &'static str,
}

impl Suite {
    /// One of Debian's.
    pub(crate) const fn debian(name: &'static str) -> Suite {
        Suite { distribution: Distribution::Debian, name }
    }

    /// One of Ubuntu's.
    pub(crate) const fn ubuntu(name: &'static str) -> Suite {
        Suite { distribution: Distribution::Ubuntu, name }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.distribution, self.name)
    }
}
