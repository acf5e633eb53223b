//! A limit to how long anything that another process can hold up may take.
//!
//! `/proc/PID/maps` waits for the process's memory lock, and a file on a user-space file system answers when its
//! owner likes: such calls run on a thread that is given up when it takes too long. A thread that hangs in the
//! kernel cannot be ended; so a limited number is given up, and then nothing is tried until one returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// As many calls may hang at once.
const MAX_STUCK: usize = 32;
/// Stack of a helper thread, bytes: it parses lines and opens files.
const STACK: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// Runs calls that may hang.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    worker: Option<Sender<Job>>,
    stuck: Arc<AtomicUsize>,
}

/// The call did not end in time, or too many before it have not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("took too long")]
pub struct OutOfPatience;

impl Patience {
    /// A call may take as long as `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> Patience {
        Patience { limit, worker: None, stuck: Arc::default() }
    }

    /// Runs `job` on the helper thread and waits for it.
    ///
    /// # Errors
    /// [`OutOfPatience`]; the job's result is then dropped when it comes.
    pub fn run<T: Send + 'static>(
        &mut self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, OutOfPatience> {
        if self.stuck() >= MAX_STUCK {
            return Err(OutOfPatience);
        }
        let (answer, answered) = sync_channel(1);
        let job: Job = Box::new(move || drop(answer.send(job())));
        if self.worker.is_none() {
            self.worker = Some(start_worker()?);
        }
        let Some(worker) = &self.worker else { return Err(OutOfPatience) };
        let _ = worker.send(job);
        // The more hang, the less patience is left for the next one: together they cost a few limits, not dozens.
        let limit = self.limit / u32::try_from(1 + self.stuck()).unwrap_or(u32::MAX);
        if let Ok(result) = answered.recv_timeout(limit) {
            return Ok(result);
        }
        // The thread is left alone: it leaves when its job has ended and it finds its queue closed.
        self.stuck.fetch_add(1, Ordering::Relaxed);
        let stuck = Arc::clone(&self.stuck);
        if let Some(worker) = self.worker.take() {
            let _ = worker.send(Box::new(move || {
                stuck.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        Err(OutOfPatience)
    }

    /// How many calls hang now.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.stuck.load(Ordering::Relaxed)
    }
}

fn start_worker() -> Result<Sender<Job>, OutOfPatience> {
    let (jobs, queue) = channel::<Job>();
    let run = move || queue.into_iter().for_each(|job| job());
    thread::Builder::new()
        .name("jbpf-patience".into())
        .stack_size(STACK)
        .spawn(run)
        .map_err(|_| OutOfPatience)?;
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_call_is_given_up_and_the_next_one_runs() {
        let mut patience = Patience::new(Duration::from_millis(20));
        let (release, held) = channel::<()>();
        assert_eq!(patience.run(move || held.recv().is_ok()), Err(OutOfPatience));
        assert_eq!(patience.stuck(), 1);
        let mut patience = Patience { limit: Duration::from_secs(60), ..patience };
        assert_eq!(patience.run(|| 7), Ok(7));
        drop(release);
        while patience.stuck() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn calls_that_hang_are_limited() {
        let mut patience = Patience::new(Duration::from_millis(1));
        let mut held = Vec::new();
        for _ in 0..MAX_STUCK {
            let (release, hold) = channel::<()>();
            held.push(release);
            assert_eq!(patience.run(move || hold.recv().is_ok()), Err(OutOfPatience));
        }
        let mut patience = Patience { limit: Duration::from_secs(60), ..patience };
        assert_eq!(patience.run(|| 7), Err(OutOfPatience), "as many hang as may: none is started");
        drop(held);
        while patience.stuck() > 0 {
            thread::yield_now();
        }
        assert_eq!(patience.run(|| 7), Ok(7));
    }
}
