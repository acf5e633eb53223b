//! Samples: how often each stack was seen, and with which labels.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;

use super::accounts::Accounts;
use super::frame::Frame;
use super::frames::{FrameId, FrameTable};
use super::labels::{LabelTable, Labels, LabelsId};
use super::pauses::JvmPauses;
use super::strings::Strings;
use super::trie::{NodeId, Trie};
use crate::sample::{Estimate, Event};

/// Limit on the nodes of a profile. A node has up to 16 bytes, so the limit is 256 MB; half a minute of a large program
/// has some hundred thousand nodes.
const MAX_NODES: usize = 16 << 20;

/// How much a sample counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight {
    /// Number of samples, regardless of the weight of each.
    pub count: u64,
    /// The amount that the samples stand for, in the unit of their event; 0 if the source did not report it.
    pub value: u64,
    /// How many allocated objects the samples stand for; 0 for events that do not allocate.
    pub objects: Estimate,
}

impl Weight {
    /// The sum, if its numbers fit into 63 bits, the limit of formats with signed numbers. Objects always do.
    #[must_use]
    pub fn checked_add(self, other: Weight) -> Option<Weight> {
        let add = |a: u64, b: u64| a.checked_add(b).filter(|sum| i64::try_from(*sum).is_ok());
        let mut objects = self.objects;
        objects += other.objects;
        Some(Weight { count: add(self.count, other.count)?, value: add(self.value, other.value)?, objects })
    }
}

impl std::ops::AddAssign for Weight {
    /// Saturates at 63 bits: a process can claim any number of allocated bytes.
    fn add_assign(&mut self, other: Weight) {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(i64::MAX.unsigned_abs());
        self.count = sum(self.count, other.count);
        self.value = sum(self.value, other.value);
        self.objects += other.objects;
    }
}

/// The time span of a profile; wall clock, for display only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpan {
    /// Nanoseconds since 1970; 0 if unknown.
    pub start_unix_ns: u64,
    /// Nanoseconds; 0 if unknown.
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
    /// The leaf; the stack is the path from it up to the root.
    pub leaf: NodeId,
    /// Process, thread and container.
    pub labels: LabelsId,
    /// The event whose samples the row counts.
    pub event: Event,
    /// Seconds since the beginning of the profile; 0 in a profile that does not distinguish seconds.
    pub second: u16,
    /// Number of samples and their amount.
    pub weight: Weight,
}

/// A profile does not have the event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile has no event {asked}; it has {known}")]
pub struct NoSuchEvent {
    asked: String,
    known: String,
}

/// Stacks with their weights and labels, and the accounts of the same time; of one event or of several.
#[derive(Clone, Debug)]
pub struct Profile {
    accounts: BTreeMap<Event, Accounts>,
    /// The time span of the samples.
    pub span: TimeSpan,
    /// When JVMs stood still. A profile that does not distinguish seconds has all pauses in second 0.
    pub pauses: JvmPauses,
    frames: FrameTable,
    labels: LabelTable,
    label_text: Strings,
    trie: Trie,
    samples: HashMap<(NodeId, LabelsId, Event, u16), Weight, RandomState>,
    /// The path to the last stack: the next stack often begins with the same frames.
    last: Vec<(FrameId, NodeId)>,
    cut: u64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::new()
    }
}

impl Profile {
    /// An empty profile, with a limit of 16 Mi nodes.
    #[must_use]
    pub fn new() -> Profile {
        Profile::with_room(MAX_NODES)
    }

    /// An empty profile with a limit on the nodes of its stacks, of up to 16 bytes each; see
    /// [`Profile::truncated_stacks`].
    #[must_use]
    pub fn with_room(nodes: usize) -> Profile {
        Profile {
            accounts: BTreeMap::new(),
            span: TimeSpan::default(),
            pauses: JvmPauses::default(),
            frames: FrameTable::default(),
            labels: LabelTable::default(),
            label_text: Strings::default(),
            trie: Trie::new(nodes),
            samples: HashMap::default(),
            last: Vec::new(),
            cut: 0,
        }
    }

