//! Flame graphs as SVG. The crate inferno draws them; the colours are our own, by kind of frame.

use std::io::{self, Write};

use anyhow::{Context, ensure};
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::folded::{self, FoldedTexts};
use super::format::{Format, FormatReader, FormatRequirements};
use super::picture_options::PictureOptions;
use super::report::{every, thousands};
use super::{name, palette};
use crate::profile::frames::FrameTable;
use crate::profile::{Accounts, Kind, ProfileView};

/// Width of the frames in pixels, before a browser stretches the picture.
const FRAMES_WIDTH: f64 = 1180.0;

/// The flame graph format.
pub static FORMAT: Format = Format {
    names: &["svg"],
    media_type: "image/svg+xml",
    needs: FormatRequirements::NONE,
    several: false,
    write: |views, picture_options, out| views.iter().try_for_each(|view| write(view, picture_options, out)),
    read: FormatReader::Never("a flame graph is a picture; read its .html, .pb.gz or .folded file instead"),
};

/// The only frame of a picture without samples.
const NO_SAMPLES: &str = "[no samples]";

/// Draws the samples of one event.
///
/// # Errors
/// The error of inferno or of `out`.
pub fn write(
    view: &ProfileView<'_>,
    picture_options: &PictureOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let accounts = view.accounts();
    let shown = view.total().count + accounts.lost_total();
    let least = picture_options.min_width / FRAMES_WIDTH * shown as f64;
    let texts = FoldedTexts::of(view.frames());
    let mut lines: Vec<String> = Vec::new();
    texts.lines(view, least, picture_options.reverse, |line| -> anyhow::Result<()> {
        lines.push(line.to_owned());
        Ok(())
    })?;
    lines.extend(folded::lost(accounts));
    if lines.is_empty() {
        lines.push(format!("{NO_SAMPLES} 1"));
    }
    let kinds = kinds(view.frames(), &texts);
    let mut palette = palette(&texts, &kinds, accounts);
    let mut options = flamegraph::Options::default();
    let title =
        picture_options.title.clone().unwrap_or_else(|| format!("jbpf-prof: {}", view.event().title()));
    options.title = crate::profile::frame::clean(title.as_bytes(), 200);
    // Reserves the line. The text itself is drawn below, at the left, so that the legend fits beside it.
    options.subtitle = Some("\u{a0}".to_owned());
    options.palette_map = Some(&mut palette);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 0xfa, g: 0xfa, b: 0xfa }));
    options.direction = if picture_options.inverted { Direction::Inverted } else { Direction::Straight };
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.image_width = None;
    options.min_width = 0.0; // narrow frames are cut off already, and their callers have their samples
    let mut picture = TailBuffer { out: &mut *out, held: Vec::new() };
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut picture)
        .context("drawing")?;
    ensure!(picture.held == END, "inferno's picture does not end as it did");
    out.write_all(subtitle_text(picture_options, view).as_bytes())?;
    out.write_all(legend(&kinds).as_bytes())?;
    if !picture_options.inverted {
        out.write_all(TO_THE_ROOT.as_bytes())?;
    }
    Ok(out.write_all(END)?)
}

/// Pictures of deep Java stacks are many screens high: this scrolls the browser to the root, which is at the bottom.
const TO_THE_ROOT: &str =
    "<script>window.addEventListener('load', function () { window.scrollTo(0, 1e7); });</script>";

fn subtitle_text(picture_options: &PictureOptions, view: &ProfileView<'_>) -> String {
    let text = picture_options.subtitle.clone().unwrap_or_else(|| subtitle(view));
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<text x=\"10\" y=\"48\">{text}</text>")
}

/// The end of inferno's picture.
const END: &[u8] = b"</svg>";

/// Passes on everything but the last bytes, as many as [`END`] has. A picture of deep Java stacks has 15 MB, too much
/// to buffer.
struct TailBuffer<W> {
    out: W,
    held: Vec<u8>,
}

impl<W: Write> Write for TailBuffer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        let over = self.held.len().saturating_sub(END.len());
        self.out.write_all(&self.held[..over])?;
        self.held.drain(..over);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The colours of the kinds that occur in the profile: at the right, on the subtitle's line.
fn legend(kinds: &[Kind]) -> String {
    const LETTER: usize = 7;
    let shown = Kind::ALL.into_iter().filter(|kind| kinds.contains(kind)).map(Kind::facts);
    let shown: Vec<_> = shown.filter_map(|facts| Some((facts.colour, facts.legend?))).collect();
    let width: usize = shown.iter().map(|(_, word)| 24 + LETTER * word.len()).sum();
    let mut x = -(width.cast_signed());
    let mut text = String::from("<svg x=\"100%\" overflow=\"visible\">");
    for ([r, g, b], word) in shown {
        let after = x + 14;
        text += &format!(
            "<rect x=\"{x}\" y=\"39\" width=\"10\" height=\"10\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{after}\" y=\"48\">{word}</text>"
        );
        x += (24 + LETTER * word.len()).cast_signed();
    }
    text + "</svg>"
}

/// The number of samples, their rate or period, and the numbers of lost and missed samples.
#[must_use]
pub fn subtitle(view: &ProfileView<'_>) -> String {
    let accounts = view.accounts();
    let Accounts { kept, missed, period_ns, one_in, .. } = accounts;
    let mut text = format!("{} samples", thousands(*kept));
    if *period_ns > 0 {
        text += &format!(" at {:.0} Hz", 1e9 / *period_ns as f64);
    }
    if accounts.heaviest() > 1.0 {
        text += " (those of lower rates count for more)";
    }
    if *one_in > 1 {
        text += &format!(", {}", every(view.event(), *one_in));
    }
    let lost = accounts.lost_total();
    text += &if lost > 0 { format!(", {} lost", thousands(lost)) } else { ", none lost".to_owned() };
    if *missed > 0 {
        text += &format!(", {} missed", thousands(*missed));
    }
    text
}

/// The kind of each text; where symbols share a text, the kind of the first symbol.
fn kinds(frames: &FrameTable, texts: &FoldedTexts) -> Vec<Kind> {
    let mut kinds = vec![Kind::Marker; texts.list.len()];
    for (symbol, &item) in frames.symbols().iter().zip(&texts.items).rev() {
        kinds[item as usize] = symbol.kind;
    }
    kinds
}

fn palette(texts: &FoldedTexts, kinds: &[Kind], accounts: &Accounts) -> PaletteMap {
    let mut map = PaletteMap::default();
    let mut set = |name: &str, kind: Kind| {
        let [r, g, b] = palette::of(kind, name);
        map.insert(name, Color { r, g, b });
    };
    for (text, kind) in texts.list.iter().zip(kinds) {
        set(text, *kind);
    }
    for (reason, _) in &accounts.lost {
        set(&folded::reason(reason), Kind::Marker);
    }
    for marker in ["", name::LOST, folded::NO_FRAMES, folded::TOO_SMALL, NO_SAMPLES] {
        set(marker, Kind::Marker);
    }
    map
}
