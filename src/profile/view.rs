//! Samples of a profile as a format writes them: the samples of one event, container or service. A view borrows the
//! profile: for each container or service it copies only rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use super::accounts::Accounts;
use super::frames::{FrameId, FrameTable};
use super::labels::{ContainerLabels, Labels, LabelsId};
use super::pauses::{JvmPauses, PauseMark};
use super::samples::{NodeSamples, Profile, Sample, TimeSpan, Weight, leaves};
use super::trie::{NodeId, Trie};
use crate::sample::Event;

/// Samples of a profile, with their own accounts.
#[derive(Clone, Debug)]
pub struct ProfileView<'p> {
    profile: &'p Profile,
    event: Event,
    /// In the order of leaf, then labels.
    samples: Vec<Sample>,
    /// The same samples by second; empty if the profile does not distinguish seconds.
    by_second: Vec<Sample>,
    accounts: Accounts,
    pauses: Cow<'p, JvmPauses>,
    has_labels: bool,
}

impl Profile {
    /// The samples of an event.
    #[must_use]
    pub fn of_event(&self, event: Event) -> ProfileView<'_> {
        let (samples, by_second) = summed(self.samples_of(|of| of == event));
        ProfileView {
            profile: self,
            event,
            samples,
            by_second,
            accounts: self.accounts(event),
            pauses: Cow::Borrowed(&self.pauses),
            has_labels: true,
        }
    }

    /// The samples of each event.
    #[must_use]
    pub fn views(&self) -> Vec<ProfileView<'_>> {
        self.events().into_iter().map(|event| self.of_event(event)).collect()
    }

    /// Whether the accounts of each event add up and agree with the number of samples.
    ///
    /// # Errors
    /// One sentence with both sums.
    pub fn check(&self) -> Result<(), String> {
        self.views().iter().try_for_each(ProfileView::check)
    }
}

