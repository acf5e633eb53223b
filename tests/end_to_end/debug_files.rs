//! Debug files of programs in a container, where debuggers look for them, and packages of split DWARF.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::claims::{at_least, prove};
use testkit::container;
use testkit::folded::{Folded, has, is};
use testkit::profiler::{finish, profile};
use testkit::target::Target;
use testkit::{is_root, lacks, sources};

fn run(command: &mut Command) -> String {
    finish(command).success().stdout
}

/// Compiles `inlined.c` with debug information.
fn compile(flags: &[&str], to: &Path) {
    let mut cc = Command::new("cc");
    // The files beside the output are named after it.
    cc.args(["-O2", "-g", "-Wl,--build-id"]).args(flags).arg(sources().join("inlined.c")).arg("-o").arg(to);
    run(cc.current_dir(to.parent().unwrap()));
}

/// Stacks of the program, without what runs before it in its process.
fn folded(target: &Target) -> Folded {
    profile(target, 1, &[]).folded.keep(|stack| stack[0] == "svc")
}

/// Whether a stack is in the inlined function, by its name.
fn is_in_rotate(stack: &[String]) -> bool {
    stack.windows(2).any(|pair| is(&pair[0], "work") && pair[1] == "rotate_[i]")
}

/// A root directory with a stripped program, and its debug file at a place that is not searched.
struct Root {
    directory: tempfile::TempDir,
    build_id: String,
}

impl Root {
    fn make() -> Root {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        for mount in ["bin", "proc", "dev", "sys", "tmp"] {
            fs::create_dir(inside(mount)).unwrap();
        }
        // Another user enters the directory.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let (full, debug, svc) = (inside("full"), inside("svc.debug"), inside("bin/svc"));
        compile(&["-static"], &full);
        run(Command::new("objcopy").arg("--only-keep-debug").args([&full, &debug]));
        run(Command::new("strip").arg("-o").args([&svc, &full]));
        run(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", debug.display())).arg(&svc));
        let notes = run(Command::new("readelf").arg("-n").arg(&full));
        let build_id =
            notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
        fs::remove_file(full).unwrap();
        Root { directory, build_id }
    }

    fn put(&self, place: &str) -> PathBuf {
        let place = self.directory.path().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(self.directory.path().join("svc.debug"), &place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).unwrap();
        place
    }

    fn start(&self) -> Target {
        container::start(self.directory.path(), &["/bin/svc".to_owned()], &[])
    }
}

#[test]
fn debug_files_in_a_container_are_read() {
    if !is_root() || lacks("runc") {
        return;
    }
    let root = Root::make();
    let target = root.start();
    let by_build_id =
        format!("usr/lib/debug/.build-id/{}/{}.debug", &root.build_id[..2], &root.build_id[2..]);
    for place in [&*by_build_id, "bin/.debug/svc.debug", "bin/svc.debug", "usr/lib/debug/bin/svc.debug"] {
        let file = root.put(place);
        prove(|| folded(&target), &[at_least(0.9, format!("{place}: inlined calls"), is_in_rotate)]);
        fs::remove_file(file).unwrap();
    }
}

/// Debug files are ignored if others than the program's makers can write them, or if they are of another build.
#[test]
fn debug_files_of_others_are_left_alone() {
    if !is_root() || lacks("runc") {
        return;
    }
    let root = Root::make();
    let target = root.start();
    let other = root.put("bin/svc.debug");
    let is_unnamed = |why: &str| {
        let stripped = |stack: &[String]| stack.iter().any(|frame| frame.starts_with("svc!fun_"));
        prove(|| folded(&target), &[at_least(0.9, format!("{why}: stripped code"), stripped)]);
    };
    fs::set_permissions(&other, fs::Permissions::from_mode(0o666)).unwrap();
    is_unnamed("anybody can write it");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&other, Some(1234), Some(1234)).unwrap();
    is_unnamed("it is of another user");
    chown(&other, Some(0), Some(0)).unwrap();
    let unlike = root.directory.path().join("unlike");
    compile(&["-static", "-DUNLIKE", "-O1"], &unlike);
    fs::rename(unlike, &other).unwrap();
    is_unnamed("it has another build id");
}

#[test]
fn packages_of_split_dwarf_are_read() {
    if !is_root() || lacks("dwp") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let svc = directory.path().join("svc");
    compile(&["-gdwarf-4", "-gsplit-dwarf"], &svc);
    let package = directory.path().join("svc.dwp");
    run(Command::new("dwp").arg("-e").arg(&svc).arg("-o").arg(&package).current_dir(&directory));
    let target = Target::start(&mut Command::new(&svc));
    prove(|| folded(&target), &[at_least(0.9, "inlined calls", is_in_rotate)]);
    fs::remove_file(package).unwrap();
    let named = has("work");
    let without = prove(|| folded(&target), &[at_least(0.9, "stacks with names", named)]);
    assert_eq!(without.count(is_in_rotate), 0, "{}", without.top(5));
}
