//! Flame graphs as SVG, drawn by inferno; the colours are ours, by the kind of frame.

use std::io::Write;

use anyhow::Context;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::{folded, name, palette};
use crate::profile::tree::Tree;
use crate::profile::{Accounts, Kind, Profile};

/// Pixels that the frames are wide before a browser stretches the picture.
const FRAMES_WIDTH: f64 = 1180.0;

/// What a picture without samples shows.
const NO_SAMPLES: &str = "[no samples]";

/// What the picture looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Above the picture.
    pub title: String,
    /// Below the title; [`subtitle`] makes one from the accounts if there is none.
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
        Look {
            title: "jbpf-prof: CPU time".to_owned(),
            subtitle: None,
            min_width: 0.1,
            reverse: false,
            inverted: false,
        }
    }
}

/// Draws a profile.
///
/// # Errors
/// What the writer says.
pub fn write(profile: &Profile, look: &Look, out: &mut impl Write) -> anyhow::Result<()> {
    let accounts = &profile.accounts;
    let shown = profile.total().count + accounts.lost_total();
    let least = look.min_width / FRAMES_WIDTH * shown as f64;
    let tree = if look.reverse { Tree::reversed(profile) } else { Tree::of(profile) };
    let tree = tree.prune(least);
    let names = folded::names(profile);
    let mut lines = folded::lines(&tree, &names);
    lines.extend(folded::lost(accounts));
    if lines.is_empty() {
        lines.push(format!("{NO_SAMPLES} 1"));
    }
    let mut palette = palette(profile, &names);
    let mut options = flamegraph::Options::default();
    options.title = crate::profile::frame::clean(look.title.as_bytes(), 200);
    options.subtitle = Some(look.subtitle.clone().unwrap_or_else(|| subtitle(accounts)));
    options.palette_map = Some(&mut palette);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 0xfa, g: 0xfa, b: 0xfa }));
    options.direction = if look.inverted { Direction::Inverted } else { Direction::Straight };
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.image_width = None;
    options.min_width = 0.0; // what is too narrow is gone already, and its ticks are where it was
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out).context("drawing")
}

/// The rate, the ticks, and what is not in the picture.
#[must_use]
pub fn subtitle(accounts: &Accounts) -> String {
    let Accounts { kept, missed, period_ns, .. } = accounts;
    let mut text = format!("{kept} samples");
    if *period_ns > 0 {
        text += &format!(" at {:.0} Hz", 1e9 / *period_ns as f64);
    }
    let lost = accounts.lost_total();
    text += &if lost > 0 { format!(", {lost} lost") } else { ", none lost".to_owned() };
    if *missed > 0 {
        text += &format!(", {missed} missed");
    }
    text
}

fn palette(profile: &Profile, names: &[String]) -> PaletteMap {
    let mut map = PaletteMap::default();
    let mut set = |name: &str, kind: Kind| {
        let [r, g, b] = palette::of(kind, name);
        map.insert(name, Color { r, g, b });
    };
    for (symbol, name) in profile.frames().symbols().iter().zip(names) {
        set(name, symbol.kind);
    }
    for (reason, _) in &profile.accounts.lost {
        set(&folded::reason(reason), Kind::Marker);
    }
    for marker in ["", name::LOST, folded::NO_FRAMES, NO_SAMPLES] {
        set(marker, Kind::Marker);
    }
    map
}
