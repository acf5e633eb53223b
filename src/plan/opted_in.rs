//! Pods that opt in to the agent by an annotation. The daemon's kubelet client fills the list; each JVM's pod is looked
//! up in it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long the names of a JVM may wait for the kubelet's answer about its pod.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// For this long after a poll that gave no answer, no caller waits for another poll.
const NO_WAIT_AFTER_FAILURE: Duration = Duration::from_secs(15);
/// Answers that are remembered.
const MAX_ANSWERS: usize = 4096;

/// The pods that opt in. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub struct OptedInPods(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<PollResults>,
    /// Signals that a poll, or the session, has ended.
    changed: Condvar,
    /// Signals that a caller waits for a poll.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct PollResults {
    /// Whether each pod opts in, by its uid, according to the last poll that succeeded. A pod that a caller asked about
    /// and that the poll did not know is `false`.
    pods: HashMap<String, bool>,
    /// Answers given in this session. JVMs of one pod may have got different answers.
    answered: HashSet<(String, bool)>,
    /// Number of polls that have begun, and the number of the last one that has ended.
    begun: u64,
    ended: u64,
    /// When a poll last failed, or did not know the pod that a caller waited for.
    vain: Option<Instant>,
    /// The session is over.
    closed: bool,
}

impl PartialEq for OptedInPods {
    fn eq(&self, other: &OptedInPods) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OptedInPods {}

impl OptedInPods {
    /// Starts a session, which asks about all of its JVMs anew.
    pub(crate) fn open(&self) {
        let mut known = self.known();
        known.answered.clear();
        known.closed = false;
    }

    /// Ends the session: waiting callers wake, and later ones do not wait.
    pub(crate) fn close(&self) {
        self.known().closed = true;
        self.0.changed.notify_all();
    }

    /// Whether a pod opts in. For an unknown pod the call waits for a poll that begins after it. If that poll fails or
    /// does not know the pod, the answer is no.
    pub(crate) fn opts_in(&self, uid: &str) -> bool {
        let end = Instant::now() + ANSWER_TIMEOUT;
        let mut known = self.known();
        let next = known.begun + 1;
        if !known.pods.contains_key(uid) {
            self.0.wanted.notify_one();
        }
        while known.must_wait(uid, next) {
            let Some(left) = end.checked_duration_since(Instant::now()) else { break };
            known = self.0.changed.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if known.ended >= next && !known.pods.contains_key(uid) {
            known.vain = Some(Instant::now());
            known.pods.insert(uid.to_owned(), false);
        }
        let has = known.pods.get(uid).copied().unwrap_or(false);
        if known.answered.len() >= MAX_ANSWERS {
            let PollResults { answered, pods, .. } = &mut *known;
            answered.retain(|(uid, _)| pods.contains_key(uid));
        }
        known.answered.insert((uid.to_owned(), has));
        has
    }

    /// Completes when a caller has asked about an unknown pod.
    pub async fn wait_for_question(&self) {
        self.0.wanted.notified().await;
    }

    /// Notes that a poll begins.
    pub fn begin_poll(&self) {
        self.known().begun += 1;
    }

    /// Notes that a poll has ended. `pods` has all pods of the node by uid, with whether each opts in; `None` if the
    /// poll failed. Returns whether an answer given in this session is no longer true. A pod that is missing from
    /// `pods` does not count: a kubelet that has just started does not know all pods yet.
    pub fn end_poll(&self, pods: Option<HashMap<String, bool>>) -> bool {
        let mut known = self.known();
        known.ended = known.begun;
        match pods {
            Some(pods) => known.pods = pods,
            None => known.vain = Some(Instant::now()),
        }
        self.0.changed.notify_all();
        known.answered.iter().any(|(uid, answer)| known.pods.get(uid).is_some_and(|now| now != answer))
    }

    /// Number of pods that opt in.
    #[must_use]
    pub fn count(&self) -> usize {
        self.known().pods.values().filter(|&&has| has).count()
    }

    fn known(&self) -> MutexGuard<'_, PollResults> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PollResults {
    /// Whether the poll with this number may still bring an answer about a pod.
    fn must_wait(&self, uid: &str, look: u64) -> bool {
        let hopeless = self.vain.is_some_and(|then| then.elapsed() < NO_WAIT_AFTER_FAILURE);
        !self.pods.contains_key(uid) && self.ended < look && !hopeless && !self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(list: &[(&str, bool)]) -> Option<HashMap<String, bool>> {
        Some(list.iter().map(|&(uid, has)| (uid.to_owned(), has)).collect())
    }

    /// Runs one poll, with the next of `answers`, each time a caller waits for one.
    fn looks(
        board: &OptedInPods,
        answers: Vec<Option<HashMap<String, bool>>>,
    ) -> std::thread::JoinHandle<()> {
        let board = board.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for answer in answers {
                runtime.block_on(board.wait_for_question());
                board.begin_poll();
                board.end_poll(answer);
            }
        })
    }

    #[test]
    fn a_pod_that_is_not_known_is_looked_for_once() {
        let board = OptedInPods::default();
        let looks = looks(&board, vec![pods(&[("a", true), ("b", false)])]);
        assert!(board.opts_in("a") && !board.opts_in("b"));
        looks.join().unwrap();
        assert_eq!(board.count(), 1);
        let looks = self::looks(&board, vec![pods(&[("a", true), ("c", true)])]);
        assert!(board.opts_in("c") && board.opts_in("a"));
        looks.join().unwrap();
        // The poll does not know pod d: no caller waits for another poll, neither for d nor for e.
        let looks = self::looks(&board, vec![pods(&[])]);
        assert!(!board.opts_in("d"));
        looks.join().unwrap();
        let begun = Instant::now();
        assert!(!board.opts_in("d") && !board.opts_in("e"));
        assert!(begun.elapsed() < ANSWER_TIMEOUT);
    }

    #[test]
    fn a_look_that_failed_is_waited_for_once() {
        let board = OptedInPods::default();
        let looks = looks(&board, vec![None]);
        let begun = Instant::now();
        assert!(!board.opts_in("a") && !board.opts_in("b"));
        assert!(begun.elapsed() < ANSWER_TIMEOUT);
        looks.join().unwrap();
        board.begin_poll();
        assert!(board.end_poll(pods(&[("a", true)])), "it was said not to");
        assert!(board.opts_in("a"));
    }

    #[test]
    fn no_caller_waits_after_the_session() {
        let board = OptedInPods::default();
        let asks = std::thread::spawn({
            let board = board.clone();
            move || board.opts_in("a")
        });
        let begun = Instant::now();
        board.close();
        assert!(!asks.join().unwrap() && begun.elapsed() < ANSWER_TIMEOUT);
    }

    #[test]
    fn only_what_was_said_in_this_session_can_be_wrong() {
        let board = OptedInPods::default();
        board.begin_poll();
        assert!(!board.end_poll(pods(&[("a", false), ("b", false)])));
        assert!(!board.opts_in("a"));
        let look = |list: &[(&str, bool)]| {
            board.begin_poll();
            board.end_poll(pods(list))
        };
        assert!(!look(&[("a", false), ("b", true)]), "no caller asked about b");
        assert!(look(&[("a", true)]));
        assert!(board.opts_in("a"));
        assert!(look(&[("a", true)]), "another JVM of the pod got the other answer");
        assert!(!look(&[]), "it may have gone, and its JVMs with it");
        assert!(look(&[("a", true)]), "the kubelet had not known it yet");
        board.open();
        assert!(!look(&[("a", false)]), "no caller asked about it");
        assert!(!board.opts_in("a") && !look(&[("a", false)]));
    }
}
