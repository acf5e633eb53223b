//! How much CPU time programs used while they were profiled. Numbers of samples are held against it, so that no test
//! depends on how busy the machine is with other things.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(10);

/// One look at all watched processes.
struct Look {
    at: Instant,
    spent: Vec<Duration>,
}

/// A watch that is kept.
pub struct Watch {
    pids: Vec<u32>,
    stolen: Duration,
    end: Sender<()>,
    thread: JoinHandle<Vec<Look>>,
}

/// What was seen.
pub struct Spent {
    pids: Vec<u32>,
    looks: Vec<Look>,
    stolen: Duration,
}

impl Watch {
    /// Watches these processes until [`Watch::end`].
    pub fn keep(pids: &[u32]) -> Watch {
        let (end, ended) = channel();
        let watched = pids.to_vec();
        let thread = std::thread::spawn(move || {
            let mut looks: Vec<Look> = Vec::new();
            loop {
                let at = Instant::now();
                let last = looks.last().map(|look| look.spent.clone());
                // A process that has gone spends nothing more.
                let spent = watched
                    .iter()
                    .enumerate()
                    .map(|(i, &pid)| cpu_time(pid).or(last.as_ref().map(|last| last[i])).unwrap_or_default());
                let spent = spent.collect();
                looks.push(Look { at, spent });
                if !matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                    return looks;
                }
            }
        });
        Watch { pids: pids.to_vec(), stolen: stolen(), end, thread }
    }

    pub fn end(self) -> Spent {
        drop(self.end);
        let looks = self.thread.join().unwrap();
        Spent { pids: self.pids, looks, stolen: stolen().saturating_sub(self.stolen) }
    }
}

impl Spent {
    /// What the host took of the CPUs meanwhile.
    pub fn stolen(&self) -> Duration {
        self.stolen
    }

    /// The least and the most CPU time that a process, with the children that it has waited for, can have used in a
    /// span of this length, wherever in the time of the watch it lay.
    pub fn within(&self, pid: u32, span: Duration) -> (Duration, Duration) {
        let nth = self.pids.iter().position(|p| *p == pid).expect("a process that was watched");
        let (looks, last) = (&self.looks, self.looks.last().unwrap());
        let (mut least, mut most) = (Duration::MAX, Duration::ZERO);
        for pair in looks.windows(2) {
            // A span that began between these two looks …
            let (before, after) = (&pair[0], &pair[1]);
            if before.at + span > last.at {
                break;
            }
            // … holds all of what lies between the looks within it, and no more than what lies between those around it.
            let inner = looks.iter().rfind(|look| look.at <= before.at + span).unwrap();
            let outer = looks.iter().find(|look| look.at >= after.at + span).unwrap_or(last);
            least = least.min(inner.spent[nth].saturating_sub(after.spent[nth]));
            most = most.max(outer.spent[nth].saturating_sub(before.spent[nth]));
        }
        assert!(least <= most, "the watch was shorter than {span:?}");
        (least, most)
    }
}

/// What the host of a virtual machine took of all its CPUs until now. It is nobody's CPU time, but the tick that fell due
/// in it comes when it is over, to whatever runs then.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let steal =
        stat.lines().next().and_then(|all| all.split_whitespace().nth(8)).expect("a kernel since 2.6.11");
    clock_ticks(steal.parse().unwrap())
}

/// Waits until a process has used so much CPU time more.
pub fn spend(pid: u32, time: Duration) {
    let spent = || cpu_time(pid).expect("the process is there");
    let end = spent() + time;
    while spent() < end {
        std::thread::sleep(EVERY);
    }
}

/// CPU time of a process and of the children that it has waited for.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; behind it `utime`, `stime`, `cutime` and `cstime` are fields 11 to 14.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().unwrap());
    Some(clock_ticks(times.sum()))
}

fn clock_ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap()
}
