//! JVMs: found, asked for the names of their code by the agent or read out of their memory, followed to their end.

mod agent_rule;
mod inquiry;
pub(crate) mod java_threads;
mod jvm;
pub(crate) mod jvms;
pub(crate) mod tally;
pub(crate) mod thread_name;
