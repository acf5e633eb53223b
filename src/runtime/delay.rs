//! Stacks that wait for what their runtime has to say.

/// Which processes' stacks wait for what their JVM has to say.
pub(crate) trait Delay {
    /// Whether the process is a JVM whose agent's log is or may be followed.
    fn is_jvm(&self, tgid: u32) -> bool;
    /// Whether it is not yet known if it can be followed.
    fn is_open(&self, tgid: u32) -> bool;
}
