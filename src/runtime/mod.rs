//! Runtimes whose code is no file's: how they are found, what describes their code to the walker, and where their names
//! come from.

mod delay;
pub(crate) mod hotspot;

pub(crate) use delay::Delay;
