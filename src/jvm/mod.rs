//! Java: what a JVM compiled, where, and what it is called.

pub mod code;
pub mod names;
