//! Stacks as those of a large program, for benchmarks.

use std::sync::Arc;

use jbpf_prof::profile::{Frame, Kind};

const FUNCTIONS: u64 = 12_000;

/// A random walk in a call graph like that of real programs: each function calls a few others, the first ones most
/// often.
pub(crate) struct Walk {
    state: u64,
    frames: Vec<Arc<Frame>>,
}

impl Walk {
    pub(crate) fn new() -> Walk {
        let frames = (0..FUNCTIONS * 3).map(|i| {
            let function = i / 3;
            let kind = [Kind::Java, Kind::JavaInlined, Kind::Cpp, Kind::Kernel][function as usize % 4];
            let name = format!(
                "org.example.project.module{}.Class{}.method{function}",
                function % 20,
                function % 700
            );
            Arc::new(Frame {
                line: (i % 997) as u32,
                address: i * 16,
                file: Some(format!("Class{}.java", function % 700).into()),
                ..Frame::named(kind, name)
            })
        });
        Walk { state: 1, frames: frames.collect() }
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    pub(crate) fn stack(&mut self) -> Vec<Arc<Frame>> {
        let depth = 40 + self.below(41);
        let mut at = self.below(4);
        (0..depth)
            .map(|level| {
                // A function has more callees the further it is from the root.
                let ways = if level < 30 { 1 + u64::from(self.below(16) == 0) } else { 3 };
                at = (at * 5 + 1 + self.below(ways)) % FUNCTIONS;
                let line = self.below(if level < 30 { 1 } else { 2 });
                Arc::clone(&self.frames[(at * 3 + line) as usize])
            })
            .collect()
    }
}
