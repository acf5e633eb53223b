//! Samples: how often each stack was seen, for whom.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ahash::RandomState;

use super::accounts::Accounts;
use super::frame::Frame;
use super::frames::{FrameId, FrameTable};
use super::labels::{LabelTable, Labels, LabelsId};
use super::strings::Strings;
use super::trie::{NodeId, Trie};
use crate::sample::Event;

/// Nodes that a profile may have: 16 bytes each, so 256 MB at the very most; half a minute of a large program has some
/// hundred thousand.
const MAX_NODES: usize = 16 << 20;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight {
    /// Samples.
    pub count: u64,
    /// What they stand for, in the unit of their event; 0 if the source did not say.
    pub value: u64,
}

impl Weight {
    /// The sum, if both its parts fit into 63 bits: what formats with signed numbers can hold.
    #[must_use]
    pub fn checked_add(self, other: Weight) -> Option<Weight> {
        let add = |a: u64, b: u64| a.checked_add(b).filter(|sum| i64::try_from(*sum).is_ok());
        Some(Weight { count: add(self.count, other.count)?, value: add(self.value, other.value)? })
    }
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.count += other.count;
        self.value += other.value;
    }
}

/// The time that a profile is from; wall clock, as a label only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    /// Nanoseconds since 1970; 0 if it is not known.
    pub start_unix_ns: u64,
    /// Nanoseconds; 0 if it is not known.
    pub duration_ns: u64,
}

impl TimeSpan {
    fn merge(&mut self, other: TimeSpan) {
        if *self == TimeSpan::default() || other == TimeSpan::default() {
            *self = if *self == TimeSpan::default() { other } else { *self };
            return;
        }
        let end = |s: &TimeSpan| s.start_unix_ns.saturating_add(s.duration_ns);
        let end = end(self).max(end(&other));
        self.start_unix_ns = self.start_unix_ns.min(other.start_unix_ns);
        self.duration_ns = end - self.start_unix_ns;
    }
}

/// A row of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The leaf; the stack is the way up from it.
    pub leaf: NodeId,
    /// Whose it is.
    pub labels: LabelsId,
    /// Of what.
    pub event: Event,
    /// In which second from the beginning of the profile; 0 in a profile that does not tell seconds apart.
    pub second: u16,
    /// How much.
    pub weight: Weight,
}

/// Stacks, what they weigh for whom, and the accounts of the time they are from: of one event, or of several.
#[derive(Clone, Debug)]
pub struct Profile {
    accounts: BTreeMap<Event, Accounts>,
    /// The time that it is from.
    pub span: TimeSpan,
    frames: FrameTable,
    labels: LabelTable,
    label_text: Strings,
    trie: Trie,
    /// By stack, labels, event and second.
    samples: HashMap<(NodeId, LabelsId, Event, u16), Weight, RandomState>,
    /// The way to the last stack: the next one often begins like it.
    last: Vec<(FrameId, NodeId)>,
    cut: u64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::new()
    }
}

impl Profile {
    /// An empty profile.
    #[must_use]
    pub fn new() -> Profile {
        Profile::with_room(MAX_NODES)
    }

    /// An empty profile that will have at most so many nodes of stacks, of 16 bytes each; see [`Profile::cut`].
    #[must_use]
    pub fn with_room(nodes: usize) -> Profile {
        Profile {
            accounts: BTreeMap::new(),
            span: TimeSpan::default(),
            frames: FrameTable::default(),
            labels: LabelTable::default(),
            label_text: Strings::default(),
            trie: Trie::new(nodes),
            samples: HashMap::default(),
            last: Vec::new(),
            cut: 0,
        }
    }

