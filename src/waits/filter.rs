//! Filters that select samples by what their threads did, and by why they waited.

use super::{idle, lock, reason};
use crate::profile::filter::Glob;
use crate::profile::frames::Symbol;
use crate::profile::{Kind, Profile};
use crate::sample::ThreadState;
use crate::suggestion::nearest;

/// The names of the reasons begin so that say only the innermost kernel function.
const IN_FUNCTION: &str = "in ";

/// States and reasons of which each sample must have one; by default every sample is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitFilter {
    /// Empty: all states.
    states: Vec<ThreadState>,
    /// Empty: all reasons, and samples of threads that did not wait.
    reasons: Vec<Glob>,
}

/// A name that is no state, or that no reason can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what}; did you mean {nearest}?")]
pub struct UnknownName {
    /// `state` or `reason`.
    pub what: &'static str,
    /// The known name that is most like it.
    pub nearest: &'static str,
}

/// The wait that a frame at a leaf stands for.
#[derive(Clone, Copy)]
struct LeafWait {
    state: ThreadState,
    has_reason: bool,
}

impl WaitFilter {
    /// Adds a state by its name.
    ///
    /// # Errors
    /// [`UnknownName`] if no state has the name.
    pub fn add_state(&mut self, name: &str) -> Result<(), UnknownName> {
        let known = || ThreadState::ALL.into_iter().map(ThreadState::name);
        let unknown = || UnknownName { what: "state", nearest: nearest(name, known()) };
        self.states.push(ThreadState::named(name).ok_or_else(unknown)?);
        Ok(())
    }

    /// Adds a pattern for reasons: the name of a reason, with or without the class of a Java lock, or of a rule of idle
    /// threads; `*` matches any text.
    ///
    /// # Errors
    /// [`UnknownName`] if the pattern matches no known name. A function after `in ` cannot be checked.
    pub fn add_reason(&mut self, pattern: &str) -> Result<(), UnknownName> {
        let glob = Glob::new(pattern);
        let known = || reason::names().chain(idle::names());
        let reason = Glob::new(lock::without_class(pattern));
        if !pattern.starts_with(IN_FUNCTION) && !known().any(|name| reason.matches(name)) {
            return Err(UnknownName { what: "reason", nearest: nearest(pattern, known()) });
        }
        self.reasons.push(glob);
        Ok(())
    }

    /// The states that were added; empty: all.
    #[must_use]
    pub fn states(&self) -> &[ThreadState] {
        &self.states
    }

    /// Whether samples are selected by reason, so that only waits remain.
    #[must_use]
    pub fn has_reasons(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// Whether every sample is kept.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.states.is_empty() && self.reasons.is_empty()
    }

    /// Removes all other samples of a profile; they count as filtered. The state is that of the label, or of the leaf
    /// if the profile comes from a format without labels. The reason is that of the leaf.
    pub fn apply(&self, profile: &mut Profile) {
        if self.is_all() {
            return;
        }
        let (frames, trie) = (profile.frames(), profile.trie());
        let by_symbol: Vec<Option<LeafWait>> = frames
            .symbols()
            .iter()
            .map(|symbol| symbol.kind.is_wait().then(|| self.leaf_wait(symbol, frames.name(symbol))))
            .collect();
        let mut by_node = vec![None; trie.len()];
        for node in trie.nodes() {
            // Above the frame of a wait is only its waker.
            let below: Option<LeafWait> = by_node[trie.parent(node).index()];
            let own = by_symbol[frames.symbol_of(profile.frame_of(node)) as usize];
            by_node[node.index()] = below.or(own);
        }
        profile.retain(|leaf, labels| {
            let wait: Option<LeafWait> = by_node[leaf.index()];
            let state = match (labels.state, wait) {
                (ThreadState::Running, Some(wait)) => wait.state,
                (state, _) => state,
            };
            let has_state = self.states.is_empty() || self.states.contains(&state);
            has_state && (self.reasons.is_empty() || wait.is_some_and(|wait| wait.has_reason))
        });
    }

