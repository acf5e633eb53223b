//! Trace context: where profiled processes publish the traces and spans that their threads work for (OTEP 4947).
//!
//! The BPF program reads the contexts of threads; this room finds where each process has them. What a process publishes of
//! itself (OTEP 4719) is read here.

mod context_record;
mod places;
mod process_contexts;
mod stage;
mod variable;

pub(crate) use places::ContextPlaces;
pub(crate) use process_contexts::ProcessContexts;
