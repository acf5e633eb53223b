//! The CPU time that programs used while they were profiled. Tests compare numbers of samples with it, so that no test
//! depends on how busy the machine is.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval between two looks.
const EVERY: Duration = Duration::from_millis(10);

/// One look at all watched processes.
struct Look {
    at: Instant,
    spent: Vec<Duration>,
}

/// Watches processes until its end.
pub struct Watch {
    pids: Vec<u32>,
    stolen: Duration,
    end: Sender<()>,
    thread: JoinHandle<Vec<Look>>,
}

/// The CPU times that were seen.
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
                // A process that has ended uses no more CPU time.
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
    /// The time that the host stole from the CPUs during the watch.
    pub fn stolen(&self) -> Duration {
        self.stolen
    }

    /// The least and the most CPU time that a process, with the children that it has waited for, can have used in a
    /// span of this length, anywhere within the watch.
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
            // … holds all CPU time between the looks within it, and at most the CPU time between the looks around it.
            let inner = looks.iter().rfind(|look| look.at <= before.at + span).unwrap();
            let outer = looks.iter().find(|look| look.at >= after.at + span).unwrap_or(last);
            least = least.min(inner.spent[nth].saturating_sub(after.spent[nth]));
            most = most.max(outer.spent[nth].saturating_sub(before.spent[nth]));
        }
        assert!(least <= most, "the watch was shorter than {span:?}");
        (least, most)
    }
}

/// The time that the host of a virtual machine has taken from all its CPUs until now. No process has this CPU time, but
/// a tick due in it comes afterwards and hits the code that runs then.
fn stolen() -> Duration {
    clock_ticks(all_cpus()[STEAL])
}

/// The time until now in which a CPU belonged to a thread and did something else: interrupts, and what the host took. By the
/// kernel's clock that is neither CPU time of the thread nor a wait.
pub fn interrupted() -> Duration {
    let all = all_cpus();
    clock_ticks(all[IRQ] + all[SOFTIRQ] + all[STEAL])
}

/// Columns of a line of CPUs in proc(5), `/proc/stat`.
const IRQ: usize = 5;
const SOFTIRQ: usize = 6;
const STEAL: usize = 7;

/// The clock ticks of all CPUs by what they did.
fn all_cpus() -> Vec<u64> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let all = stat.lines().next().expect("all CPUs").split_whitespace().skip(1);
    all.map(|ticks| ticks.parse().unwrap()).collect()
}

/// Waits until a process has used this much more CPU time.
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
    // The name in parentheses may have any characters; fields 11 to 14 after it: `utime`, `stime`, `cutime`, `cstime`.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().unwrap());
    Some(clock_ticks(times.sum()))
}

fn clock_ticks(ticks: u64) -> Duration {
    Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap()
}