/// When JVMs stood still: the pauses of all views of one profile.
#[must_use]
pub fn pauses_of_views(views: &[ProfileView<'_>]) -> JvmPauses {
    let marks = views.iter().flat_map(|view| view.pauses().marks());
    // Several views have the same mark of a JVM.
    let marks: BTreeMap<(u32, u16), PauseMark> = marks.map(|mark| ((mark.pid, mark.second), mark)).collect();
    marks.into_values().collect()
}

impl<'p> ProfileView<'p> {
    /// Groups the samples by a key of their labels: one view for each key, in the order of the keys. The accounts of
    /// each view count only its samples; lost samples have no labels and are in no group.
    pub fn split<K: Ord>(&self, key: impl Fn(&Labels) -> K) -> impl Iterator<Item = (K, ProfileView<'p>)> {
        let mut groups: BTreeMap<K, Vec<Sample>> = BTreeMap::new();
        for sample in self.by_second() {
            groups.entry(key(self.profile.labels(sample.labels))).or_default().push(*sample);
        }
        groups.into_iter().map(move |(key, samples)| (key, self.only(samples, Accounts::default())))
    }

    /// A view of the lost samples alone: accounts without samples.
    #[must_use]
    pub fn lost(&self) -> ProfileView<'p> {
        let lost = self.accounts.lost.clone();
        self.only(Vec::new(), Accounts { taken: self.accounts.lost_total(), lost, ..Accounts::default() })
    }

    fn only(&self, samples: Vec<Sample>, accounts: Accounts) -> ProfileView<'p> {
        let (samples, by_second) = summed(samples);
        let kept: u64 = samples.iter().map(|sample| sample.weight.count).sum();
        let (taken, period_ns, one_in) =
            (accounts.taken + kept, self.accounts.period_ns, self.accounts.one_in);
        let accounts = Accounts { taken, kept, period_ns, one_in, ..accounts };
        let pauses = self.pauses_of(&samples);
        ProfileView {
            profile: self.profile,
            event: self.event,
            samples,
            by_second,
            accounts,
            pauses,
            has_labels: true,
        }
    }

    /// The pauses of the processes of some samples.
    fn pauses_of(&self, samples: &[Sample]) -> Cow<'p, JvmPauses> {
        let mut pauses = JvmPauses::default();
        if !self.pauses.is_empty() {
            let pids: HashSet<u32> =
                samples.iter().map(|sample| self.profile.labels(sample.labels).pid).collect();
            pauses = self.pauses.marks().filter(|mark| pids.contains(&mark.pid)).collect();
        }
        Cow::Owned(pauses)
    }

    /// The event of the samples.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event
    }

    /// The samples of a container, or those outside of containers. Samples of others count as filtered. Lost samples
    /// stay, because their container is not known.
    #[must_use]
    pub fn of_container(&self, container: Option<&ContainerLabels>) -> ProfileView<'p> {
        let own = |sample: &&Sample| self.labels(sample.labels).container.as_deref() == container;
        let [samples, by_second]: [Vec<Sample>; 2] =
            [&self.samples, &self.by_second].map(|rows| rows.iter().filter(own).copied().collect());
        let pauses = self.pauses_of(&samples);
        let mut view = ProfileView { samples, by_second, accounts: self.accounts.clone(), pauses, ..*self };
        let out = view.accounts.kept.saturating_sub(view.total().count);
        view.accounts.kept -= out;
        view.accounts.filtered += out;
        view
    }

    /// The same samples without labels: samples that differ only in their labels become one. Pauses belong to a process,
    /// so there are none.
    #[must_use]
    pub fn without_labels(mut self) -> ProfileView<'p> {
        self.has_labels = false;
        self.pauses = Cow::Owned(JvmPauses::default());
        self.samples.dedup_by(|next, first| {
            let same = next.leaf == first.leaf;
            if same {
                first.weight += next.weight;
            }
            same
        });
        self
    }

    /// The samples, in the order of their leaves.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The samples of each second from the beginning of the profile, in the order of their leaves. In a profile that
    /// does not distinguish seconds every sample is in second 0.
    #[must_use]
    pub fn by_second(&self) -> &[Sample] {
        if self.by_second.is_empty() { &self.samples } else { &self.by_second }
    }

    /// Where the samples went.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The time span of the profile.
    #[must_use]
    pub fn span(&self) -> TimeSpan {
        self.profile.span
    }

    /// When JVMs stood still: in a view of a whole event all JVMs of the profile, in a part of it those with samples.
    #[must_use]
    pub fn pauses(&self) -> &JvmPauses {
        &self.pauses
    }

    /// The labels of a sample: empty after [`ProfileView::without_labels`].
    #[must_use]
    pub fn labels(&self, id: LabelsId) -> &'p Labels {
        static NO_LABELS: LazyLock<Labels> = LazyLock::new(Labels::default);
        if self.has_labels { self.profile.labels(id) } else { &NO_LABELS }
    }

    /// The sum of all samples.
    #[must_use]
    pub fn total(&self) -> Weight {
        let mut sum = Weight::default();
        self.samples.iter().for_each(|sample| sum += sample.weight);
        sum
    }

    /// Leaves with the number of their samples, over all labels, in the order of the nodes.
    #[must_use]
    pub fn leaves(&self) -> Vec<NodeSamples> {
        leaves(&self.samples)
    }

    /// The nodes of the samples' stacks without the root, parents before their children.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let trie = self.trie();
        if self.samples.is_empty() {
            return Vec::new();
        }
        let mut seen = vec![false; trie.len()];
        let mut nodes = Vec::new();
        for Sample { leaf, .. } in &self.samples {
            for node in trie.path_to_root(*leaf) {
                if std::mem::replace(&mut seen[node.index()], true) {
                    break;
                }
                nodes.push(node);
            }
        }
        nodes.sort_unstable();
        nodes
    }

    /// The stacks of the whole profile; a node's item is the number of a frame.
    #[must_use]
    pub fn trie(&self) -> &'p Trie {
        self.profile.trie()
    }

    /// The frame of a node other than the root.
    #[must_use]
    pub fn frame_of(&self, node: NodeId) -> FrameId {
        self.profile.frame_of(node)
    }

    /// The frames of the whole profile.
    #[must_use]
    pub fn frames(&self) -> &'p FrameTable {
        self.profile.frames()
    }

    /// Whether the accounts add up and agree with the number of samples.
    ///
    /// # Errors
    /// One sentence with both sums.
    pub fn check(&self) -> Result<(), String> {
        self.accounts.check_samples(self.total().count)
    }
}

