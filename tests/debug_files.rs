//! Debug files of programs in a container, where debuggers look for them, and packages of split DWARF.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::container;
use testkit::folded::{Folded, is};
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

fn folded(target: &Target) -> Folded {
    profile(target, 1, &[]).folded.keep(|stack| stack[0] == "svc")
}

/// The share of samples in the inlined function, by its name.
fn share(folded: &Folded) -> f64 {
    folded.share(|stack| stack.windows(2).any(|pair| is(&pair[0], "work") && pair[1] == "rotate_[i]"))
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

    fn folded(&self) -> Folded {
        folded(&container::start(self.directory.path(), &["/bin/svc".to_owned()], &[]))
    }
}

#[test]
fn debug_files_in_a_container_are_read() {
    if !is_root() || lacks("runc") {
        return;
    }
    let root = Root::make();
    let by_build_id =
        format!("usr/lib/debug/.build-id/{}/{}.debug", &root.build_id[..2], &root.build_id[2..]);
    for place in [&*by_build_id, "bin/.debug/svc.debug", "bin/svc.debug", "usr/lib/debug/bin/svc.debug"] {
        let file = root.put(place);
        let folded = root.folded();
        assert!(folded.total() > 100 && share(&folded) > 0.9, "{place}: {}", folded.top(5));
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
    let other = root.put("bin/svc.debug");
    let is_unnamed = |why: &str| {
        let folded = root.folded();
        let stripped = folded.share(|stack| stack.iter().any(|frame| frame.starts_with("svc!fun_")));
        assert!(folded.total() > 100 && stripped > 0.9, "{why}: {}", folded.top(5));
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
    let with = folded(&Target::start(&mut Command::new(&svc)));
    assert!(with.total() > 100 && share(&with) > 0.9, "{}", with.top(5));
    fs::remove_file(package).unwrap();
    let without = folded(&Target::start(&mut Command::new(&svc)));
    let named = without.share(|stack| stack.iter().any(|frame| is(frame, "work")));
    assert!(named > 0.9 && share(&without) == 0.0, "{}", without.top(5));
}
