//! The broker's part of thread-local variables.

use std::os::fd::AsFd as _;

use super::Symbolizer;
use super::child::WorkerLoss;
use super::message::{WorkerRequest, WorkerResponse};
use super::place::FileHandle;
use super::thread_local::ThreadLocal;

/// A file could not be asked for a variable now; a later attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVariableYet;

impl Symbolizer {
    /// The exported thread-local variable of this name in a file, found by the worker. A file that is not readable as ELF
    /// has none.
    ///
    /// # Errors
    /// The file or a worker is not available.
    pub fn thread_local(
        &mut self,
        file: &FileHandle,
        name: &str,
    ) -> Result<Option<ThreadLocal>, NoVariableYet> {
        let fd = file.fd().map_err(|_| NoVariableYet)?;
        let request = WorkerRequest::ThreadLocal { name: name.to_owned() };
        let mut answer = self.child.ask(&request, &[fd.as_fd()]);
        if answer.as_ref().is_err_and(|how| *how == WorkerLoss::Died) {
            // An earlier request may have killed the worker.
            self.files.lost += 1;
            answer = self.child.ask(&request, &[fd.as_fd()]);
        }
        match answer {
            Ok(WorkerResponse::ThreadLocal(found)) => Ok(found),
            Ok(_) => Ok(None),
            Err(WorkerLoss::NotAsked) => Err(NoVariableYet),
            Err(_) => {
                self.files.lost += 1;
                self.files.poisoned += 1;
                Ok(None)
            }
        }
    }
}
