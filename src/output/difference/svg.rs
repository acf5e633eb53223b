//! A flame graph of both sides. The width of a frame is the mean of its shares before and after, so that frames that
//! vanished are visible too. Red and `+` is more than before, blue and `−` is less.

use std::io::Write;

use anyhow::Context;
use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::format::DiffFormat;
use super::model::Difference;
use super::stacks::{DiffStacks, SideCounts};
use super::words;
use crate::compare::Side;
use crate::output::picture_options::PictureOptions;
use crate::profile::trie::NodeId;

pub(super) static FORMAT: DiffFormat = DiffFormat { extension: "svg", write };

/// Width of the frames in pixels, before a browser stretches the picture.
const FRAMES_WIDTH: f64 = 1180.0;

/// Units of a side's width. inferno counts in whole numbers.
const UNITS: f64 = 1e9;

/// A smaller difference, in points, has neither sign.
const MIN_POINTS: f64 = 0.05;

fn write(
    difference: &Difference<'_>,
    picture_options: &PictureOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let stacks = DiffStacks::of(difference);
    let totals = stacks.totals(difference);
    let shares = Shares::of(difference);
    let frame = |node: NodeId| {
        let [before, after] = shares.percent(totals[node.index()]);
        format!("{}{}", sign(after - before), stacks.text(difference, node))
    };
    let mut lines: Vec<String> = Vec::new();
    stacks.for_each(difference, frame, |stack, counts| -> anyhow::Result<()> {
        let [before, after] = shares.percent(counts).map(|percent| (percent / 100.0 * UNITS).round() as u64);
        // The first count is what inferno takes off the width: twice the units before, so that the difference is that
        // between both sides.
        lines.push(format!("{stack} {} {}", 2 * before, before + after));
        Ok(())
    })?;
    let mut options = flamegraph::Options::default();
    let title = picture_options.title.clone().unwrap_or_else(|| words::verdict(difference));
    options.title = crate::profile::frame::clean(title.as_bytes(), 200);
    let [before, after] = [Side::Before, Side::After].map(|side| words::side(difference, side));
    options.subtitle = Some(format!(
        "before: {before}; after: {after}. Width: mean of both shares. Red, +: more than before. Blue, −: less."
    ));
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 0xfa, g: 0xfa, b: 0xfa }));
    options.direction = if picture_options.inverted { Direction::Inverted } else { Direction::Straight };
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.image_width = None;
    options.min_width = picture_options.min_width / FRAMES_WIDTH * 100.0;
    options.reverse_stack_order = picture_options.reverse;
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut picture)
        .context("drawing")?;
    let picture = String::from_utf8(picture).context("drawing")?;
    Ok(out.write_all(with_both_shares(&picture).as_bytes())?)
}

/// Shares of samples in percent of the side's whole, or of the whole before.
struct Shares {
    percent_of_sample: [f64; 2],
}

impl Shares {
    fn of(difference: &Difference<'_>) -> Shares {
        Shares { percent_of_sample: difference.comparison.percent_of_sample }
    }

    fn percent(&self, counts: SideCounts) -> [f64; 2] {
        [counts[0] as f64 * self.percent_of_sample[0], counts[1] as f64 * self.percent_of_sample[1]]
    }
}

/// What stands before a frame's name: the colour alone would say nothing to people who do not see it.
fn sign(points: f64) -> &'static str {
    if points >= MIN_POINTS {
        "+ "
    } else if points <= -MIN_POINTS {
        "− "
    } else {
        ""
    }
}

/// Replaces the numbers in the tooltips, which are parts of inferno's sum, by shares of both sides. inferno writes
/// `NAME (COUNT samples, SHARE%; DIFFERENCE%)`: the share is the mean of both sides, the difference half of the points.
fn with_both_shares(picture: &str) -> String {
    let mut text = String::with_capacity(picture.len());
    for (at, part) in picture.split("</title>").enumerate() {
        if at > 0 {
            text.push_str("</title>");
        }
        match part.rsplit_once("<title>").and_then(|(before, title)| Some((before, tooltip(title)?))) {
            Some((before, title)) => {
                text.push_str(before);
                text.push_str("<title>");
                text.push_str(&title);
            }
            None => text.push_str(part),
        }
    }
    text
}

fn tooltip(title: &str) -> Option<String> {
    let (name, numbers) = title.strip_suffix(')')?.rsplit_once(" (")?;
    let (_, shares) = numbers.split_once(" samples, ")?;
    let Some((mean, half)) = shares.split_once("; ") else { return Some(format!("{name} (both sides)")) };
    let [mean, half] = [mean, half].map(|number| number.trim_end_matches('%').parse::<f64>().ok());
    let (mean, half) = (mean?, half?);
    let (before, after) = ((mean - half).max(0.0), mean + half);
    Some(format!("{name} ({before:.2} % before, {after:.2} % after, {:+.2} points)", 2.0 * half))
}

#[cfg(test)]
mod tests {
    use super::tooltip;

    #[test]
    fn tooltips_have_the_shares_of_both_sides() {
        assert_eq!(
            tooltip("+ parse (T) (1,000 samples, 12.00%; +3.50%)").as_deref(),
            Some("+ parse (T) (8.50 % before, 15.50 % after, +7.00 points)")
        );
        assert_eq!(tooltip("all (2,000 samples, 100%)").as_deref(), Some("all (both sides)"));
        assert_eq!(
            tooltip("x (1 samples, 0.50%; 0.00%)").as_deref(),
            Some("x (0.50 % before, 0.50 % after, +0.00 points)")
        );
        assert_eq!(tooltip("Flame graph"), None);
    }
}
