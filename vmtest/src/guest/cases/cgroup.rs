//! Profiles of cgroups with v2 only, v1 only, and both: they include nested groups, and exclude all other groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::super::folded::Folded;
use super::super::profiler;
use super::super::program::{LEISURELY, native, path};
use super::super::share::{self, at_least, seen};
use super::super::target::Target;
use crate::plan::Found;

const CGROUPS: &str = "/sys/fs/cgroup";
/// Controllers of which some kernels still have v1.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "freezer"];

/// The scheduler's weight of a leisurely program: `sched_prio_to_weight` in the kernel.
const WEIGHT_AT_NICE_15: &str = "36";

/// Seconds of the first profile of a hierarchy: up to six programs share the CPUs.
const SECONDS: u64 = 4;
/// The samples that a group of v1 must have at least that has an empty twin in v2.
const MIN_SAMPLES: u64 = 100;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let mut found = Found::default();
    in_each(&[PathBuf::from(CGROUPS)], "v2", &mut found)?;
    let v1 = V1::mount()?;
    in_each(&v1.points, "v1", &mut found)?;
    let unified = Path::new(CGROUPS).join("unified");
    fs::create_dir(&unified)?;
    mount("cgroup2", &unified, "cgroup2", MountFlags::empty(), None).context("v2 beside v1")?;
    let all: Vec<PathBuf> = v1.points.iter().take(1).chain([&unified]).cloned().collect();
    in_each(&all, "hybrid", &mut found)?;
    misled(&v1.points[0], &unified)?;
    Ok(found)
}

/// Mounts v1 in place of v2 until drop.
struct V1 {
    points: Vec<PathBuf>,
}

impl V1 {
    fn mount() -> anyhow::Result<V1> {
        mount("tmpfs", CGROUPS, "tmpfs", MountFlags::empty(), None).context("a place for v1")?;
        let mut v1 = V1 { points: Vec::new() };
        for controller in CONTROLLERS {
            let point = Path::new(CGROUPS).join(controller);
            fs::create_dir(&point)?;
            let options = std::ffi::CString::new(controller)?;
            // Newer kernels may be built without some v1 controllers.
            if mount("cgroup", &point, "cgroup", MountFlags::empty(), options.as_c_str()).is_ok() {
                v1.points.push(point);
            }
        }
        ensure!(!v1.points.is_empty(), "this kernel has no controller of v1");
        Ok(v1)
    }
}

impl Drop for V1 {
    fn drop(&mut self) {
        let unified = Path::new(CGROUPS).join("unified");
        for point in self.points.iter().map(PathBuf::as_path).chain([unified.as_path(), Path::new(CGROUPS)]) {
            // Some points may not be mounted.
            let _ = unmount(point, UnmountFlags::DETACH);
        }
    }
}

/// In each hierarchy: a chosen group, a program in a group below it, and a stranger in another group. One profile
/// covers all the chosen groups.
fn in_each(points: &[PathBuf], name: &str, found: &mut Found) -> anyhow::Result<()> {
    let trees = points.iter().map(|point| Tree::plant(point)).collect::<anyhow::Result<Vec<_>>>()?;
    let programs = trees.iter().map(Tree::start).collect::<anyhow::Result<Vec<_>>>()?;
    let others: Vec<&Group> = trees.iter().map(|tree| &tree.other).collect();
    let strangers = [start(&others, &path("kernel")), Target::start(&mut native("kernel"))];
    let mut args = Vec::new();
    for tree in &trees {
        args.extend(["-G", tree.chosen.path()?]);
    }
    let mut all = Folded::default();
    let of_tree = |all: &Folded, tree: &Tree| all.keep(|stack| stack[0] == tree.name);
    share::prove(SECONDS, |seconds| {
        all.add(profiler::sample(seconds, &args)?.folded);
        let strange = all.keep(|stack| trees.iter().all(|tree| stack[0] != tree.name));
        ensure!(strange.total() == 0, "{name}: what is outside appears:\n{}", strange.top(5));
        let claims = trees.iter().map(|tree| {
            let what = format!("{name}, {}: samples with their names", tree.name);
            at_least(0.95, what, &of_tree(&all, tree), |stack| {
                stack.iter().any(|frame| frame.starts_with("burn"))
            })
        });
        Ok(claims.collect())
    })?;
    // A group can be removed only after its programs have ended.
    drop((programs, strangers));
    for tree in &trees {
        let own = of_tree(&all, tree).total();
        found.samples += own;
        found.figure(&format!("{name}_{}", tree.name), own as f64);
    }
    Ok(())
}

/// A chosen group of a hierarchy, a group below it, and a group beside it. Drop removes inner groups first.
struct Tree {
    name: String,
    nested: Group,
    chosen: Group,
    other: Group,
}

impl Tree {
    fn plant(point: &Path) -> anyhow::Result<Tree> {
        let name = point.file_name().context("a hierarchy's name")?.to_string_lossy().into_owned();
        let chosen = Group::make(&point.join("chosen"))?;
        let nested = Group::make(&point.join("chosen/nested"))?;
        Ok(Tree { name, nested, chosen, other: Group::make(&point.join("chosen-not"))? })
    }

    /// Starts a program in the nested group. The hierarchy's name is the program's name, which its samples show.
    fn start(&self) -> anyhow::Result<Target> {
        let own = format!("/tmp/{}", self.name);
        fs::copy(path("native"), &own).context("a program")?;
        Ok(start(&[&self.nested], &own))
    }
}

/// Starts a program in each of the groups.
fn start(groups: &[&Group], program: &str) -> Target {
    let enter: Vec<String> =
        groups.iter().map(|group| format!("echo $$ > {}/cgroup.procs && ", group.0.display())).collect();
    let line = format!("{}exec {} {program}", enter.concat(), LEISURELY.join(" "));
    Target::start(Command::new("sh").args(["-c", &line]))
}

/// A group that exists in both hierarchies, with processes only in that of v1: runtimes that know only v1 create such
/// groups.
fn misled(v1: &Path, v2: &Path) -> anyhow::Result<()> {
    let [full, empty] = [Group::make(&v1.join("twin"))?, Group::make(&v2.join("twin"))?];
    let inside = start(&[&full], &path("native"));
    let group = empty.path()?;
    let mut all = Folded::default();
    let proved = share::prove(1, |seconds| {
        let profile = profiler::sample(seconds, &["-G", group])?;
        all.add(profile.folded);
        let what = format!("samples of a group that exists in v2, too: {}", profile.report["groups"]);
        Ok(vec![seen(MIN_SAMPLES, what, &all, |_| true)])
    });
    drop(inside);
    drop((full, empty));
    proved
}

/// A cgroup, removed on drop.
struct Group(PathBuf);

impl Group {
    fn make(path: &Path) -> anyhow::Result<Group> {
        fs::create_dir(path).with_context(|| format!("making {}", path.display()))?;
        // A group has the weight of a process at nice 0, which would leave no CPU time to leisurely programs beside it.
        let shares = path.join("cpu.shares");
        if shares.exists() {
            fs::write(shares, WEIGHT_AT_NICE_15)?;
        }
        Ok(Group(path.to_owned()))
    }

    fn path(&self) -> anyhow::Result<&str> {
        self.0.to_str().context("its path")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed program leaves its group a moment later.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
