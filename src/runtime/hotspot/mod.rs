//! JVMs: finds them, gets names of their code from the agent or from memory, and follows them to their end.

mod agent_probes;
mod agent_rule;
mod alloc_tracer;
mod allocations;
mod java_threads;
mod jvm;
mod jvm_entries;
mod jvm_reports;
mod jvm_setup;
mod jvms;
mod lock_names;
mod no_allocations;
mod pauses;
mod stage;

pub(super) use allocations::stage as allocations;
pub(super) use stage::stage;
