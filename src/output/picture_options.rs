//! The appearance of pictures, and what they show beside the samples.

use std::ops::Range;
use std::sync::Arc;

use crate::profile::RunReport;

/// The appearance of pictures, and what they show beside the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureOptions {
    /// Above the picture; by default the sampled event.
    pub title: Option<String>,
    /// Below the title; by default [`subtitle`](super::svg::subtitle) makes one from the accounts.
    pub subtitle: Option<String>,
    /// Frames narrower than this, in pixels of a picture 1,200 wide, are left out; their samples stay in their callers.
    pub min_width: f64,
    /// Merges stacks from the leaf, to show who calls it.
    pub reverse: bool,
    /// Draws the root at the top.
    pub inverted: bool,
    /// Facts about the run, for the page; `None` if the profile comes from a file.
    pub report: Option<Arc<RunReport>>,
    /// Length of the profile's seconds on the page, in milliseconds: 1,000 unless the samples are in longer windows.
    pub column_ms: u64,
    /// Columns of time that the page compares at first; `None` to show all.
    pub columns: Option<ComparedColumns>,
}

/// Two ranges of columns of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedColumns {
    /// What is compared with the base.
    pub range: Range<u32>,
    /// Columns of the base: first column, and the one after the last.
    pub base: Range<u32>,
}

impl Default for PictureOptions {
    fn default() -> PictureOptions {
        PictureOptions {
            title: None,
            subtitle: None,
            min_width: 0.1,
            reverse: false,
            inverted: false,
            report: None,
            column_ms: 1000,
            columns: None,
        }
    }
}
