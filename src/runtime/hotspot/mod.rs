//! JVMs: finds them, gets names of their code from the agent or from memory, and follows them to their end.

mod agent_rule;
mod inquiry;
mod java_threads;
mod jvm;
mod jvms;
mod lock_names;
mod stage;

pub(super) use stage::stage;
