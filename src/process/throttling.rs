//! CPU time that a process wanted and did not get: its cgroup's quota, pressure, and time that the hypervisor stole.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup::CgroupMembership;
use super::group::Group;
use super::hierarchies::Hierarchies;
use super::hierarchy::Controller;
use super::procfs;

impl Hierarchies {
    /// Reads the counters of a cgroup and of those above it: where v1 has `cpu`, those of the same path there.
    #[must_use]
    pub fn snapshot_of(&self, group: &Group) -> CpuSnapshot {
        let mut of = CgroupMembership::default();
        let path = || group.path.clone();
        of.v1.insert(Controller::Cpu.name().to_owned(), path());
        of.unified = Some(path());
        self.snapshot(&of)
    }

    /// Reads the counters of a process's cgroups, from its own up to the root.
    #[must_use]
    pub fn snapshot(&self, of: &CgroupMembership) -> CpuSnapshot {
        CpuSnapshot(self.levels(Controller::Cpu, of).iter().filter_map(|dir| Level::read(dir)).collect())
    }
}

/// Counters of a cgroup and of those above it, at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuSnapshot(Vec<Level>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Level {
    dir: PathBuf,
    periods: u64,
    throttled_periods: u64,
    throttled: Duration,
    /// CPUs that the cgroup may use, if limited.
    limit: Option<f64>,
    /// Time in which a task of the cgroup waited for a CPU.
    pressure: Option<Duration>,
}

/// What happened between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttling {
    /// CPUs that the tightest limit grants at the end; `None` without a limit.
    pub limit_cpus: Option<f64>,
    /// Enforcement periods that passed with something to run, at the level that was throttled longest.
    pub periods: u64,
    /// Periods in which that level was throttled.
    pub throttled_periods: u64,
    /// Time for which its threads were kept from running, summed over CPUs.
    pub throttled: Duration,
    /// Time in which some thread of the process's own cgroup waited for a CPU, for any reason; v2 only.
    pub pressure: Option<Duration>,
}

impl Throttling {
    /// Whether there is a limit, or one throttled the process before it was lifted.
    #[must_use]
    pub fn was_limited(&self) -> bool {
        self.limit_cpus.is_some() || self.throttled_periods > 0
    }

    /// [`Self::throttled`] in whole microseconds, for reports.
    #[must_use]
    pub fn throttled_usec(&self) -> u64 {
        usec(self.throttled)
    }

    /// [`Self::pressure`] in whole microseconds, for reports; `None` on v1.
    #[must_use]
    pub fn pressure_usec(&self) -> Option<u64> {
        self.pressure.map(usec)
    }
}

fn usec(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl CpuSnapshot {
    /// What happened since an earlier snapshot of the same process. New levels are left out.
    #[must_use]
    pub fn since(&self, earlier: &CpuSnapshot) -> Throttling {
        let pairs = self.0.iter().filter_map(|now| {
            let then = earlier.0.iter().find(|then| then.dir == now.dir)?;
            Some(Throttling {
                limit_cpus: now.limit,
                periods: now.periods.saturating_sub(then.periods),
                throttled_periods: now.throttled_periods.saturating_sub(then.throttled_periods),
                throttled: now.throttled.saturating_sub(then.throttled),
                pressure: now.pressure.zip(then.pressure).map(|(now, then)| now.saturating_sub(then)),
            })
        });
        let levels: Vec<Throttling> = pairs.collect();
        let limit_cpus = levels.iter().filter_map(|level| level.limit_cpus).reduce(f64::min);
        let worst = levels.iter().max_by_key(|level| level.throttled).copied().unwrap_or_default();
        // The process's own cgroup comes first.
        Throttling { limit_cpus, pressure: levels.first().and_then(|own| own.pressure), ..worst }
    }
}

impl Level {
    fn read(dir: &Path) -> Option<Level> {
        let text = |name: &str| fs::read_to_string(dir.join(name)).ok();
        let stat = text("cpu.stat")?;
        let limit = text("cpu.max").and_then(|max| quota_v2(&max)).or_else(|| {
            let quota = text("cpu.cfs_quota_us")?;
            quota_v1(&quota, &text("cpu.cfs_period_us")?)
        });
        let pressure = text("cpu.pressure").and_then(|text| some_total(&text));
        Some(Level { dir: dir.into(), limit, pressure, ..Level::of_stat(&stat) })
    }

    /// Parses `cpu.stat`: v1 gives `throttled_time` in nanoseconds, v2 `throttled_usec`.
    fn of_stat(stat: &str) -> Level {
        let mut level = Level::default();
        for line in stat.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let Ok(value) = value.trim().parse() else { continue };
            match name {
                "nr_periods" => level.periods = value,
                "nr_throttled" => level.throttled_periods = value,
                "throttled_time" => level.throttled = Duration::from_nanos(value),
                "throttled_usec" => level.throttled = Duration::from_micros(value),
                _ => {}
            }
        }
        level
    }
}

