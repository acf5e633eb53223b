//! Cgroups that tests make, in all hierarchies of the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

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
        Group::make(above, &format!("jbpf-{name}-{}", std::process::id()))
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
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let of = |name| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        let v1 = of("throttled_time").map(|ns| ns / 1e9);
        v1.or(of("throttled_usec").map(|us| us / 1e6)).expect("it has the cpu controller")
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
        format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display())
    }

    /// A command that runs a program in the group.
    pub fn enter(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &self.script()]).arg(program);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process leaves its cgroup a moment later.
        let until = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err_and(|e| e.kind() == std::io::ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
