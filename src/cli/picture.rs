//! The options of flame graphs.

use super::number;

/// How a flame graph looks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Picture {
    /// Set the title of the flame graph or page.
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub(super) title: Option<String>,
    /// In .svg pictures, omit frames narrower than this, in pixels.
    #[arg(
        long,
        value_name = "PX",
        value_parser = number::width,
        default_value_t = 0.1,
        help_heading = "Output",
        allow_negative_numbers = true
    )]
    pub(super) minwidth: f64,
    /// In .svg pictures, merge stacks from the leaf, to show who calls a function.
    #[arg(long, help_heading = "Output")]
    pub(super) reverse: bool,
    /// In .svg pictures, draw the root at the top (icicle graph).
    #[arg(long, help_heading = "Output")]
    pub(super) inverted: bool,
}
