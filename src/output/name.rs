//! Names of frames in text: writing and parsing the conventions of folded stacks.

use std::sync::Arc;

use crate::profile::frames::{FrameTable, Symbol};
use crate::profile::kind::waker;
use crate::profile::lines::LineRow;
use crate::profile::stripped::file_of_block;
use crate::profile::{Frame, Kind, Module, UnknownReason};

/// The outermost frame of lost samples; its child is the reason.
pub const LOST: &str = "[lost]";

/// A symbol's name in every format; an unknown frame has its reason and file instead.
#[must_use]
pub fn display_name(frames: &FrameTable, symbol: &Symbol) -> String {
    let name = frames.name(symbol);
    match symbol.unknown {
        Some(why) if name.is_empty() => format!("[unknown: {}]", why.label()),
        Some(why) => format!("[unknown: {} ({name})]", why.label()),
        None if name.is_empty() => "[unknown]".to_owned(),
        None if symbol.kind == Kind::Thread => format!("[{name}]"),
        None => name.to_string(),
    }
}

/// A line of a function: `Class::method @ (bci, line)` for Java, `function (file:line)` for other code.
#[must_use]
pub fn with_line(frames: &FrameTable, row: &LineRow) -> String {
    let symbol = &frames.symbols()[row.symbol as usize];
    let name = display_name(frames, symbol);
    match (row.bci, &row.file) {
        (Some(bci), _) => {
            let name = match name.rsplit_once('.') {
                Some((class, method)) => format!("{class}::{method}"),
                None => name,
            };
            format!("{name} @ ({bci}, {})", row.line)
        }
        (None, Some(file)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            if row.line > 0 { format!("{name} ({file}:{})", row.line) } else { format!("{name} ({file})") }
        }
        (None, None) => name,
    }
}

/// A symbol as a frame of a folded line, with the suffix of its kind. The text contains no `;`, no space at its ends,
/// and no space in a process's name. Its end does not look like a count.
#[must_use]
pub fn folded(frames: &FrameTable, symbol: &Symbol) -> String {
    let mut text: String =
        display_name(frames, symbol).chars().map(|c| if c == ';' { '|' } else { c }).collect();
    if symbol.kind == Kind::Process {
        text = text.replace(' ', "_");
    }
    if text.is_empty() {
        text.push('_');
    }
    if text == LOST {
        // A process may have this name; only lost samples may use it.
        text = "[lost?]".to_owned();
    }
    text = seen(&text);
    if symbol.kind != Kind::Waker || !waker::MARKERS.contains(&text.as_str()) {
        text.push_str(symbol.kind.facts().suffix);
    }
    guard(text)
}

/// Replaces spaces at the ends of a name by `␣`: readers of folded lines strip them, and `" a"` differs from `"a"`.
fn seen(text: &str) -> String {
    let begun = text.trim_start_matches(' ');
    let bare = begun.trim_end_matches(' ');
    let (before, behind) = (text.len() - begun.len(), begun.len() - bare.len());
    format!("{}{bare}{}", SPACE.repeat(before), SPACE.repeat(behind))
}

/// Stands for a space that readers of folded lines would misread.
const SPACE: &str = "\u{2423}";

/// Guards two forms that readers of folded lines misread: a number after a space is a count, and `# ` begins a comment.
fn guard(mut text: String) -> String {
    if text.starts_with("# ") {
        text.replace_range(1..2, SPACE);
    }
    if text == "#" {
        text.push_str(SPACE);
    }
    if let Some((_, tail)) = text.rsplit_once(' ')
        && tail.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        let at = text.len() - tail.len() - 1;
        text.replace_range(at..=at, SPACE);
    }
    text
}