    /// The events of which there are samples or accounts; of an empty profile, time on a CPU.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.accounts.keys().copied().collect();
        events.extend(self.samples.keys().map(|(_, _, event, _)| *event));
        events.sort_unstable();
        events.dedup();
        if events.is_empty() { vec![Event::default()] } else { events }
    }

    /// Where the samples of an event went.
    #[must_use]
    pub fn accounts(&self, event: Event) -> Accounts {
        self.accounts.get(&event).cloned().unwrap_or_default()
    }

    /// The same, for whoever fills the profile; `kept` is to be the number of the event's samples.
    pub fn accounts_mut(&mut self, event: Event) -> &mut Accounts {
        self.accounts.entry(event).or_default()
    }

    /// Adds a stack of time on a CPU. Its names are made fit to print; what is added for equal labels and an equal stack is summed.
    pub fn add(&mut self, labels: &Labels, frames_root_first: &[Arc<Frame>], count: u64, weight_ns: u64) {
        let labels = self.intern_labels(labels);
        let stack = self.intern_stack(frames_root_first);
        self.add_at(stack, labels, Event::Cpu, Weight { count, value: weight_ns });
    }

    /// The number of labels, for [`Profile::add_at`].
    pub fn intern_labels(&mut self, labels: &Labels) -> LabelsId {
        if let Some(id) = self.labels.find(labels) {
            return id;
        }
        let Labels { pid, process, thread, tid, cgroup, container } = labels;
        let mut text = |t: &Arc<str>| {
            let id = self.label_text.intern(t);
            Arc::clone(self.label_text.get(id))
        };
        let (process, thread) = (text(process), text(thread));
        let container = container.as_ref().map(|container| Arc::new(container.map(text)));
        let labels = Labels { pid: *pid, process, thread, tid: *tid, cgroup: *cgroup, container };
        self.labels.insert(labels)
    }

    /// The number of a frame, for [`Profile::stack_of`].
    pub fn intern_frame(&mut self, frame: &Arc<Frame>) -> FrameId {
        self.frames.intern(frame)
    }

    /// The node of a stack, for [`Profile::add_at`]: a stack that comes again need not be looked up again.
    pub fn intern_stack(&mut self, frames_root_first: &[Arc<Frame>]) -> NodeId {
        let frames: Vec<FrameId> = frames_root_first.iter().map(|frame| self.frames.intern(frame)).collect();
        self.stack_of(&frames)
    }

    /// The node of a stack whose frames are known by number.
    ///
    /// When the profile is full (16 million nodes, 4 million frames) the stack is cut where it leaves the others, see
    /// [`Profile::cut`].
    pub fn stack_of(&mut self, frames_root_first: &[FrameId]) -> NodeId {
        let same = self.last.iter().zip(frames_root_first).take_while(|((last, _), frame)| last == *frame);
        self.last.truncate(same.count());
        let mut at = self.last.last().map_or(NodeId::ROOT, |&(_, node)| node);
        for &frame in &frames_root_first[self.last.len()..] {
            match self.trie.child(at, frame.0) {
                Some(node) => {
                    at = node;
                    self.last.push((frame, node));
                }
                None => {
                    self.cut += 1;
                    break;
                }
            }
        }
        at
    }

    /// Adds to a stack and labels that are known by number.
    pub fn add_at(&mut self, stack: NodeId, labels: LabelsId, event: Event, weight: Weight) {
        self.add_in(0, stack, labels, event, weight);
    }

    /// The same in a second from the beginning of the profile on: see [`View::by_second`](super::ProfileView::by_second).
    pub fn add_in(&mut self, second: u16, stack: NodeId, labels: LabelsId, event: Event, weight: Weight) {
        match self.samples.entry((stack, labels, event, second)) {
            Entry::Occupied(mut sum) => *sum.get_mut() += weight,
            Entry::Vacant(free) if weight != Weight::default() => _ = free.insert(weight),
            Entry::Vacant(_) => {}
        }
    }

    /// Adds all of another profile, accounts included.
    pub fn merge(&mut self, other: &Profile) {
        let Profile { accounts, span, frames, labels: _, label_text: _, trie, samples: _, last: _, cut } =
            other;
        let to_frame: Vec<FrameId> =
            frames.ids().map(|id| self.frames.intern(&Arc::new(frames.get(id)))).collect();
        let mut to_node = vec![NodeId::ROOT; trie.len()];
        for node in trie.nodes() {
            let parent = to_node[trie.parent(node).index()];
            let child = self.trie.child(parent, to_frame[trie.item(node) as usize].0);
            to_node[node.index()] = child.unwrap_or_else(|| {
                self.cut += 1;
                parent
            });
        }
        for sample in other.samples() {
            let labels = self.intern_labels(other.labels(sample.labels));
            self.add_in(sample.second, to_node[sample.leaf.index()], labels, sample.event, sample.weight);
        }
        for (event, accounts) in accounts {
            self.accounts_mut(*event).merge(accounts);
        }
        self.span.merge(*span);
        self.cut += cut;
    }

    /// Keeps the samples of some labels only; the others count as filtered.
    pub fn keep(&mut self, wanted: impl Fn(&Labels) -> bool) {
        self.retain(|_, labels| wanted(labels));
    }

    /// Takes samples out by what `keep` says of their leaf and labels; they count as filtered.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(NodeId, &Labels) -> bool) {
        let mut out: BTreeMap<Event, u64> = BTreeMap::new();
        let all = &self.labels;
        self.samples.retain(|(leaf, labels, event, _), weight| {
            let stays = keep(*leaf, all.get(*labels));
            *out.entry(*event).or_default() += if stays { 0 } else { weight.count };
            stays
        });
        for (event, out) in out {
            let accounts = self.accounts_mut(event);
            accounts.kept = accounts.kept.saturating_sub(out);
            accounts.filtered += out;
        }
    }

    /// All samples, in an order that depends on what was added and when only.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        self.samples_of(|_| true)
    }

    /// The samples of the events that are wanted, in that order.
    pub(super) fn samples_of(&self, wanted: impl Fn(Event) -> bool) -> Vec<Sample> {
        let own = self.samples.iter().filter(|((_, _, event, _), _)| wanted(*event));
        let mut all: Vec<Sample> = own
            .map(|(&(leaf, labels, event, second), &weight)| Sample { leaf, labels, event, second, weight })
            .collect();
        all.sort_unstable_by_key(|s| (s.leaf, s.labels, s.event, s.second));
        all
    }

    /// The stacks; a node's item is a frame.
    #[must_use]
    pub fn trie(&self) -> &Trie {
        &self.trie
    }

    /// The frame of a node other than the root.
    #[must_use]
    pub fn frame_of(&self, node: NodeId) -> FrameId {
        FrameId::from_item(self.trie.item(node))
    }

    /// The frames.
    #[must_use]
    pub fn frames(&self) -> &FrameTable {
        &self.frames
    }

    /// Labels by number.
    #[must_use]
    pub fn labels(&self, id: LabelsId) -> &Labels {
        self.labels.get(id)
    }

    /// How often a stack was cut because the profile was full: more than 0 belongs into the report.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }
}