    /// The events that have samples or accounts; for an empty profile the default event, `cpu`.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.accounts.keys().copied().collect();
        events.extend(self.samples.keys().map(|(_, _, event, _)| *event));
        events.sort_unstable();
        events.dedup();
        if events.is_empty() { vec![Event::default()] } else { events }
    }

    /// Keeps only the event with this name.
    ///
    /// # Errors
    /// The profile has no such event.
    pub fn keep_event(&mut self, name: &str) -> Result<(), NoSuchEvent> {
        let name: &str = Event::parse(name).map_or(name, |event| event.name());
        let events = self.events();
        let Some(&kept) = events.iter().find(|event| event.name() == name) else {
            let known = events.iter().map(|event| event.name()).collect::<Vec<_>>().join(", ");
            return Err(NoSuchEvent { asked: name.to_owned(), known });
        };
        self.accounts.retain(|event, _| *event == kept);
        self.samples.retain(|(_, _, event, _), _| *event == kept);
        Ok(())
    }

    /// Where the samples of an event went.
    #[must_use]
    pub fn accounts(&self, event: Event) -> Accounts {
        self.accounts.get(&event).cloned().unwrap_or_default()
    }

    /// Accounts to be filled by the caller; `kept` must be the number of the event's samples.
    pub fn accounts_mut(&mut self, event: Event) -> &mut Accounts {
        self.accounts.entry(event).or_default()
    }

    /// Adds samples of the `cpu` event. Control characters in names are replaced; equal stacks with equal labels are
    /// summed.
    pub fn add(&mut self, labels: &Labels, frames_root_first: &[Arc<Frame>], count: u64, weight_ns: u64) {
        let labels = self.intern_labels(labels);
        let stack = self.intern_stack(frames_root_first);
        self.add_interned(stack, labels, Event::Cpu, Weight { count, value: weight_ns, ..Weight::default() });
    }

    /// The number of labels, for [`Profile::add_interned`].
    pub fn intern_labels(&mut self, labels: &Labels) -> LabelsId {
        if let Some(id) = self.labels.find(labels) {
            return id;
        }
        let Labels { pid, process, thread, tid, cgroup, container, state, span, resource } = labels;
        let mut text = |t: &Arc<str>| {
            let id = self.label_text.intern(t);
            Arc::clone(self.label_text.get(id))
        };
        let (process, thread) = (text(process), text(thread));
        let container = container.as_ref().map(|container| Arc::new(container.map(&mut text)));
        let resource = resource.as_ref().map(|resource| Arc::new(resource.map(text)));
        let labels = Labels {
            pid: *pid,
            process,
            thread,
            tid: *tid,
            cgroup: *cgroup,
            container,
            state: *state,
            span: *span,
            resource,
        };
        self.labels.insert(labels)
    }

    /// The number of a frame, for [`Profile::stack_of`].
    pub fn intern_frame(&mut self, frame: &Arc<Frame>) -> FrameId {
        self.frames.intern(frame)
    }

    /// The node of a stack, for [`Profile::add_interned`]. A caller that keeps the node needs no second lookup.
    pub fn intern_stack(&mut self, frames_root_first: &[Arc<Frame>]) -> NodeId {
        let frames: Vec<FrameId> = frames_root_first.iter().map(|frame| self.frames.intern(frame)).collect();
        self.stack_of(&frames)
    }

    /// The node of a stack of interned frames.
    ///
    /// When the profile is full (16 million nodes, 4 million frames) the stack is cut at the first frame that needs a
    /// new node; see [`Profile::truncated_stacks`].
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

    /// Adds to an interned stack and interned labels, in second 0.
    pub fn add_interned(&mut self, stack: NodeId, labels: LabelsId, event: Event, weight: Weight) {
        self.add_interned_in_second(0, stack, labels, event, weight);
    }

    /// Adds as [`Profile::add_interned`], in a second since the beginning of the profile; see
    /// [`ProfileView::by_second`](super::ProfileView::by_second).
    pub fn add_interned_in_second(
        &mut self,
        second: u16,
        stack: NodeId,
        labels: LabelsId,
        event: Event,
        weight: Weight,
    ) {
        match self.samples.entry((stack, labels, event, second)) {
            Entry::Occupied(mut sum) => *sum.get_mut() += weight,
            Entry::Vacant(free) if weight != Weight::default() => _ = free.insert(weight),
            Entry::Vacant(_) => {}
        }
    }

    /// Adds all of another profile, including its accounts. If its samples have another period, all count as at the shorter
    /// one: a sample of a lower rate counts for more.
    pub fn merge(&mut self, other: &Profile) {
        self.merge_later(other, 0);
    }

    /// Adds all of another profile, whose samples are `later` seconds later.
    pub fn merge_later(&mut self, other: &Profile, later: u16) {
        let other = self.align_rates(other);
        let Profile {
            accounts,
            span,
            pauses,
            frames,
            labels: _,
            label_text: _,
            trie,
            samples: _,
            last: _,
            cut,
        } = &*other;
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
            let second = sample.second.saturating_add(later);
            self.add_interned_in_second(
                second,
                to_node[sample.leaf.index()],
                labels,
                sample.event,
                sample.weight,
            );
        }
        for (event, accounts) in accounts {
            self.accounts_mut(*event).merge(accounts);
        }
        self.pauses.add_later(pauses, later);
        self.span.merge(*span);
        self.cut += cut;
    }

    /// Keeps only samples whose labels are wanted; the others count as filtered. Of JVMs it keeps the pauses of those
    /// that have wanted labels.
    pub fn retain_labels(&mut self, wanted: impl Fn(&Labels) -> bool) {
        let pids: HashSet<u32> =
            self.labels.iter().filter(|labels| wanted(labels)).map(|labels| labels.pid).collect();
        self.pauses.keep(|pid| pids.contains(&pid));
        self.retain(|_, labels| wanted(labels));
    }

    /// Removes samples for which `keep` is false; they count as filtered.
    pub fn retain(&mut self, mut keep: impl FnMut(NodeId, &Labels) -> bool) {
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

    /// Replaces the number of samples of each row of an event, in the order of [`Profile::samples`]. Returns the new sum.
    pub(super) fn recount(&mut self, event: Event, mut count: impl FnMut(u64) -> u64) -> u64 {
        let mut sum = Weight::default();
        for Sample { leaf, labels, event, second, weight } in self.samples_of(|of| of == event) {
            let count = count(weight.count).min(i64::MAX.unsigned_abs());
            let after = Weight { count, ..weight };
            sum += after;
            self.samples.insert((leaf, labels, event, second), after);
        }
        sum.count
    }

    /// A profile of some samples of this one, without accounts.
    #[must_use]
    pub fn extract(&self, samples: &[Sample]) -> Profile {
        let mut part = Profile::new();
        part.span = self.span;
        for sample in samples {
            let mut stack: Vec<Arc<Frame>> = self
                .trie
                .path_to_root(sample.leaf)
                .map(|node| Arc::new(self.frames.get(self.frame_of(node))))
                .collect();
            stack.reverse();
            let (stack, labels) = (part.intern_stack(&stack), part.intern_labels(self.labels(sample.labels)));
            part.add_interned_in_second(sample.second, stack, labels, sample.event, sample.weight);
        }
        part
    }

    /// All samples, in an order that depends only on what was added and in which order.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        self.samples_of(|_| true)
    }

    /// The samples of the wanted events, in the order of [`Profile::samples`].
    pub(super) fn samples_of(&self, wanted: impl Fn(Event) -> bool) -> Vec<Sample> {
        let own = self.samples.iter().filter(|((_, _, event, _), _)| wanted(*event));
        let mut all: Vec<Sample> = own
            .map(|(&(leaf, labels, event, second), &weight)| Sample { leaf, labels, event, second, weight })
            .collect();
        all.sort_unstable_by_key(|s| (s.leaf, s.labels, s.event, s.second));
        all
    }

    /// The stacks; a node's item is the number of a frame.
    #[must_use]
    pub fn trie(&self) -> &Trie {
        &self.trie
    }

    /// The frame of a node other than the root.
    #[must_use]
    pub fn frame_of(&self, node: NodeId) -> FrameId {
        FrameId::from_item(self.trie.item(node))
    }

    /// The interned frames of all stacks.
    #[must_use]
    pub fn frames(&self) -> &FrameTable {
        &self.frames
    }

    /// The labels with this number, from [`Sample::labels`].
    #[must_use]
    pub fn labels(&self, id: LabelsId) -> &Labels {
        self.labels.get(id)
    }

    /// How often a stack was cut because the profile was full; the report must show a number above 0.
    #[must_use]
    pub fn truncated_stacks(&self) -> u64 {
        self.cut
    }
}

