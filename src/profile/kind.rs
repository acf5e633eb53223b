//! The kind of a frame, and all that depends on it: one table for all formats.

use serde::{Deserialize, Serialize};

/// The sort of code of a frame; it determines colours, suffixes and filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A process at the root, or all processes of one name where they are summed.
    Process,
    /// A thread, under its process.
    Thread,
    /// Kernel text, a module, or a BPF program.
    Kernel,
    /// C++ code, recognised by its mangled symbol.
    Cpp,
    /// Any other native code: C, Rust, Go, assembler.
    Native,
    /// A native function that was inlined into its caller.
    NativeInlined,
    /// A Java method that HotSpot compiled.
    Java,
    /// A Java method that was inlined into a compiled one.
    JavaInlined,
    /// A Java method that HotSpot's interpreter ran.
    JavaInterpreted,
    /// Code that HotSpot generated and that is not a method: stubs, adapters.
    JvmStub,
    /// Code of another runtime's JIT (Node, Python, .NET), named by its perf map.
    Jit,
    /// Not code: a wait that a signal can end, or idleness: `[wait: lock]`, `[idle: thread pool]`.
    Wait,
    /// Not code: an uninterruptible wait: `[blocked: disk read]`.
    Blocked,
    /// Not code: a thread that could run and had no CPU: `[runnable]`, `[throttled]`.
    Queued,
    /// Not code: the class of an object that was allocated: `[new: java.lang.String]`.
    Object,
    /// Above the leaf of a wait: the stack that ended the wait, leaf first, after the frame `--`.
    Waker,
    /// Not code: `[truncated]`, `[lost]` and similar frames.
    Marker,
    /// A frame without a known name; [`Frame::unknown`](super::Frame::unknown) has the reason.
    Unknown,
}

/// Frames of [`Kind::Waker`] that stand for no code.
pub mod waker {
    /// Between a wait and its waker.
    pub const SEPARATOR: &str = "--";
    /// In place of the waker's process: an interrupt ended the wait.
    pub const INTERRUPT: &str = "[interrupt]";
    /// In place of the waker.
    pub const UNKNOWN: &str = "[waker unknown]";
    /// Names of all marker frames of wakers; `output/name.rs` reads them back.
    pub const MARKERS: [&str; 3] = [SEPARATOR, INTERRUPT, UNKNOWN];
}

/// The producer of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Not code: a frame that stands for a process, a thread, or a missing part of the stack.
    NotCode,
    /// The kernel, its modules, and BPF programs.
    Kernel,
    /// A C++ compiler, according to the mangled symbol.
    Cpp,
    /// An ahead-of-time compiler of another language.
    Native,
    /// A method of Java or another JVM language, however it is run.
    Java,
    /// HotSpot, for its own use.
    Jvm,
    /// A runtime that writes a perf map.
    Jit,
    /// Not known: frames of [`Kind::Unknown`].
    Unknown,
}

/// How the code is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// By the CPU itself.
    Compiled,
    /// By HotSpot's interpreter, from bytecode.
    Interpreted,
}

/// A row of the table of kinds.
#[derive(Clone, Copy, Debug)]
pub struct KindFacts {
    /// The producer of the code.
    pub origin: Origin,
    /// How it is run.
    pub tier: Tier,
    /// Whether the code is inlined into its caller's.
    pub inlined: bool,
    /// `system_name` of a function in pprof. Existing files are read by these labels, so they must not change.
    pub label: &'static str,
    /// Suffix of names in folded stacks. Other tools and users depend on it.
    pub suffix: &'static str,
    /// The word beside its colour in pictures; `None` if the legend leaves it out.
    pub legend: Option<&'static str>,
    /// OpenTelemetry's name for the kind; `None` if OpenTelemetry has no name for it.
    pub otel: Option<&'static str>,
    /// The report's name for the kind; empty for frames that are not code or unknown.
    pub language: &'static str,
    /// The middle of its range of colours, as red, green, blue. The colours follow async-profiler and flamegraph.pl:
    /// green Java (lighter if interpreted), aqua inlined, yellow C++, orange kernel, red other native code. Frames that
    /// are not code are grey or blue.
    pub colour: [u8; 3],
}

