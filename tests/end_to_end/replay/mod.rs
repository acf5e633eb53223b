//! The unwinder's own code in user space, without root, on recordings of programs that ran one instruction at a time.

mod hostile;
mod java;
mod native;
mod recording;