/// Parses `cpu.max`: `max 100000` or `200000 100000`.
fn quota_v2(max: &str) -> Option<f64> {
    let (quota, period) = max.trim().split_once(' ')?;
    quota_v1(quota, period)
}

fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0 && quota.is_finite() && period.is_finite()).then(|| quota / period)
}

/// The total, in microseconds, of the line `some` of a pressure file.
fn some_total(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|word| word.strip_prefix("total="))?;
    Some(Duration::from_micros(total.trim().parse().ok()?))
}

/// CPU time of the whole machine since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTime {
    /// CPU time over all CPUs; the time of guests is included once.
    pub total: u64,
    /// Time in which a CPU wanted to run while the hypervisor ran something else.
    pub stolen: u64,
}

impl MachineTime {
    /// The times now, from `/proc/stat`; all zero if the file cannot be read.
    #[must_use]
    pub fn now() -> MachineTime {
        MachineTime::parse(&procfs::read("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &[u8]) -> MachineTime {
        let line = stat.split(|&b| b == b'\n').next().unwrap_or_default();
        let words = line.split(|&b| b == b' ').skip(1).filter(|word| !word.is_empty());
        // user nice system idle iowait irq softirq steal; guest and guest_nice are in user and nice already
        let ticks: Vec<u64> = words.take(8).map(|word| procfs::decimal(word).unwrap_or(0)).collect();
        let total = ticks.iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        MachineTime { total, stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// The share of CPU time since an earlier moment that was stolen, 0 to 1.
    #[must_use]
    pub fn stolen_share_since(&self, earlier: &MachineTime) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        if total == 0 { 0.0 } else { self.stolen.saturating_sub(earlier.stolen) as f64 / total as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::hierarchies::test_dir as dir;

    #[test]
    fn throttled_by_the_cgroup_above() {
        let tmp = tempfile::tempdir().unwrap();
        let quiet = "usage_usec 5\nnr_periods 7\nnr_throttled 0\nthrottled_usec 0\n";
        dir(tmp.path(), "", &[("cpu.stat", "usage_usec 5\n")]);
        dir(tmp.path(), "pod", &[("cpu.stat", quiet), ("cpu.max", "150000 100000\n")]);
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 total=5\n";
        let own = [("cpu.stat", quiet), ("cpu.max", "max 100000\n"), ("cpu.pressure", pressure)];
        dir(tmp.path(), "pod/box", &own);
        let member = CgroupMembership::parse(b"0::/pod/box\n");
        let before = Hierarchies::below(tmp.path(), None).snapshot(&member);
        let busy = "nr_periods 107\nnr_throttled 40\nthrottled_usec 2500000\n";
        dir(tmp.path(), "pod", &[("cpu.stat", busy)]);
        dir(tmp.path(), "pod/box", &[("cpu.pressure", &pressure.replace("1000", "4000"))]);
        let found = Hierarchies::below(tmp.path(), None).snapshot(&member).since(&before);
        assert_eq!(
            found,
            Throttling {
                limit_cpus: Some(1.5),
                periods: 100,
                throttled_periods: 40,
                throttled: Duration::from_millis(2500),
                pressure: Some(Duration::from_millis(3)),
            }
        );
    }

    #[test]
    fn version_1() {
        let tmp = tempfile::tempdir().unwrap();
        let stat = "nr_periods 10\nnr_throttled 4\nthrottled_time 3000000000\n";
        let quota = [("cpu.stat", stat), ("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n")];
        dir(tmp.path(), "a", &quota);
        dir(
            tmp.path(),
            "",
            &[("cpu.stat", ""), ("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")],
        );
        let now = Hierarchies::below(tmp.path(), Some(Controller::Cpu))
            .snapshot(&CgroupMembership::parse(b"3:cpu,cpuacct:/a\n"));
        let zero = CpuSnapshot(
            now.0.iter().map(|level| Level { dir: level.dir.clone(), ..Level::default() }).collect(),
        );
        let found = now.since(&zero);
        assert_eq!((found.limit_cpus, found.throttled), (Some(0.5), Duration::from_secs(3)));
        assert_eq!((found.periods, found.throttled_periods, found.pressure), (10, 4, None));
    }

    #[test]
    fn hostile_numbers() {
        assert_eq!(quota_v2("max 100000"), None);
        assert_eq!(quota_v2("inf 1"), None);
        assert_eq!(quota_v2("1 0"), None);
        assert_eq!(some_total("some total=99999999999999999999"), None);
        assert_eq!(Level::of_stat("nr_periods x\nthrottled_usec\n\n"), Level::default());
        assert_eq!(MachineTime::parse(b""), MachineTime::default());
        let huge = MachineTime::parse(b"cpu  18446744073709551615 1 0 0 0 0 0 7 100 100\n");
        assert_eq!(huge, MachineTime { total: u64::MAX, stolen: 7 });
    }

    #[test]
    fn this_machine() {
        let now = MachineTime::now();
        assert!(now.total > 0);
        assert!((0.0..=1.0).contains(&now.stolen_share_since(&MachineTime::default())));
    }
}
