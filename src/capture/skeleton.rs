//! The BPF object inside this binary, with a field for each program and map: generated from `bpf/profiler.bpf.c`.

#[allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::panic,
    clippy::wildcard_imports,
    unsafe_code,
    unreachable_pub,
    missing_docs,
    rust_2018_idioms,
    unsafe_op_in_unsafe_fn
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/profiler.skel.rs"));
}

pub(super) use generated::{OpenProfilerSkel, ProfilerSkel, ProfilerSkelBuilder, types};
