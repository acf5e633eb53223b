//! `jbpf-prof diff` on real programs: its verdict and its exit code, alone and in the GitHub action.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::profiler::{binary, out_file};
use testkit::{is_root, native, repository, scratch};

/// The difference of two profiles as JSON, and the exit code.
fn diff(before: &Path, after: &Path) -> (serde_json::Value, i32) {
    let output = Command::new(binary())
        .arg("diff")
        .args([before, after])
        .args(["--fail-above", "20%", "-o", "-", "--format", "json"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let difference = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    (difference, output.status.code().unwrap())
}

/// One of the scripts of the GitHub action, with its settings, and the files for the job's outputs and summary.
fn script(name: &str, settings: &[(&str, &str)], files: &[PathBuf; 2]) -> Output {
    let path = repository().join("deploy/github-action").join(name);
    Command::new(path)
        .envs(settings.iter().copied())
        .env("BINARY", binary())
        .envs(["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"].into_iter().zip(files))
        .output()
        .unwrap()
}

/// What a script of the GitHub action wrote to the job's outputs and to its summary.
fn action(name: &str, settings: &[(&str, &str)]) -> [String; 2] {
    let files = ["outputs", "summary"].map(|_| out_file("txt"));
    let output = script(name, settings, &files);
    assert!(output.status.success(), "{name}: {output:?}");
    files.map(|file| std::fs::read_to_string(file).unwrap_or_default())
}

/// The GitHub action profiles a command, and says what changed, as `diff` does.
#[test]
fn the_same_program_is_unchanged_and_another_one_is_a_change() {
    if !is_root() {
        return;
    }
    let dirs = ["base", "same", "other"].map(|name| scratch(&format!("action-{name}")));
    let [base, same, other] = dirs.each_ref().map(|dir| dir.to_str().unwrap());
    for (dir, program) in [(base, "native"), (same, "native"), (other, "kernel")] {
        let command = format!("timeout 1 {} || true", native::program(program).display());
        // With a fifth of a CPU, 20 points are still seven times the noise of 600 samples.
        let settings = [("COMMAND", &*command), ("RUNS", "1"), ("OPTIONS", "-F 2999"), ("PROFILES", dir)];
        action("profile.sh", &settings);
    }
    let [first, second, third] = dirs.each_ref().map(|dir| dir.join("run-1.html"));
    let (unchanged, code) = diff(&first, &second);
    assert!(unchanged["before"]["samples"].as_u64().unwrap() > 100, "{unchanged}");
    assert_eq!((unchanged["verdict"].as_str(), code), (Some("unchanged"), 0), "{unchanged}");
    let (changed, code) = diff(&first, &third);
    assert_eq!((changed["verdict"].as_str(), code), (Some("changed"), 5), "{changed}");

    let compare = |base: &str, dir: &str| {
        let settings = [("BASE", base), ("PROFILES", dir), ("FAIL_ABOVE", "25%"), ("PER", "")];
        action("compare.sh", &settings)
    };
    let [verdict, summary] = compare(base, same);
    assert_eq!(verdict, "verdict=unchanged\n", "{summary}");
    let [verdict, summary] = compare(base, other);
    assert_eq!(verdict, "verdict=changed\n", "{summary}");
    assert!(summary.contains("burn40"), "{summary}");
    assert!(["diff.html", "diff.json", "diff.md"].iter().all(|file| Path::new(other).join(file).exists()));
    let [verdict, summary] = compare("", other);
    assert_eq!(verdict, "verdict=not compared\n", "{summary}");
}

#[test]
fn the_github_action_fails_if_its_command_fails() {
    if !is_root() {
        return;
    }
    let dir = scratch("action-failed");
    let settings =
        [("COMMAND", "true; exit 3"), ("RUNS", "2"), ("OPTIONS", "-q"), ("PROFILES", dir.to_str().unwrap())];
    let output = script("profile.sh", &settings, &["outputs", "summary"].map(|_| out_file("txt")));
    let message = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(message.starts_with("::error::the command ended with exit code 3 in run 1 of 2"), "{message}");
}
