//! What sort of code a frame is, and all that goes by it: one table for all formats.

use serde::{Deserialize, Serialize};

/// What sort of code a frame is: colours, suffixes and filters go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// The process (or its name, where processes of one name are summed) at the root.
    Process,
    /// A thread, under its process.
    Thread,
    /// Kernel text, a module, or a BPF program.
    Kernel,
    /// C++ code.
    Cpp,
    /// Any other native code: C, Rust, Go, assembler.
    Native,
    /// A native function that was inlined into its caller.
    NativeInlined,
    /// A Java method that HotSpot compiled.
    Java,
    /// A Java method that was inlined into a compiled one.
    JavaInlined,
    /// Java in the interpreter.
    JavaInterpreted,
    /// Code that HotSpot generated and that is no method: stubs, adapters.
    JvmStub,
    /// Code of another runtime's JIT (Node, Python, .NET), named by its perf map.
    Jit,
    /// Not code: `[truncated]`, `[lost]` and their like.
    Marker,
    /// A frame whose name is not known; [`Frame::unknown`](super::Frame::unknown) says why.
    Unknown,
}

/// What wrote the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// No code: what stands in a stack for a process, a thread, or something that is missing.
    NotCode,
    /// The kernel.
    Kernel,
    /// A compiler of C++.
    Cpp,
    /// A compiler of another language, ahead of time.
    Native,
    /// Java's programmers.
    Java,
    /// A JVM, for its own use.
    Jvm,
    /// A runtime that keeps a perf map.
    Jit,
    /// Not known.
    Unknown,
}

/// How it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// By the CPU itself.
    Compiled,
    /// By an interpreter.
    Interpreted,
}

/// A row of the table of kinds.
#[derive(Clone, Copy, Debug)]
pub struct KindFacts {
    /// What wrote the code.
    pub origin: Origin,
    /// How it is run.
    pub tier: Tier,
    /// Whether it is a part of its caller's code.
    pub inlined: bool,
    /// How it is written as a function's `system_name` in pprof: files of any age are read by it.
    pub label: &'static str,
    /// Behind names in folded stacks: tools and people go by it.
    pub suffix: &'static str,
    /// The word beside its colour in pictures; none if it is not told.
    pub legend: Option<&'static str>,
    /// What OpenTelemetry calls it; none where it has no word.
    pub otel: Option<&'static str>,
    /// What the report calls it.
    pub language: &'static str,
    /// The middle of its colours, red, green, blue: green Java (lighter if interpreted), aqua inlined, yellow C++, orange
    /// kernel, red other native code, as users of async-profiler and flamegraph.pl know them; what is no code is grey or
    /// blue.
    pub colour: [u8; 3],
}

impl Kind {
    /// Every kind, in the order of legends.
    pub const ALL: [Kind; 13] = [
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
        Kind::Marker,
        Kind::Process,
        Kind::Thread,
    ];

    /// The kind's row.
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
            Kind::Marker => (O::NotCode, Compiled, false, "marker", "", "", "", "", 0xc8_c8_c8),
            Kind::Process => (O::NotCode, Compiled, false, "process", "", "", "", "", 0xb4_c4_dc),
            Kind::Thread => (O::NotCode, Compiled, false, "thread", "", "", "", "", 0xcb_d6_e6),
        };
        let told = |word: &'static str| (!word.is_empty()).then_some(word);
        let [_, red, green, blue] = u32::to_be_bytes(colour);
        let (legend, otel, colour) = (told(legend), told(otel), [red, green, blue]);
        KindFacts { origin, tier, inlined, label, suffix, legend, otel, language, colour }
    }

    /// What wrote the code.
    #[must_use]
    pub fn origin(self) -> Origin {
        self.facts().origin
    }

    /// The kind of a label of [`KindFacts::label`].
    #[must_use]
    pub fn labelled(label: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.facts().label == label)
    }

    /// The kind of what was inlined into `outer`, of which only that is known: native code, unless `outer` is of a language
    /// that has a kind for it.
    #[must_use]
    pub fn inlined_in(outer: Option<Kind>) -> Kind {
        let outer = outer.map(Kind::facts).filter(|outer| outer.tier == Tier::Compiled);
        let of_outer = outer.and_then(|outer| {
            Kind::ALL.into_iter().find(|kind| kind.facts().inlined && kind.origin() == outer.origin)
        });
        of_outer.unwrap_or(Kind::NativeInlined)
    }

    /// Whether a frame of this kind can be a part of the code of one of kind `outer`.
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

    #[test]
    fn every_kind_has_a_label_and_a_colour_of_its_own() {
        let labels: HashSet<_> = Kind::ALL.iter().map(|kind| kind.facts().label).collect();
        let colours: HashSet<_> = Kind::ALL.iter().map(|kind| kind.facts().colour).collect();
        assert_eq!((labels.len(), colours.len()), (Kind::ALL.len(), Kind::ALL.len()));
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