/// The frame for a folded frame's text, as far as text determines it; `at` is its depth, 0 for the outermost.
#[must_use]
pub fn parse(text: &str, at: usize, parent: Option<Kind>) -> Frame {
    if let Some(frame) = parse_unknown(text) {
        return frame;
    }
    let cut = |suffix: &str| text.strip_suffix(suffix).filter(|t| !t.is_empty());
    let (kind, name) = if let Some(kind) = above_code(text) {
        (kind, text)
    } else if at > 1 && waker::MARKERS.contains(&text) {
        (Kind::Waker, text)
    } else if let Some(name) = thread(text, at) {
        (Kind::Thread, name)
    } else if let Some(name) = cut("_[j]") {
        (if name.contains([':', ' ']) { Kind::Jit } else { Kind::Java }, name)
    } else if let Some(name) = cut("_[i]") {
        (Kind::inlined_in(parent), name)
    } else if let Some(name) = cut("_[0]").or_else(|| cut("_[1]")) {
        (Kind::JavaInterpreted, name)
    } else if let Some(name) = cut("_[k]") {
        (Kind::Kernel, name)
    } else if let Some(name) = cut("_[w]") {
        (Kind::Waker, name)
    } else {
        (guess(text, at), text)
    };
    Frame::named(kind, name)
}

/// Text without its brackets.
pub(super) fn strip_brackets(text: &str) -> &str {
    text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text)
}

/// The class in the name of an object's frame: `int[]` of `[new: int[]]`.
#[must_use]
pub(super) fn of_object(text: &str) -> &str {
    strip_brackets(text).strip_prefix("new: ").unwrap_or(text)
}

/// The frame of a kind with this name, without module, address and line.
#[must_use]
pub(super) fn frame(kind: Kind, text: impl AsRef<str> + Into<Arc<str>>) -> Frame {
    match kind {
        Kind::Unknown => {
            let known = parse_unknown(text.as_ref());
            known.unwrap_or_else(|| Frame::unknown(UnknownReason::NoSymbol, None, 0))
        }
        Kind::Thread => Frame::named(kind, strip_brackets(text.as_ref())),
        _ => Frame::named(kind, text),
    }
}

/// The unknown frame for `[unknown: why (file)]`.
#[must_use]
pub fn parse_unknown(text: &str) -> Option<Frame> {
    let inner = text.strip_prefix("[unknown: ")?.strip_suffix(']')?;
    let (label, file) = match inner.split_once(" (") {
        Some((label, file)) => (label, file.strip_suffix(')').filter(|f| !f.is_empty())?),
        None => (inner, ""),
    };
    let why = UnknownReason::ALL.into_iter().find(|w| w.label() == label)?;
    let path = file_of_block(file);
    let module = (!path.is_empty()).then(|| Module::at(path).into());
    Some(Frame { name: file.into(), ..Frame::unknown(why, module, 0) })
}

/// The kind of a leaf that says why a thread had no CPU, or what it allocated.
fn above_code(text: &str) -> Option<Kind> {
    let name = text.strip_prefix('[')?.strip_suffix(']')?;
    match name.split_once(": ") {
        Some(("wait" | "idle", _)) => Some(Kind::Wait),
        Some(("blocked", _)) => Some(Kind::Blocked),
        Some(("new", _)) => Some(Kind::Object),
        None if matches!(name, "runnable" | "throttled") => Some(Kind::Queued),
        _ => None,
    }
}

/// The name of a thread, which is the second frame, in brackets.
fn thread(text: &str, at: usize) -> Option<&str> {
    let name = text.strip_prefix('[')?.strip_suffix(']')?;
    (at == 1 && !name.is_empty() && !MARKERS.contains(&text)).then_some(name)
}

/// Frames in brackets that are not threads.
const MARKERS: [&str; 4] = [LOST, "[truncated]", "[profile full]", "[vthread]"];

/// The kind of a name without a suffix.
fn guess(text: &str, at: usize) -> Kind {
    let brackets = text.starts_with('[') && text.ends_with(']');
    if at == 0 && !MARKERS.contains(&text) {
        Kind::Process
    } else if brackets {
        Kind::Marker
    } else if text.contains("::") && !rust(text) {
        Kind::Cpp
    } else {
        Kind::Native
    }
}

/// Whether a name with `::` is Rust's: a trait's method, a closure, the standard library, a hash of the old mangling.
fn rust(text: &str) -> bool {
    let hash = |h: &str| h.len() == 17 && h.starts_with('h');
    text.contains(" as ")
        || text.contains("{{")
        || text.contains("{closure")
        || ["core::", "alloc::", "std::rt::", "std::sys::", "std::panic"].iter().any(|p| text.starts_with(p))
        || text.rsplit_once("::").is_some_and(|(_, last)| hash(last))
}
