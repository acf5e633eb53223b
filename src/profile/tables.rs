//! Flat tables of a profile: functions and processes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::frame::UnknownReason;
use super::frames::FrameId;
use super::kind::{Kind, Origin};
use super::samples::NodeSamples;
use super::strings::StrId;
use super::trie::NodeId;
use super::view::ProfileView;

/// A function; its compiled, inlined and interpreted forms are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRow {
    /// An index into the profile's symbols: the first symbol of the function.
    pub symbol: u32,
    /// Samples whose leaf is the function.
    pub itself: u64,
    /// Samples with the function anywhere in their stack; recursion counts once.
    pub total: u64,
    /// Whether the function was inlined into its caller in most samples: in those of `itself`, or of `total` where
    /// `itself` is 0.
    pub inlined: bool,
}

/// The functions of a profile.
pub(super) struct FunctionRows {
    /// By symbol: the index of its row; `None` if the symbol is not a function.
    pub(super) row_of_symbol: Vec<Option<usize>>,
    /// One row for each function.
    pub(super) rows: Vec<FunctionRow>,
}

/// Samples by the code that ran: the leaf. Leaves that are not code, such as `[idle]`, are in neither number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafSides {
    /// Samples whose leaf is code of the kernel.
    pub kernel: u64,
    /// Samples whose leaf is code of a process.
    pub user: u64,
}

/// Processes that have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    /// The group leader's comm.
    pub name: Arc<str>,
    /// Ids of these processes in ascending order, in the initial pid namespace.
    pub pids: Vec<u32>,
    /// Samples of these processes.
    pub samples: u64,
}

/// Kinds of one family with equal names are one function. C++ and native are one family, because only the look of a
/// name distinguishes them. `None`: the frame is not code.
#[must_use]
pub fn family(kind: Kind) -> Option<Origin> {
    match kind.origin() {
        Origin::NotCode => None,
        Origin::Cpp => Some(Origin::Native),
        origin => Some(origin),
    }
}

/// Java frames of a process, each counted as often as it was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JavaFrameCounts {
    /// Frames with the name of a method.
    pub named: u64,
    /// Frames without a name because the process had ended. A few of them may be native code.
    pub gone: u64,
}

/// Samples of a row of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowSamples {
    pub(super) itself: u64,
    pub(super) total: u64,
    /// Of `itself` and `total`, the samples in which the row's frame nearest to the leaf is inlined.
    inlined_itself: u64,
    inlined_total: u64,
}

impl RowSamples {
    fn are_mostly_inlined(&self) -> bool {
        let RowSamples { itself, total, inlined_itself, inlined_total } = *self;
        if itself > 0 { inlined_itself > itself / 2 } else { inlined_total > total / 2 }
    }
}

