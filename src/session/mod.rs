//! A session: the order of the stages, the beat, the signals. It wires; it holds no algorithm of any stage.

mod idle;
pub mod launch;
mod sampler;
mod thread_name;
