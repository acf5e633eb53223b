//! The broker's part of process contexts.

use super::Symbolizer;
use super::message::{WorkerRequest, WorkerResponse};
use crate::profile::resource::ResourceAttributes;

impl Symbolizer {
    /// The attributes in the payload of a process context, decoded by the worker. `None` without an answer of a worker,
    /// which the payload may have killed.
    pub fn resource(&mut self, payload: Vec<u8>) -> Option<ResourceAttributes> {
        match self.child.ask(&WorkerRequest::ProcessContext { payload }, &[]) {
            Ok(WorkerResponse::ProcessContext(resource)) => Some(resource),
            _ => None,
        }
    }
}