impl Kind {
    /// Every kind, in the order of legends.
    pub const ALL: [Kind; 18] = [
        Kind::Java,
        Kind::JavaInlined,
        Kind::JavaInterpreted,
        Kind::JvmStub,
        Kind::Jit,
        Kind::Cpp,
        Kind::Native,
        Kind::NativeInlined,
        Kind::Kernel,
        Kind::Unknown,
        Kind::Wait,
        Kind::Blocked,
        Kind::Queued,
        Kind::Object,
        Kind::Waker,
        Kind::Marker,
        Kind::Process,
        Kind::Thread,
    ];

    /// The row of this kind in the table that all formats use.
    #[must_use]
    #[rustfmt::skip]
    pub fn facts(self) -> KindFacts {
        use Origin as O;
        use Tier::{Compiled, Interpreted};
        let (origin, tier, inlined, label, suffix, legend, otel, language, colour) = match self {
            Kind::Java => (O::Java, Compiled, false, "java", "_[j]", "Java", "jvm", "Java", 0x62_d0_62),
            Kind::JavaInlined => (O::Java, Compiled, true, "java inlined", "_[i]", "inlined", "jvm", "Java", 0x5c_cb_cb),
            Kind::JavaInterpreted => (O::Java, Interpreted, false, "java interpreted", "_[0]", "interpreted", "jvm", "Java", 0xb4_e2_b4),
            Kind::JvmStub => (O::Jvm, Compiled, false, "jvm stub", "", "JVM stub", "jvm", "JVM", 0xd8_94_70),
            Kind::Jit => (O::Jit, Compiled, false, "jit", "_[j]", "JIT", "", "JIT", 0x9c_d8_5c),
            Kind::Cpp => (O::Cpp, Compiled, false, "c++", "", "C++", "native", "C++", 0xd8_cc_4e),
            Kind::Native => (O::Native, Compiled, false, "native", "", "native", "native", "native", 0xe8_74_68),
            Kind::NativeInlined => (O::Native, Compiled, true, "native inlined", "_[i]", "inlined", "native", "native", 0xf0_a0_96),
            Kind::Kernel => (O::Kernel, Compiled, false, "kernel", "_[k]", "kernel", "kernel", "kernel", 0xf0_9a_38),
            Kind::Unknown => (O::Unknown, Compiled, false, "unknown", "", "unknown", "", "", 0xc4_b0_cc),
            Kind::Wait => (O::NotCode, Compiled, false, "wait", "", "sleeping", "", "", 0x7f_a8_e8),
            Kind::Blocked => (O::NotCode, Compiled, false, "blocked", "", "blocked", "", "", 0x6c_5c_c8),
            Kind::Queued => (O::NotCode, Compiled, false, "queued", "", "no CPU", "", "", 0xe0_6c_b8),
            Kind::Object => (O::NotCode, Compiled, false, "object", "", "object", "", "", 0xa8_8c_6c),
            Kind::Waker => (O::NotCode, Compiled, false, "waker", "_[w]", "waker", "", "", 0xd9_c8_a8),
            Kind::Marker => (O::NotCode, Compiled, false, "marker", "", "", "", "", 0xc8_c8_c8),
            Kind::Process => (O::NotCode, Compiled, false, "process", "", "", "", "", 0xb4_c4_dc),
            Kind::Thread => (O::NotCode, Compiled, false, "thread", "", "", "", "", 0xcb_d6_e6),
        };
        let non_empty = |word: &'static str| (!word.is_empty()).then_some(word);
        let [_, red, green, blue] = u32::to_be_bytes(colour);
        let (legend, otel, colour) = (non_empty(legend), non_empty(otel), [red, green, blue]);
        KindFacts { origin, tier, inlined, label, suffix, legend, otel, language, colour }
    }