/// Returns the samples summed over all seconds, and the samples by second. Both are in the order of leaves and labels;
/// the second list is empty if both are equal.
fn summed(by_second: Vec<Sample>) -> (Vec<Sample>, Vec<Sample>) {
    if by_second.iter().all(|sample| sample.second == 0) {
        return (by_second, Vec::new());
    }
    let mut samples: Vec<Sample> = Vec::new();
    for sample in &by_second {
        match samples.last_mut() {
            Some(last) if (last.leaf, last.labels) == (sample.leaf, sample.labels) => {
                last.weight += sample.weight;
            }
            _ => samples.push(Sample { second: 0, ..*sample }),
        }
    }
    (samples, by_second)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{NodeSamples, PauseMark, ProfileView, pauses_of_views};
    use crate::profile::pauses::PauseTotals;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile};

    use crate::sample::Event;

    fn profile() -> Profile {
        let mut profile = Profile::new();
        let frame = |name: &str| Arc::new(Frame::named(Kind::Native, name));
        let stack = [frame("main"), frame("work"), frame("leaf")];
        for (pid, process, depth, samples) in [(1, "a", 3, 5), (2, "b", 3, 7), (3, "a", 3, 2), (3, "a", 2, 1)]
        {
            let labels = Labels { pid, process: process.into(), ..Labels::default() };
            profile.add(&labels, &stack[..depth], samples, samples * 10);
        }
        *profile.accounts_mut(Event::Cpu) =
            Accounts { taken: 18, kept: 15, period_ns: 10, ..Accounts::default() };
        profile.accounts_mut(Event::Cpu).lose("ring full", 3);
        profile
    }

    #[test]
    fn parts_have_their_own_samples_and_accounts() {
        let profile = profile();
        let parts: Vec<_> = profile.of_event(Event::Cpu).split(|labels| labels.process.to_string()).collect();
        let found: Vec<_> = parts.iter().map(|(name, part)| (name.as_str(), part.total().count)).collect();
        assert_eq!(found, [("a", 8), ("b", 7)]);
        for (_, part) in &parts {
            part.check().unwrap();
            assert_eq!(part.accounts().period_ns, 10);
        }
        let lost = profile.of_event(Event::Cpu).lost();
        lost.check().unwrap();
        let shown: u64 = parts.iter().map(|(_, part)| part.accounts().shown()).sum();
        assert_eq!(shown + lost.accounts().shown(), profile.accounts(Event::Cpu).shown());
        let (_, b) = &parts[1];
        assert_eq!(b.nodes().len(), 3);
        assert_eq!(b.leaves(), [NodeSamples { node: b.samples()[0].leaf, samples: 7 }]);
    }

    #[test]
    fn parts_have_the_pauses_of_their_processes() {
        let mut profile = profile();
        let totals = PauseTotals { safepoints: 1, ..PauseTotals::default() };
        let mark = |pid| PauseMark { pid, second: 0, totals };
        profile.pauses = [1, 2, 3, 99].map(mark).into_iter().collect();
        let pids = |view: &ProfileView<'_>| view.pauses().by_process().into_keys().collect::<Vec<u32>>();
        let view = profile.of_event(Event::Cpu);
        assert_eq!(pids(&view), [1, 2, 3, 99], "also of a process without samples");
        let parts: Vec<_> =
            view.split(|labels| labels.process.to_string()).map(|(_, part)| pids(&part)).collect();
        assert_eq!(parts, [vec![1, 3], vec![2]]);
        assert!(view.lost().pauses().is_empty());
        assert_eq!(pids(&view.of_container(None)), [1, 2, 3]);
        let outside = view.of_container(None);
        assert_eq!(pauses_of_views(&[outside.clone(), outside]), [1, 2, 3].map(mark).into_iter().collect());
        assert!(view.without_labels().pauses().is_empty());
        profile.retain_labels(|labels| &*labels.process == "a");
        assert_eq!(pids(&profile.of_event(Event::Cpu)), [1, 3]);
    }

    #[test]
    fn without_labels_equal_stacks_are_one_sample() {
        let profile = profile();
        let unlabelled = profile.of_event(Event::Cpu).without_labels();
        let weights: Vec<u64> = unlabelled.samples().iter().map(|sample| sample.weight.count).collect();
        assert_eq!(weights, [1, 14]);
        assert_eq!(*unlabelled.labels(unlabelled.samples()[0].labels), Labels::default());
        unlabelled.check().unwrap();
    }
}
