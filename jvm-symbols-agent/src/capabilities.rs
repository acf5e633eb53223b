//! What a JVM TI environment may do.

/// Capabilities that the JVM must give before it sends events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capabilities {
    /// Source file names, line numbers, and events of compiled methods.
    Code,
    /// Samples of allocations. Only one environment of a JVM can have this capability.
    Allocations,
}

impl Capabilities {
    /// The bits of `jvmtiCapabilities`, 16 bytes of flags.
    pub(crate) fn bits(self) -> [u32; 4] {
        const SOURCE_FILE_NAME: u32 = 1 << 11;
        const LINE_NUMBERS: u32 = 1 << 12;
        const COMPILED_METHOD_LOAD: u32 = 1 << 27;
        const SAMPLED_OBJECT_ALLOC: u32 = 1 << (43 - 32);
        match self {
            Capabilities::Code => [SOURCE_FILE_NAME | LINE_NUMBERS | COMPILED_METHOD_LOAD, 0, 0, 0],
            Capabilities::Allocations => [0, SAMPLED_OBJECT_ALLOC, 0, 0],
        }
    }
}
