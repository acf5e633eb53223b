//! A part of a session: the profile and the counts of consecutive windows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::batch::SessionTotals;
use super::tally::Tally;
use crate::profile::kind::Origin;
use crate::profile::pauses::{JvmPauses, PauseMark};
use crate::profile::stripped::is_nameless;
use crate::profile::{Frame, Kind, Module, Profile, UnknownReason};
use crate::sample::{Count, Event, MonoNs, SpanContext, Stack, StopReason};
use crate::world::WindowPauses;

const SECOND: u64 = 1_000_000_000;
/// The highest number of pairs of file and stop reason that are counted.
const MAX_FILES: usize = 4096;
/// The highest number of distinct spans in a profile. Each has labels of its own, some hundred bytes.
const MAX_SPANS: usize = 1 << 17;

/// The profile and the counts of consecutive windows.
pub(super) struct RunPart {
    pub(super) profile: Profile,
    pub(super) tally: Tally,
    /// The event whose samples the runtimes' rows of the report count.
    first: Event,
    /// The highest number of stacks in a window, for the size of the count maps.
    pub(super) most_stacks: usize,
    spans: HashSet<SpanContext>,
    /// Samples whose spans were too many.
    pub(super) spans_left_out: u64,
    /// Begin of the part and end of each of its windows; set only if the profile keeps seconds.
    begun: Option<MonoNs>,
    window_ends: BTreeMap<u64, MonoNs>,
    /// `None` while the part is not over.
    pub(super) end: Option<PartEnding>,
}

/// The end of a part.
#[derive(Clone)]
pub(super) struct PartEnding {
    /// The last window.
    pub(super) window: u64,
    pub(super) totals: SessionTotals,
}

/// A part whose stacks all have their names.
pub(super) struct FinishedPart {
    pub(super) part: RunPart,
    /// The totals at the end of the part.
    pub(super) totals: SessionTotals,
}

impl RunPart {
    pub(super) fn new(first: Event) -> RunPart {
        RunPart {
            profile: Profile::new(),
            tally: Tally::default(),
            first,
            most_stacks: 0,
            spans: HashSet::new(),
            spans_left_out: 0,
            begun: None,
            window_ends: BTreeMap::new(),
            end: None,
        }
    }

    /// The number of the last window; 0 while the part is not over.
    pub(super) fn last_window(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.window)
    }

    /// A window has ended. `before`: the end of the window before, 0 if this is the first window.
    pub(super) fn note_end(&mut self, window: u64, before: MonoNs, end: MonoNs) {
        let first = if before.0 == 0 { MonoNs(end.0.saturating_sub(SECOND)) } else { before };
        self.begun.get_or_insert(first);
        self.window_ends.insert(window, end);
    }

    /// The second of the part in which the middle of a window lies.
    pub(super) fn second_of(&self, window: u64) -> u16 {
        let (Some(begun), Some(end)) = (self.begun, self.window_ends.get(&window)) else { return 0 };
        let before = self.window_ends.range(..window).next_back().map_or(begun, |(_, end)| *end);
        let middle = before.0 + end.0.saturating_sub(before.0) / 2;
        u16::try_from(middle.saturating_sub(begun.0) / SECOND).unwrap_or(u16::MAX)
    }

    /// The pauses of windows in the seconds of the part.
    pub(super) fn pauses(&self, of_windows: &[WindowPauses]) -> JvmPauses {
        let mark = |of: &WindowPauses| PauseMark {
            pid: of.pid,
            second: self.second_of(of.window),
            totals: of.totals,
        };
        of_windows.iter().map(mark).collect()
    }

    /// The span of a stack, if the profile has room for it.
    pub(super) fn admit_span(&mut self, stack: &Stack) -> Option<SpanContext> {
        let span = stack.context.span()?;
        let has_room = self.spans.contains(&span) || self.spans.len() < MAX_SPANS;
        has_room.then(|| self.spans.insert(span)).map(|_| span)
    }

    /// Counts how unwinding stopped, and whether Java ran.
    pub(super) fn note(&mut self, stack: &Stack, count: Count, frames: &[Arc<Frame>]) {
        let stop_reason = stop_reason(stack, frames);
        let tally = self.tally.of(stack.key.event);
        *tally.stop_reasons.entry(stop_reason).or_default() += count.samples;
        tally.traces.add(stack.context, count.samples);
        if let Some(file) = stopped_in(stop_reason, frames) {
            let (rows, key) = (&mut tally.stopped_in, (file, stop_reason));
            if rows.len() < MAX_FILES || rows.contains_key(&key) {
                *rows.entry(key).or_default() += count.samples;
            }
        }
        if stack.key.event != self.first {
            return;
        }
        let samples = self.tally.runtimes.entry(stack.key.process).or_default();
        samples.all += count.samples;
        if frames.iter().any(|frame| frame.kind.origin() == Origin::Java) {
            samples.managed += count.samples;
            if stop_reason == StopReason::Depth || !frames.first().is_some_and(|root| begins_thread(root)) {
                samples.rootless += count.samples;
            }
        }
    }
}

