//! Frame types of JFR.

use crate::profile::Kind;

/// How the code of a frame was run: one of JFR's own frame types. IntelliJ splits a method's frames where a file has
/// types of its own (issue 1714 of async-profiler), so code of the kernel and of C++ is native here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameType {
    Interpreted = 1,
    JitCompiled = 2,
    Inlined = 3,
    Native = 4,
}

impl FrameType {
    pub(super) const ALL: [FrameType; 4] =
        [FrameType::Interpreted, FrameType::JitCompiled, FrameType::Inlined, FrameType::Native];

    /// The name in JFR.
    pub(super) fn name(self) -> &'static str {
        match self {
            FrameType::Interpreted => "Interpreted",
            FrameType::JitCompiled => "JIT compiled",
            FrameType::Inlined => "Inlined",
            FrameType::Native => "Native",
        }
    }

    /// The type of a kind.
    pub(super) fn of(kind: Kind) -> FrameType {
        match kind {
            Kind::Java | Kind::Jit => FrameType::JitCompiled,
            Kind::JavaInlined | Kind::NativeInlined => FrameType::Inlined,
            Kind::JavaInterpreted => FrameType::Interpreted,
            _ => FrameType::Native,
        }
    }
}
