//! Asks the worker for facts about a JVM's threads: their names, and the locks for which they wait.

use super::followed::FollowedKey;
use super::jvms::JvmNames;
use super::message::{JavaClassAt, WorkerRequest, WorkerResponse};
use crate::sample::ProcessId;

impl JvmNames {
    /// The JVM's names of its Java threads with these numbers in its own PID namespace; raw text, as far as readable.
    pub(crate) fn thread_names(&mut self, id: ProcessId, numbers: &[u32]) -> Vec<Option<String>> {
        let request = |jvm, numbers: &[_]| WorkerRequest::Threads { jvm, numbers: numbers.to_vec() };
        self.texts(FollowedKey::memory(id), numbers, request)
    }

    /// For each of these threads, the thread that has the monitor that it enters still; numbers as in `thread_names`.
    pub(crate) fn owners_of(&mut self, id: ProcessId, waiters: &[u32]) -> Vec<Option<u32>> {
        let request = |jvm, waiters: &[_]| WorkerRequest::Owners { jvm, waiters: waiters.to_vec() };
        let read = |response| match response {
            WorkerResponse::Owners(some) => Some(some),
            _ => None,
        };
        self.ask_in_batches(FollowedKey::memory(id), waiters, request, read)
    }

    /// The names of classes of locks, asked soon. A class that was perhaps not there at its time has no name.
    pub(crate) fn class_names(&mut self, id: ProcessId, lookups: &[JavaClassAt]) -> Vec<Option<String>> {
        let request = |jvm, asked: &[_]| WorkerRequest::Classes { jvm, lookups: asked.to_vec() };
        self.texts(FollowedKey::memory(id), lookups, request)
    }

    /// Sends `lookups` in requests, and returns a text for each, as far as there are some.
    fn texts<T>(
        &mut self,
        key: FollowedKey,
        lookups: &[T],
        request: impl Fn(u64, &[T]) -> WorkerRequest,
    ) -> Vec<Option<String>> {
        let read = |response| match response {
            WorkerResponse::Texts(some) => Some(some),
            _ => None,
        };
        self.ask_in_batches(key, lookups, request, read)
    }
}
