//! The table of lines of source.

use std::cmp::Reverse;
use std::sync::Arc;

use super::frames::FrameId;
use super::samples::NodeSamples;
use super::tables::{FunctionRows, Sums};
use super::view::ProfileView;
use crate::sample::Event;

/// A line of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRow {
    /// The line's function, as in [`FunctionRow::symbol`](super::tables::FunctionRow::symbol).
    pub symbol: u32,
    /// Source file, if known.
    pub file: Option<Arc<str>>,
    /// Source line; 0 if unknown.
    pub line: u32,
    /// Bytecode index; Java only.
    pub bci: Option<u32>,
    /// Samples whose leaf is the line.
    pub itself: u64,
}

impl ProfileView<'_> {
    /// Lines with self samples, the most first. A function without line information has one row. The leaf of CPU time
    /// ran, so only its line counts. Other events happen in the kernel or the JVM, on behalf of the innermost line of the
    /// program.
    #[must_use]
    pub fn lines(&self) -> Vec<LineRow> {
        let FunctionRows { row_of_symbol, rows } = self.function_rows();
        let mut sums = Sums::default();
        for NodeSamples { node: leaf, samples: count } in self.nonempty_leaves() {
            let mut up = self.code_path_from_leaf(leaf).map(|node| self.frame_of(node));
            let has_line = |id: &FrameId| self.frames().get(*id).line > 0;
            let line = if self.event() == Event::Cpu { None } else { up.find(has_line) };
            let id = line.unwrap_or_else(|| self.frame_of(leaf));
            let Some(row) = row_of_symbol[self.frames().symbol_of(id) as usize] else { continue };
            let frame = self.frames().get(id);
            sums.add((rows[row].symbol, frame.file, frame.line, frame.bci), count);
        }
        let mut lines: Vec<LineRow> = sums
            .all()
            .map(|((symbol, file, line, bci), itself)| LineRow { symbol, file, line, bci, itself })
            .collect();
        lines.sort_by(|a, b| {
            let order = |r: &LineRow| (Reverse(r.itself), r.symbol, r.line, r.bci);
            order(a).cmp(&order(b)).then_with(|| a.file.cmp(&b.file))
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::samples::Weight;
    use crate::profile::{Frame, Kind, Labels, Profile};

    fn named(kind: Kind, name: &str) -> Arc<Frame> {
        Arc::new(Frame::named(kind, name))
    }

    #[test]
    fn lines_are_distinct_and_kernel_leaves_have_none() {
        let mut p = Profile::new();
        let at = |line, bci| {
            Arc::new(Frame {
                line,
                bci: Some(bci),
                file: Some("A.java".into()),
                ..Frame::named(Kind::Java, "A.f")
            })
        };
        let labels = Labels::default();
        p.add(&labels, &[at(7, 1)], 2, 0);
        p.add(&labels, &[at(8, 5)], 4, 0);
        p.add(&labels, &[at(8, 5), named(Kind::Kernel, "tick")], 1, 0);
        let lines: Vec<_> =
            p.of_event(Event::Cpu).lines().iter().map(|r| (r.line, r.bci, r.itself)).collect();
        assert_eq!(lines, [(8, Some(5), 4), (7, Some(1), 2), (0, None, 1)]);
    }

    #[test]
    fn what_happens_below_the_program_has_the_line_of_the_program() {
        let mut p = Profile::new();
        let at = |line, name: &str| Arc::new(Frame { line, ..Frame::named(Kind::Java, name) });
        let labels = p.intern_labels(&Labels::default());
        let kernel = named(Kind::Kernel, "futex_wait");
        let wait = named(Kind::Wait, "[wait: monitor]");
        let stack = p.intern_stack(&[at(3, "A.run"), at(8, "A.f"), kernel.clone(), wait]);
        p.add_interned_in_second(
            0,
            stack,
            labels,
            Event::Wait,
            Weight { count: 5, value: 5, ..Weight::default() },
        );
        let unknown = p.intern_stack(&[kernel]);
        p.add_interned_in_second(
            0,
            unknown,
            labels,
            Event::Wait,
            Weight { count: 2, value: 2, ..Weight::default() },
        );
        let lines: Vec<_> =
            p.of_event(Event::Wait).lines().iter().map(|row| (row.line, row.itself)).collect();
        assert_eq!(lines, [(8, 5), (0, 2)]);
    }
}
