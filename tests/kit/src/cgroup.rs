//! Cgroups that tests make, in all hierarchies of the machine.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::skip;

/// The mounted hierarchies that BPF can query: `v2` or a controller of v1, and the mount point.
pub fn hierarchies() -> Vec<(String, PathBuf)> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (point, kind, options) = (PathBuf::from(fields[1]), fields[2], fields[3]);
        let controllers = ["memory", "cpu", "pids", "freezer"];
        match kind {
            "cgroup2" => found.push(("v2".into(), point)),
            "cgroup" => {
                let own = controllers.iter().find(|name| options.split(',').any(|option| option == **name));
                found.extend(own.map(|name| ((*name).to_owned(), point)));
            }
            _ => {}
        }
    }
    found
}

/// The hierarchy that identifies containers on this machine.
pub fn naming() -> PathBuf {
    let all = hierarchies();
    let of = |name: &str| all.iter().find(|(own, _)| own == name).map(|(_, point)| point.clone());
    ["memory", "pids", "cpu", "v2"].into_iter().find_map(of).expect("a hierarchy of cgroups is mounted")
}

/// A cgroup; removed on drop, after its last process has left.
pub struct Group(PathBuf);

impl Group {
    /// Makes a cgroup below a directory.
    pub fn make(above: &Path, name: &str) -> Group {
        let path = above.join(name);
        fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Group(path)
    }

    /// The same below the root of a hierarchy, with a name that no other test has.
    pub fn own(above: &Path, name: &str) -> Group {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = above.join(format!("jbpf-{name}-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Group(path),
                // A run with this pid was killed before it could remove its groups.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => panic!("{}: {e}", path.display()),
            }
        }
    }

    /// A group of its own with this memory limit in bytes; says so and returns `None` where no limit is possible.
    pub fn with_memory(name: &str, bytes: u64) -> Option<Group> {
        let all = hierarchies();
        let point = |name| all.iter().find(|(own, _)| own == name).map(|(_, point)| point.as_path());
        let (above, file) = match (point("memory"), point("v2")) {
            (Some(memory), _) => (memory, "memory.limit_in_bytes"),
            (None, Some(v2)) => (v2, "memory.max"),
            (None, None) => {
                skip("no hierarchy of cgroups is mounted");
                return None;
            }
        };
        let group = Group::own(above, name);
        let limit = group.path().join(file);
        if !limit.exists() {
            skip(&format!("there is no {}", limit.display()));
            return None;
        }
        fs::write(limit, bytes.to_string()).unwrap();
        Some(group)
    }

    /// The same in a hierarchy that limits CPU time, if there is one.
    pub fn limitable(name: &str) -> Option<Group> {
        let (_, cpu) = hierarchies().into_iter().find(|(name, point)| {
            let children = fs::read_to_string(point.join("cgroup.subtree_control")).unwrap_or_default();
            name == "cpu" || children.split_whitespace().any(|controller| controller == "cpu")
        })?;
        Some(Group::own(&cpu, name))
    }

    /// Limits the CPU time of a limitable group to thousandths of a CPU.
    pub fn limit(&self, thousandths: usize) {
        let quota = thousandths * 100;
        let v1 = self.0.join("cpu.cfs_quota_us");
        let v2 = || (self.0.join("cpu.max"), format!("{quota} 100000"));
        let (file, text) = if v1.exists() { (v1, quota.to_string()) } else { v2() };
        fs::write(file, text).unwrap();
    }

    /// The throttled time of the group until now, in seconds.
    pub fn throttled(&self) -> f64 {
        self.throttling().seconds
    }

    /// What the kernel has counted of the group's throttling until now.
    pub fn throttling(&self) -> Throttling {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let of = |name| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let v1 = of("throttled_time ").map(|ns| ns as f64 / 1e9);
        let seconds = v1.or(of("throttled_usec ").map(|us| us as f64 / 1e6));
        Throttling {
            periods: of("nr_periods ").expect("it has the cpu controller"),
            throttled_periods: of("nr_throttled ").expect("it has the cpu controller"),
            seconds: seconds.expect("it has the cpu controller"),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The group's directory as an argument.
    pub fn arg(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }

    /// A shell script that runs its arguments in the group.
    pub fn script(&self) -> String {
        script(std::slice::from_ref(self))
    }

    /// A command that runs a program in the group.
    pub fn enter(&self, program: &Path) -> Command {
        enter(std::slice::from_ref(self), program)
    }
}

/// Counters of a group with a limit of CPU time.
#[derive(Clone, Copy, Debug)]
pub struct Throttling {
    /// Periods of enforcement in which the group wanted to run.
    pub periods: u64,
    /// Those of them in which it was throttled.
    pub throttled_periods: u64,
    /// The throttled time, summed over CPUs.
    pub seconds: f64,
}

/// A group in each hierarchy. The profiler charges what a process holds up to the process's cgroup, its tenant. A test
/// that lets a process misbehave makes it a tenant of its own, so that other tests are not charged.
pub struct Tenant(Vec<Group>);

impl Tenant {
    pub fn own(name: &str) -> Tenant {
        Tenant(hierarchies().iter().map(|(_, point)| Group::own(point, name)).collect())
    }

    /// A command that runs a program as the tenant.
    pub fn enter(&self, program: &Path) -> Command {
        enter(&self.0, program)
    }
}

/// A shell script that runs its arguments in these groups.
fn script(groups: &[Group]) -> String {
    let join = |group: &Group| format!("echo $$ > {}/cgroup.procs && ", group.0.display());
    groups.iter().map(join).collect::<String>() + "exec \"$0\" \"$@\""
}

fn enter(groups: &[Group], program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &script(groups)]).arg(program);
    command
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process leaves its cgroup a moment later.
        let until = Instant::now() + Duration::from_secs(60);
        while fs::remove_dir(&self.0).is_err_and(|e| e.kind() == ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