    /// Whether a frame of this kind says why a thread had no CPU, or who woke it: it stands above the code that waited.
    #[must_use]
    pub fn is_wait(self) -> bool {
        matches!(self, Kind::Wait | Kind::Blocked | Kind::Queued | Kind::Waker)
    }

    /// Whether a frame of this kind is no code, and stands above the code of its sample: why the thread had no CPU, who
    /// woke it, or what it allocated.
    #[must_use]
    pub fn is_above_code(self) -> bool {
        self.is_wait() || self == Kind::Object
    }

    /// The producer of the code.
    #[must_use]
    pub fn origin(self) -> Origin {
        self.facts().origin
    }

    /// The kind with this [`KindFacts::label`].
    #[must_use]
    pub fn labelled(label: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.facts().label == label)
    }

    /// The kind of code that was inlined into `outer`: native code, unless the language of `outer` has its own inlined
    /// kind.
    #[must_use]
    pub fn inlined_in(outer: Option<Kind>) -> Kind {
        let outer = outer.map(Kind::facts).filter(|outer| outer.tier == Tier::Compiled);
        let of_outer = outer.and_then(|outer| {
            Kind::ALL.into_iter().find(|kind| kind.facts().inlined && kind.origin() == outer.origin)
        });
        of_outer.unwrap_or(Kind::NativeInlined)
    }

    /// Whether a frame of this kind can be inlined into one of kind `outer`.
    #[must_use]
    pub fn is_inlined_into(self, outer: Kind) -> bool {
        let (own, outer) = (self.facts(), outer.facts());
        let alike = match own.origin {
            Origin::Native => matches!(outer.origin, Origin::Native | Origin::Cpp | Origin::Kernel),
            own => own == outer.origin,
        };
        own.inlined && alike && outer.tier == Tier::Compiled
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Kind;
    use crate::variants;

    #[test]
    fn every_kind_has_a_label_and_a_colour_of_its_own() {
        let labels: HashSet<_> = Kind::ALL.iter().map(|kind| kind.facts().label).collect();
        let colours: HashSet<_> = Kind::ALL.iter().map(|kind| kind.facts().colour).collect();
        assert_eq!((labels.len(), colours.len()), (Kind::ALL.len(), Kind::ALL.len()));
        let listed: HashSet<_> = Kind::ALL.iter().map(variants::of).collect();
        assert_eq!(variants::all::<Kind>().into_iter().collect::<HashSet<_>>(), listed);
        for kind in Kind::ALL {
            assert_eq!(Kind::labelled(kind.facts().label), Some(kind));
        }
        assert_eq!(Kind::labelled(""), None);
    }

    #[test]
    fn what_is_inlined_is_of_its_callers_language() {
        assert_eq!(Kind::inlined_in(Some(Kind::JavaInlined)), Kind::JavaInlined);
        assert_eq!(Kind::inlined_in(Some(Kind::JavaInterpreted)), Kind::NativeInlined);
        for outer in [Some(Kind::Cpp), Some(Kind::Kernel), Some(Kind::Jit), None] {
            assert_eq!(Kind::inlined_in(outer), Kind::NativeInlined);
        }
        let into = |inner: Kind| {
            Kind::ALL.into_iter().filter(|outer| inner.is_inlined_into(*outer)).collect::<Vec<_>>()
        };
        assert_eq!(into(Kind::JavaInlined), [Kind::Java, Kind::JavaInlined]);
        assert_eq!(into(Kind::NativeInlined), [Kind::Cpp, Kind::Native, Kind::NativeInlined, Kind::Kernel]);
        assert!(into(Kind::Java).is_empty() && into(Kind::Kernel).is_empty());
    }
}
