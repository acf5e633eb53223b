//! JVMs: found, asked for the names of their code by the agent or read out of their memory, followed to their end.

mod agent_rule;
mod inquiry;
mod java_threads;
mod jvm;
mod jvms;
mod stage;

pub(super) use stage::stage;