    /// The wait of a leaf with this name: `[wait: REASON]`, `[blocked: REASON]`, `[idle: RULE]`, or `[STATE]`.
    fn leaf_wait(&self, symbol: &Symbol, name: &str) -> LeafWait {
        let inside = name.trim_start_matches('[').trim_end_matches(']');
        let (word, reason) = inside.split_once(": ").unwrap_or((inside, ""));
        let state = match symbol.kind {
            Kind::Blocked => ThreadState::Blocked,
            Kind::Queued => ThreadState::named(word).unwrap_or(ThreadState::Runnable),
            _ => ThreadState::Sleeping,
        };
        let reason = reason::queued_reason(state).unwrap_or(reason);
        let texts = [reason, lock::without_class(reason)];
        let is_wanted = |pattern: &Glob| texts.iter().any(|text| pattern.matches(text));
        LeafWait { state, has_reason: self.reasons.iter().any(is_wanted) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::profile::{Accounts, Frame, Labels};
    use crate::sample::Event;

    fn filter(states: &[&str], reasons: &[&str]) -> WaitFilter {
        let mut filter = WaitFilter::default();
        states.iter().for_each(|name| filter.add_state(name).unwrap());
        reasons.iter().for_each(|name| filter.add_reason(name).unwrap());
        filter
    }

    /// Samples by leaf: 1, 2, 4, … `labels`: the profile has labels, so that its leaves are not needed for states.
    fn profile(labels: bool) -> Profile {
        use ThreadState::{Blocked, Runnable, Running, Sleeping, Throttled};
        let mut profile = Profile::new();
        let leaves = [
            (Kind::Native, "f", Running),
            (Kind::Wait, "[wait: monitor a.Cache]", Sleeping),
            (Kind::Wait, "[idle: thread pool]", Sleeping),
            (Kind::Blocked, "[blocked: disk sync]", Blocked),
            (Kind::Queued, "[runnable]", Runnable),
            (Kind::Queued, "[throttled]", Throttled),
            (Kind::Wait, "[wait: in some_driver]", Sleeping),
        ];
        let mut all = 0;
        for (at, (kind, name, state)) in leaves.into_iter().enumerate() {
            let stack = [Frame::named(Kind::Native, "main"), Frame::named(kind, name)].map(Arc::new);
            let state = if labels { state } else { Running };
            profile.add(&Labels { state, ..Labels::default() }, &stack, 1 << at, 0);
            all += 1 << at;
        }
        let accounts = profile.accounts_mut(Event::Cpu);
        *accounts = Accounts { taken: all, kept: all, ..Accounts::default() };
        profile
    }

    #[test]
    fn samples_are_selected_by_state_and_reason() {
        for (states, reasons, kept) in [
            (&[][..], &[][..], 0b111_1111),
            (&["running"], &[], 0b1),
            (&["sleeping"], &[], 0b100_0110),
            (&["blocked", "throttled"], &[], 0b10_1000),
            (&[], &["monitor"], 0b10),
            (&[], &["monitor a.*"], 0b10),
            (&[], &["monitor b.*"], 0),
            (&[], &["disk *", "CPU"], 0b1_1000),
            (&[], &["quota"], 0b10_0000),
            (&[], &["thread pool"], 0b100),
            (&[], &["in some_*"], 0b100_0000),
            (&[], &["*"], 0b111_1110),
            (&["blocked"], &["disk sync", "monitor"], 0b1000),
            (&["running"], &["monitor"], 0),
        ] {
            for labels in [true, false] {
                let mut profile = profile(labels);
                filter(states, reasons).apply(&mut profile);
                profile.check().unwrap();
                let was = profile.of_event(Event::Cpu).total().count;
                assert_eq!(was, kept, "{states:?} {reasons:?} {labels}");
                assert_eq!(profile.accounts(Event::Cpu).filtered, 0b111_1111 - kept);
            }
        }
    }

    #[test]
    fn wrong_names_have_a_suggestion() {
        let mut filter = WaitFilter::default();
        let state = filter.add_state("sleping").unwrap_err();
        assert_eq!(state.to_string(), "unknown state; did you mean sleeping?");
        for (wrong, nearest) in
            [("monitr", "monitor"), ("disk snyc", "disk sync"), ("tread pool", "thread pool")]
        {
            assert_eq!(filter.add_reason(wrong).unwrap_err().nearest, nearest);
        }
        assert!(filter.add_reason("dsk *").is_err() && filter.is_all());
    }
}
