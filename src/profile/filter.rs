//! Filters that select samples by the names of their frames.

use super::frame::Kind;
use super::samples::Profile;
use super::trie::NodeId;
use crate::sample::TraceId;

/// A pattern for a whole name; `*` matches any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<String>,
}

impl Glob {
    /// Parses `pattern`; every text is valid.
    #[must_use]
    pub fn new(pattern: &str) -> Glob {
        Glob { parts: pattern.split('*').map(str::to_owned).collect() }
    }

    /// Whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let [first, middle @ .., last] = self.parts.as_slice() else {
            return self.parts.first().is_some_and(|only| only == name);
        };
        let Some(mut rest) = name.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

impl Profile {
    /// Keeps the samples of threads that worked for this trace. The other samples count as filtered.
    pub fn keep_trace(&mut self, trace: TraceId) {
        self.retain_labels(|labels| labels.span.is_some_and(|of| of.trace == trace));
    }

    /// Keeps the samples that have a frame matching `include` (all samples, if `include` is empty) and no frame
    /// matching `exclude`. The other samples count as filtered, so the accounts still add up.
    ///
    /// Patterns match names without suffixes; an unknown frame has the name `[unknown: why]`.
    pub fn filter(&mut self, include: &[Glob], exclude: &[Glob]) {
        if include.is_empty() && exclude.is_empty() {
            return;
        }
        let by_symbol = |globs: &[Glob]| -> Vec<bool> {
            let matches = |name: &str| globs.iter().any(|g| g.matches(name));
            let frames = self.frames();
            frames
                .symbols()
                .iter()
                .map(|s| match (s.kind, s.unknown) {
                    (Kind::Unknown, Some(why)) => matches(&format!("[unknown: {}]", why.label())),
                    _ => matches(frames.name(s)),
                })
                .collect()
        };
        let (wanted, unwanted) = (by_symbol(include), by_symbol(exclude));
        let any = |of: &[bool]| {
            let mut found = vec![false; self.trie().len()];
            for node in self.trie().nodes() {
                let symbol = self.frames().symbol_of(self.frame_of(node)) as usize;
                found[node.index()] = of[symbol] || found[self.trie().parent(node).index()];
            }
            found
        };
        let (wanted, unwanted) = (any(&wanted), any(&unwanted));
        let all = include.is_empty();
        self.retain(|leaf: NodeId, _| (all || wanted[leaf.index()]) && !unwanted[leaf.index()]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Glob;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile, UnknownReason};
    use crate::sample::{Event, SpanContext, SpanId, TraceId};

    #[test]
    fn globs() {
        for (pattern, yes, no) in [
            ("main", "main", "maine"),
            ("*.main", "a.b.main", "main"),
            ("java.*", "java.lang.String", "javax.x"),
            ("*a*b*", "xaxbx", "ba"),
            ("a*a", "aba", "a"),
            ("*", "", "\u{0}none"),
        ] {
            assert!(Glob::new(pattern).matches(yes), "{pattern} {yes}");
            assert_eq!(Glob::new(pattern).matches(no), pattern == "*", "{pattern} {no}");
        }
    }

    #[test]
    fn one_trace_can_be_kept() {
        let mut all = Profile::new();
        let stack = [Arc::new(Frame::named(Kind::Native, "work"))];
        for (trace, count) in [(None, 1), (Some(7), 2), (Some(8), 4)] {
            let span = trace.map(|id| SpanContext { trace: TraceId([id; 16]), span: SpanId([1; 8]) });
            all.add(&Labels { span, ..Labels::default() }, &stack, count, 0);
        }
        *all.accounts_mut(Event::Cpu) = Accounts { taken: 7, kept: 7, ..Accounts::default() };
        all.keep_trace(TraceId([8; 16]));
        all.check().unwrap();
        assert_eq!((all.accounts(Event::Cpu).kept, all.accounts(Event::Cpu).filtered), (4, 3));
    }

    #[test]
    fn what_is_left_out_counts_as_filtered() {
        let stack = |names: &[&str]| -> Vec<Arc<Frame>> {
            names.iter().map(|n| Arc::new(Frame::named(Kind::Java, *n))).collect()
        };
        let mut all = Profile::new();
        let none = Labels::default();
        all.add(&none, &stack(&["p", "a.main", "a.f"]), 5, 50);
        all.add(&none, &stack(&["p", "a.main", "a.g"]), 3, 30);
        let mut unknown = stack(&["q"]);
        unknown.push(Arc::new(Frame::unknown(UnknownReason::NoSymbol, None, 7)));
        all.add(&none, &unknown, 2, 20);
        *all.accounts_mut(Event::Cpu) = Accounts { taken: 11, filtered: 1, kept: 10, ..Accounts::default() };
        all.check().unwrap();
        let kept = |include: &[&str], exclude: &[&str]| {
            let globs = |g: &[&str]| g.iter().map(|g| Glob::new(g)).collect::<Vec<_>>();
            let mut p = all.clone();
            p.filter(&globs(include), &globs(exclude));
            p.check().unwrap();
            assert_eq!(p.accounts(Event::Cpu).filtered + p.accounts(Event::Cpu).kept, 11);
            p.of_event(Event::Cpu).total().count
        };
        assert_eq!(kept(&[], &[]), 10);
        assert_eq!(kept(&["*.main"], &[]), 8);
        assert_eq!(kept(&["*.f", "q"], &[]), 7);
        assert_eq!(kept(&["*"], &["*.g"]), 7);
        assert_eq!(kept(&[], &["[unknown: no symbol]"]), 8);
        assert_eq!(kept(&["a"], &[]), 0);
    }
}
