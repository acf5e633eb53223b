//! The frames between a tracepoint and the BPF program that it runs: they belong to the probe, not to what is profiled.

use std::sync::Arc;

use crate::profile::Frame;
use crate::sample::Event;
use crate::sample::dynamic_event::EventOrigin;
use crate::sample::probe::Probe;
use crate::waits::reason::TRACEPOINT_CALLERS;

/// How far from the leaf the first of them can be.
const DEEPEST: usize = 12;

/// The callers of `rss`, with the kernel's function around its tracepoint.
const RSS_CALLERS: [&str; 5] = {
    let [a, b, c, d] = TRACEPOINT_CALLERS;
    ["mm_trace_rss_stat", a, b, c, d]
};

/// How many frames at the leaf belong to the probe.
pub(super) fn at_leaf(event: Event, frames: &[Arc<Frame>]) -> usize {
    let callers = match event.origin() {
        Some(EventOrigin::Probe(Probe::Tracepoint { .. } | Probe::SystemCall { .. })) => {
            &TRACEPOINT_CALLERS[..]
        }
        None if event == Event::Rss => &RSS_CALLERS,
        _ => return 0,
    };
    let last = frames.len().saturating_sub(DEEPEST);
    let is_caller = |frame: &Arc<Frame>| callers.iter().any(|caller| frame.name.starts_with(caller));
    frames[last..].iter().position(is_caller).map_or(0, |at| frames.len() - last - at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Kind;

    #[test]
    fn the_leaf_is_what_has_the_tracepoint() {
        let frames = |names: &str| -> Vec<Arc<Frame>> {
            names.split(' ').map(|name| Arc::new(Frame::named(Kind::Kernel, name))).collect()
        };
        let fork = frames(
            "do_syscall_64 kernel_clone __traceiter_sched_process_fork bpf_trace_run2 bpf_prog_1_on x",
        );
        let tracepoint = Event::parse("sched:sched_process_fork").unwrap();
        assert_eq!((at_leaf(tracepoint, &fork), at_leaf(Event::Rss, &fork)), (4, 4));
        assert_eq!(at_leaf(tracepoint, &fork[..2]), 0);
        assert_eq!(at_leaf(Event::Cpu, &fork), 0);
        assert_eq!(at_leaf(tracepoint, &[]), 0);
    }
}
