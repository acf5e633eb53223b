//! The part of a profile below a caller.

use std::sync::Arc;

use super::filter::Glob;
use super::frame::Frame;
use super::samples::Profile;

impl Profile {
    /// The samples with a frame that matches `caller`. Their stacks begin at the outermost such frame. Other samples count
    /// as filtered; lost samples have no stack and stay lost.
    #[must_use]
    pub fn below(&self, caller: &Glob) -> Profile {
        let mut part = Profile::new();
        part.span = self.span;
        let frames = self.frames();
        let is_caller: Vec<bool> =
            frames.symbols().iter().map(|symbol| caller.matches(frames.name(symbol))).collect();
        for event in self.events() {
            let mut accounts = self.accounts(event);
            accounts.filtered += accounts.kept;
            accounts.kept = 0;
            *part.accounts_mut(event) = accounts;
        }
        for sample in self.samples() {
            let path: Vec<_> =
                self.trie().path_to_root(sample.leaf).map(|node| self.frame_of(node)).collect();
            let Some(outermost) = path.iter().rposition(|frame| is_caller[frames.symbol_of(*frame) as usize])
            else {
                continue;
            };
            let stack: Vec<Arc<Frame>> =
                path[..=outermost].iter().rev().map(|frame| Arc::new(frames.get(*frame))).collect();
            let (stack, labels) = (part.intern_stack(&stack), part.intern_labels(self.labels(sample.labels)));
            part.add_interned_in_second(sample.second, stack, labels, sample.event, sample.weight);
            let accounts = part.accounts_mut(sample.event);
            accounts.kept += sample.weight.count;
            accounts.filtered -= sample.weight.count;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::profile::filter::Glob;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    #[test]
    fn stacks_begin_at_the_outermost_caller() {
        let mut profile = Profile::new();
        for (names, count) in [("abcb", 5), ("ab", 3), ("ac", 2), ("xbc", 4)] {
            let stack: Vec<Arc<Frame>> =
                names.chars().map(|name| Arc::new(Frame::named(Kind::Native, name.to_string()))).collect();
            profile.add(&Labels::default(), &stack, count, 0);
        }
        *profile.accounts_mut(Event::Cpu) = Accounts { taken: 15, kept: 14, ..Accounts::default() };
        profile.accounts_mut(Event::Cpu).lose("ring full", 1);
        let part = profile.below(&Glob::new("b"));
        part.check().unwrap();
        let view = part.of_event(Event::Cpu);
        assert_eq!((view.accounts().kept, view.accounts().filtered), (12, 2));
        let name = |node| part.frames().get(part.frame_of(node)).name.to_string();
        let mut stacks: Vec<(String, u64)> = view
            .leaves()
            .into_iter()
            .map(|leaf| (part.trie().path_to_root(leaf.node).map(name).collect(), leaf.samples))
            .collect();
        stacks.sort();
        assert_eq!(stacks, [("b".into(), 3), ("bcb".into(), 5), ("cb".into(), 4)], "leaf first");
    }
}