/// Whether threads begin with this function: glibc's, musl's, HotSpot's, the launcher's. Its frame pointer is a
/// leftover of the thread's creator, so that the stop reason does not show whether the stack is whole.
fn begins_thread(root: &Frame) -> bool {
    const BEGINS: &[&str] =
        &["start_thread", "thread_native_entry", "JavaMain", "ThreadJavaMain", "_start", "start"];
    // A stripped libc has no name for its local function `start_thread`; then the file decides.
    const LIBCS: &[&str] = &["libc.so", "libc-", "libpthread", "ld-musl"];
    if is_nameless(root) {
        return LIBCS.iter().any(|libc| root.name.starts_with(libc));
    }
    root.unknown.is_none()
        && (["clone", "__clone"].iter().any(|clone| root.name.starts_with(clone))
            || BEGINS.contains(&&*root.name))
}

/// The stop reason, corrected by the frames: if the outermost return address is not in code, unwinding failed there.
fn stop_reason(stack: &Stack, frames: &[Arc<Frame>]) -> StopReason {
    let astray = frames.first().is_some_and(|root| root.unknown == Some(UnknownReason::NotMapped));
    if astray && stack.user.len() > 1 { StopReason::BadPc } else { stack.stop_reason }
}

/// The file of the outermost frame, whose caller was not found; `None` if the frame has no file or nothing is missing.
fn stopped_in(stop_reason: StopReason, frames: &[Arc<Frame>]) -> Option<Arc<Module>> {
    if matches!(stop_reason, StopReason::Root | StopReason::NoUser) {
        return None;
    }
    let is_code =
        |frame: &Frame| frame.unknown != Some(UnknownReason::NotMapped) && frame.kind != Kind::Marker;
    let last = frames.iter().find(|frame| is_code(frame))?;
    last.module.clone().filter(|_| last.kind != Kind::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_stack_has_the_file_of_its_outermost_frame() {
        let file = Arc::new(Module::at("/srv/x"));
        let in_file = Frame { module: Some(Arc::clone(&file)), ..Frame::named(Kind::Native, "recurse") };
        let frames =
            [Frame::named(Kind::Marker, "[truncated]"), in_file, Frame::named(Kind::Kernel, "do_fault")];
        let frames = frames.map(Arc::new);
        for (stop_reason, expected) in [
            (StopReason::Depth, Some(&file)),
            (StopReason::NoTable, Some(&file)),
            (StopReason::Root, None),
            (StopReason::NoUser, None),
        ] {
            assert_eq!(stopped_in(stop_reason, &frames).as_ref(), expected, "{stop_reason:?}");
        }
        assert_eq!(stopped_in(StopReason::Depth, &frames[..1]), None);
        assert_eq!(stopped_in(StopReason::BadRead, &frames[2..]), None, "a kernel frame is no user frame");
    }
}