/// A node of the trie with a number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSamples {
    /// The leaf of a stack, or a frame that stacks share.
    pub node: NodeId,
    /// Number of samples, not their weight.
    pub samples: u64,
}

/// Leaves with the number of their samples, over all labels; `samples` must be in the order of leaves.
pub(super) fn leaves(samples: &[Sample]) -> Vec<NodeSamples> {
    let mut leaves: Vec<NodeSamples> = Vec::with_capacity(samples.len());
    for Sample { leaf, weight, .. } in samples {
        match leaves.last_mut() {
            Some(last) if last.node == *leaf => last.samples += weight.count,
            _ => leaves.push(NodeSamples { node: *leaf, samples: weight.count }),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::{Frame, NodeId, Profile, Weight};
    use crate::profile::Kind;
    use crate::sample::Estimate;
    use std::sync::Arc;

    #[test]
    fn a_claim_of_any_number_of_bytes_fits_into_the_formats() {
        let claim = Weight { count: 1 << 62, value: u64::MAX, objects: Estimate::default() };
        let mut sum = claim;
        sum += claim;
        sum += claim;
        assert_eq!((sum.count, sum.value), (i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs()));
    }

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
                .path_to_root(node)
                .map(|n| profile.frames().get(profile.frame_of(n)).name.to_string())
                .collect();
            way.reverse();
            assert_eq!(way.concat(), *names);
        }
        assert_eq!(profile.trie().len(), 1 + "abcde".len() + 1 + "bcd".len() + 1);
    }
}