/// Leaves with their ticks, whoever's, of samples in the order of their leaves.
pub(super) fn leaves(samples: &[Sample]) -> Vec<(NodeId, u64)> {
    let mut leaves: Vec<(NodeId, u64)> = Vec::with_capacity(samples.len());
    for Sample { leaf, weight, .. } in samples {
        match leaves.last_mut() {
            Some((last, sum)) if last == leaf => *sum += weight.count,
            _ => leaves.push((*leaf, weight.count)),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::{Frame, NodeId, Profile};
    use crate::profile::Kind;
    use std::sync::Arc;

    #[test]
    fn a_stack_is_where_it_is_whatever_came_before_it() {
        let stack = |names: &str| -> Vec<Arc<Frame>> {
            names.chars().map(|name| Arc::new(Frame::named(Kind::Native, name.to_string()))).collect()
        };
        let stacks = ["abc", "abd", "ab", "", "abcde", "bc", "abc", "a", "bcd", "c"];
        let mut profile = Profile::new();
        let nodes: Vec<NodeId> = stacks.map(|names| profile.intern_stack(&stack(names))).to_vec();
        assert_eq!(nodes[0], nodes[6]);
        assert_eq!(nodes[3], NodeId::ROOT);
        for (names, node) in stacks.iter().zip(nodes) {
            let mut way: Vec<String> = profile
                .trie()
                .up(node)
                .map(|n| profile.frames().get(profile.frame_of(n)).name.to_string())
                .collect();
            way.reverse();
            assert_eq!(way.concat(), *names);
        }
        assert_eq!(profile.trie().len(), 1 + "abcde".len() + 1 + "bcd".len() + 1);
    }
}
