//! How a picture looks.

/// What the picture looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Above the picture; what was sampled, if there is none.
    pub title: Option<String>,
    /// Below the title; [`subtitle`](super::svg::subtitle) makes one from the accounts if there is none.
    pub subtitle: Option<String>,
    /// Frames narrower than this, in pixels of a picture 1,200 wide, are left out; their ticks stay in their callers.
    pub min_width: f64,
    /// Stacks with the leaf at the bottom: who calls it.
    pub reverse: bool,
    /// The root on top.
    pub inverted: bool,
}

impl Default for Look {
    fn default() -> Look {
        Look { title: None, subtitle: None, min_width: 0.1, reverse: false, inverted: false }
    }
}