impl ProfileView<'_> {
    /// Functions, those with the most self samples first.
    #[must_use]
    pub fn functions(&self) -> Vec<FunctionRow> {
        let FunctionRows { row_of_symbol, mut rows } = self.function_rows();
        let row_of = |frame| row_of_symbol[self.frames().symbol_of(frame) as usize];
        let samples = self.row_samples(rows.len(), row_of);
        for (row, samples) in rows.iter_mut().zip(samples) {
            (row.itself, row.total, row.inlined) =
                (samples.itself, samples.total, samples.are_mostly_inlined());
        }
        rows.retain(|r| r.total > 0);
        rows.sort_by_key(|r| (Reverse(r.itself), Reverse(r.total), r.symbol));
        rows
    }

    /// The nodes of a stack, leaf first, without a leaf that only says why the thread waited or what it allocated, and
    /// without its waker.
    pub(crate) fn code_path_from_leaf(&self, leaf: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.trie()
            .path_to_root(leaf)
            .skip_while(|node| self.frames().kind(self.frame_of(*node)).is_above_code())
    }

    /// The frames at a leaf that say why the thread waited, without its waker.
    pub(crate) fn wait_frames_at_leaf(&self, leaf: NodeId) -> impl Iterator<Item = FrameId> + '_ {
        let kind = |frame: &FrameId| self.frames().kind(*frame);
        let frames = self.trie().path_to_root(leaf).map(|node| self.frame_of(node));
        frames.take_while(move |frame| kind(frame).is_wait()).filter(move |frame| kind(frame) != Kind::Waker)
    }

    /// Counts the samples of `rows` rows; `row_of` gives the row of a frame, if the frame has one.
    pub(super) fn row_samples(
        &self,
        rows: usize,
        row_of: impl Fn(FrameId) -> Option<usize>,
    ) -> Vec<RowSamples> {
        let mut samples = vec![RowSamples::default(); rows];
        // For each row, the leaf of the last stack that contains it: a row counts once for each stack.
        let mut seen = vec![usize::MAX; rows];
        let frames = self.frames();
        let is_inlined: Vec<bool> =
            frames.symbols().iter().map(|symbol| symbol.kind.facts().inlined).collect();
        for NodeSamples { node: leaf, samples: count } in self.nonempty_leaves() {
            for (up, node) in self.code_path_from_leaf(leaf).enumerate() {
                let frame = self.frame_of(node);
                let Some(row) = row_of(frame) else { continue };
                if seen[row] == leaf.index() {
                    continue;
                }
                seen[row] = leaf.index();
                let of_inlined = if is_inlined[frames.symbol_of(frame) as usize] { count } else { 0 };
                let samples = &mut samples[row];
                samples.total += count;
                samples.inlined_total += of_inlined;
                if up == 0 {
                    samples.itself += count;
                    samples.inlined_itself += of_inlined;
                }
            }
        }
        samples
    }

    /// How many samples have a leaf in the kernel, and how many in user code.
    #[must_use]
    pub fn leaf_sides(&self) -> LeafSides {
        let frames = self.frames();
        let mut sides = LeafSides::default();
        for NodeSamples { node: leaf, samples: count } in self.nonempty_leaves() {
            let symbol = &frames.symbols()[frames.symbol_of(self.frame_of(leaf)) as usize];
            match symbol.kind.origin() {
                Origin::NotCode => {}
                Origin::Kernel => sides.kernel += count,
                _ if symbol.unknown.is_some_and(UnknownReason::is_of_kernel) => sides.kernel += count,
                _ => sides.user += count,
            }
        }
        sides
    }

    /// The Java frames of a process.
    #[must_use]
    pub fn java_frames(&self, pid: u32) -> JavaFrameCounts {
        let frames = self.frames();
        let mut found = JavaFrameCounts::default();
        for sample in self.samples().iter().filter(|sample| self.labels(sample.labels).pid == pid) {
            for node in self.trie().path_to_root(sample.leaf) {
                let symbol = &frames.symbols()[frames.symbol_of(self.frame_of(node)) as usize];
                match symbol.kind.origin() {
                    Origin::Java => found.named += sample.weight.count,
                    _ if symbol.unknown == Some(UnknownReason::ProcessGone) => {
                        found.gone += sample.weight.count;
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// One row for each function, without samples.
    pub(super) fn function_rows(&self) -> FunctionRows {
        let mut ids: HashMap<(Origin, StrId, Option<UnknownReason>), usize> = HashMap::new();
        let mut rows = Vec::new();
        let symbols = self.frames().symbols().iter().enumerate();
        let row_of_symbol = symbols.map(|(at, symbol)| {
            let key = (family(symbol.kind)?, symbol.name, symbol.unknown);
            Some(*ids.entry(key).or_insert_with(|| {
                rows.push(FunctionRow { symbol: at as u32, itself: 0, total: 0, inlined: false });
                rows.len() - 1
            }))
        });
        FunctionRows { row_of_symbol: row_of_symbol.collect(), rows }
    }

    /// Leaves with the number of their samples, without samples that have no frames.
    pub(super) fn nonempty_leaves(&self) -> impl Iterator<Item = NodeSamples> + use<> {
        self.leaves().into_iter().filter(|leaf| leaf.node != NodeId::ROOT)
    }

    /// Processes by name, those with the most samples first.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessRow> {
        let mut by_name: BTreeMap<Arc<str>, (Vec<u32>, u64)> = BTreeMap::new();
        for sample in self.samples() {
            let labels = self.labels(sample.labels);
            let (pids, samples) = by_name.entry(Arc::clone(&labels.process)).or_default();
            pids.push(labels.pid);
            *samples += sample.weight.count;
        }
        let mut rows: Vec<ProcessRow> = by_name
            .into_iter()
            .map(|(name, (mut pids, samples))| {
                pids.sort_unstable();
                pids.dedup();
                ProcessRow { name, pids, samples }
            })
            .collect();
        rows.sort_by_key(|r| Reverse(r.samples));
        rows
    }
}

pub(super) struct Sums<K>(HashMap<K, u64>);

impl<K> Default for Sums<K> {
    fn default() -> Sums<K> {
        Sums(HashMap::new())
    }
}

impl<K: Eq + Hash> Sums<K> {
    pub(super) fn add(&mut self, key: K, n: u64) {
        *self.0.entry(key).or_default() += n;
    }

    pub(super) fn of(&self, key: &K) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = (K, u64)> + use<'_, K> {
        self.0.drain()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::profile::{Frame, Kind, Labels, Profile, UnknownReason};
    use crate::sample::Event;

    fn named(kind: Kind, name: &str) -> Arc<Frame> {
        Arc::new(Frame::named(kind, name))
    }

    #[test]
    fn recursion_counts_once_and_a_method_is_one_however_compiled() {
        let mut p = Profile::new();
        let labels = Labels::default();
        let (process, f) = (named(Kind::Process, "java"), named(Kind::Java, "A.f"));
        let inlined = named(Kind::JavaInlined, "A.f");
        let g = named(Kind::JavaInterpreted, "A.g");
        let stacks =
            [(vec![&process, &f, &inlined, &f], 3), (vec![&process, &g, &f, &g], 2), (vec![&process, &g], 1)];
        for (stack, n) in stacks {
            p.add(&labels, &stack.into_iter().cloned().collect::<Vec<_>>(), n, 0);
        }
        let rows = p.of_event(Event::Cpu).functions();
        let shown: Vec<_> = rows
            .iter()
            .map(|r| (&**p.frames().name(&p.frames().symbols()[r.symbol as usize]), r.itself, r.total))
            .collect();
        assert_eq!(shown, [("A.f", 3, 5), ("A.g", 3, 3)]);
    }

    #[test]
    fn a_row_is_inlined_if_most_of_its_samples_are() {
        let mut p = Profile::new();
        let labels = Labels::default();
        let [outer, f, f_inlined, g, g_inlined] = [
            (Kind::Java, "A.outer"),
            (Kind::Java, "A.f"),
            (Kind::JavaInlined, "A.f"),
            (Kind::Native, "g"),
            (Kind::NativeInlined, "g"),
        ]
        .map(|(kind, name)| named(kind, name));
        let stacks = [
            (vec![&outer, &f_inlined], 3),
            (vec![&outer, &f], 2),
            (vec![&f, &outer, &g, &g_inlined], 4),
            (vec![&g], 4),
            (vec![&outer, &g_inlined, &f], 0),
        ];
        for (stack, n) in stacks {
            p.add(&labels, &stack.into_iter().cloned().collect::<Vec<_>>(), n, 0);
        }
        let rows = p.of_event(Event::Cpu).functions();
        let found: Vec<_> = rows
            .iter()
            .map(|r| (&**p.frames().name(&p.frames().symbols()[r.symbol as usize]), r.itself, r.inlined))
            .collect();
        assert_eq!(found, [("g", 8, false), ("A.f", 5, true), ("A.outer", 0, false)]);
    }

    #[test]
    fn leaves_are_of_the_kernel_or_of_processes() {
        let mut p = Profile::new();
        let labels = Labels::default();
        let (process, work) = (named(Kind::Process, "x"), named(Kind::Native, "work"));
        let hidden = Arc::new(Frame::unknown(UnknownReason::NotKernelText, None, 9));
        let nameless = Arc::new(Frame::unknown(UnknownReason::NotMapped, None, 9));
        for (leaf, n) in [
            (named(Kind::Kernel, "read"), 1),
            (hidden, 2),
            (nameless, 4),
            (work.clone(), 8),
            (named(Kind::Marker, "[idle]"), 16),
        ] {
            p.add(&labels, &[process.clone(), work.clone(), leaf], n, 0);
        }
        assert_eq!(p.of_event(Event::Cpu).leaf_sides(), super::LeafSides { kernel: 3, user: 12 });
    }

    #[test]
    fn processes_of_a_name_are_one_row() {
        let mut p = Profile::new();
        for (pid, process, n) in [(5, "cc1", 2), (4, "cc1", 2), (9, "make", 3), (4, "cc1", 1)] {
            let labels = Labels { pid, process: process.into(), ..Labels::default() };
            p.add(&labels, &[named(Kind::Native, "main")], n, 0);
        }
        let shown: Vec<_> = p
            .of_event(Event::Cpu)
            .processes()
            .into_iter()
            .map(|r| (r.name.to_string(), r.pids, r.samples))
            .collect();
        assert_eq!(shown, [("cc1".to_owned(), vec![4, 5], 5), ("make".to_owned(), vec![9], 3)]);
    }
}
