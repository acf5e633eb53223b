//! Profiles of cgroups, containers and pods: all samples of the target, and no samples of other processes.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use testkit::cgroup::{Group, hierarchies, naming};
use testkit::folded::Folded;
use testkit::java::{Jdk, Program, classes, in_container};
use testkit::profiler::{self, ALL, record, record_watching};
use testkit::target::Target;
use testkit::{container, is_root, native, scratch, skip};

const UIDS: [&str; 2] = ["0a1b2c3d-0000-1111-2222-333344445555", "0a1b2c3d-0000-1111-2222-333344446666"];

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(|a| (*a).to_owned()).collect()
}

fn start(group: &Group, program: &str) -> Target {
    Target::start(&mut group.enter(&native::program(program)))
}

/// Asserts that a profile has samples, all of them of these programs.
#[track_caller]
fn assert_only(folded: &Folded, programs: &[&str]) {
    assert!(folded.total() > 50, "the profile is empty:\n{}", folded.top(10));
    let others = folded.keep(|stack| !programs.contains(&stack[0].as_str()));
    assert_eq!(others.total(), 0, "{}", others.top(10));
}

/// Removes the shell that enters a group and then executes the program; a profile that began earlier may have it.
fn entered(folded: &Folded) -> Folded {
    folded.keep(|stack| stack[0] != "sh")
}

fn id(digit: &str) -> String {
    format!("{:06}{}", std::process::id() % 1_000_000, digit.repeat(58))
}

#[test]
fn a_groups_profile_is_whole_and_its_own_in_each_hierarchy() {
    if !is_root() {
        return;
    }
    for (name, point) in hierarchies() {
        let (wanted, other) = (Group::own(&point, "wanted"), Group::own(&point, "other"));
        let nested = Group::make(wanted.path(), "nested");
        let (one, two) = (start(&wanted, "native"), start(&nested, "kernel"));
        let _others = [start(&other, "unique"), native::start("unique")];
        let pids = [one.pid(), two.pid()];
        let own = record_watching(&pids, 3, &args(&["-G", &wanted.arg()]));
        assert_only(&own.folded, &["native", "kernel"]);
        for (pid, program) in pids.iter().zip(["native", "kernel"]) {
            own.assert_samples_of(&[*pid], own.folded.count(|stack| stack[0] == program));
        }
        let inner = record_watching(&[two.pid()], 2, &args(&["-G", &nested.arg()]));
        assert_only(&inner.folded, &["kernel"]);
        inner.assert_samples_of(&[two.pid()], inner.folded.total());
        assert_eq!(own.report["groups"].as_array().unwrap().len(), 1, "{name}");
    }
}

/// The same view as in a container of containerd or CRI-O on a host that uses only v2.
#[test]
fn groups_outside_our_own_cgroup_namespace_are_called_as_the_host_calls_them() {
    if !is_root() {
        return;
    }
    for (name, point) in hierarchies() {
        let pods = Group::own(&point, "pods");
        let (own, other) = (Group::make(pods.path(), "own"), Group::make(pods.path(), "other"));
        let _target = start(&other, "native");
        let mut inside = own.enter(Path::new("unshare"));
        inside.arg("--cgroup").arg(profiler::binary());
        inside.args(["-F", "999", "-d", "2", "--report", "json", "-G", &other.arg()]);
        let run = profiler::finish(inside.current_dir(scratch("namespace"))).success();
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let kept = report["accounts"]["kept"].as_u64().unwrap();
        assert!(kept > 50, "{name}: {kept} samples");
        let path = Path::new("/").join(other.path().strip_prefix(&point).unwrap());
        assert_eq!(report["groups"][0]["path"].as_str().map(Path::new), Some(path.as_path()), "{name}");
        assert!(!run.stderr.contains("cgroup"), "{name}: {}", run.stderr);
    }
}

#[test]
fn it_is_what_a_profile_of_all_has_of_the_same_seconds() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "same");
    let target = start(&group, "native");
    let _other = native::start("kernel");
    let pid = target.pid();
    let (all, own) = std::thread::scope(|scope| {
        let all = scope.spawn(|| record_watching(&[pid], 4, &args(&ALL)));
        let own = record_watching(&[pid], 4, &args(&["-G", &group.arg()]));
        (all.join().unwrap(), own)
    });
    assert_only(&own.folded, &["native"]);
    own.assert_samples_of(&[target.pid()], own.folded.total());
    let of_all = all.folded.of_thread(target.pid());
    all.assert_samples_of(&[target.pid()], of_all.total());
    for name in ["burn10", "burn20", "burn30", "burn40"] {
        let (one, two) = (own.folded.self_share(name), of_all.self_share(name));
        let n = own.folded.total().min(of_all.total()) as f64;
        assert!((one - two).abs() < 0.01 + 6.0 * (0.25 / n).sqrt(), "{name}: {one} and {two} of {n}");
    }
}

#[test]
fn processes_in_new_child_cgroups_are_profiled() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "later");
    let (profile, _nested, _target) = std::thread::scope(|scope| {
        let run = scope.spawn(|| record(5, &args(&["-G", &group.arg()])));
        std::thread::sleep(Duration::from_secs(2));
        let nested = Group::make(group.path(), "new");
        let target = start(&nested, "native");
        (run.join().unwrap(), nested, target)
    });
    assert_only(&entered(&profile.folded), &["native"]);
    assert!(profile.stderr.contains("has no process now"), "{}", profile.stderr);
}

#[test]
fn a_recreated_cgroup_is_profiled_again() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "again");
    let path = group.path().to_owned();
    let (profile, _again, _target) = std::thread::scope(|scope| {
        let run = scope.spawn(|| record(6, &args(&["-G", path.to_str().unwrap()])));
        std::thread::sleep(Duration::from_secs(2));
        drop(group);
        let again = Group::own(&naming(), "again");
        let target = start(&again, "native");
        (run.join().unwrap(), again, target)
    });
    assert_only(&entered(&profile.folded), &["native"]);
}

#[test]
fn two_groups_and_not_the_third() {
    if !is_root() {
        return;
    }
    let [one, two, three] = ["one", "two", "three"].map(|name| Group::own(&naming(), name));
    let targets = [start(&one, "native"), start(&two, "kernel")];
    let _third = start(&three, "unique");
    // One group by its directory, one by the path that /proc/PID/cgroup shows.
    let path = format!("/{}", two.path().file_name().unwrap().to_str().unwrap());
    let pids = targets.each_ref().map(Target::pid);
    let profile = record_watching(&pids, 2, &args(&["-G", &one.arg(), "-G", &path]));
    assert_only(&profile.folded, &["native", "kernel"]);
    profile.assert_samples_of(&pids, profile.folded.total());
}

/// A pod's cgroup as the kubelet and containerd make it, with its names in the node's files.
struct Pod {
    container: Group,
    _pod: Group,
}

impl Pod {
    fn make(kubepods: &Group, node: &Path, uid: &str, names: [&str; 3], id: &str) -> Pod {
        Pod::write_node_files(node, names, id);
        Pod::make_unnamed(kubepods, node, uid, names, id)
    }

    /// Writes the log file whose name has the names of the container.
    fn write_node_files(node: &Path, [namespace, pod, container]: [&str; 3], id: &str) {
        let logs = node.join("var/log/containers");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join(format!("{pod}_{namespace}_{container}-{id}.log")), "").unwrap();
    }

    fn make_unnamed(
        kubepods: &Group,
        node: &Path,
        uid: &str,
        [namespace, pod, container]: [&str; 3],
        id: &str,
    ) -> Pod {
        let log = node.join(format!("var/log/pods/{namespace}_{pod}_{uid}/{container}"));
        std::fs::create_dir_all(log).unwrap();
        let group = Group::make(kubepods.path(), &format!("pod{uid}"));
        Pod { container: Group::make(group.path(), id), _pod: group }
    }
}

/// The containers in the report: namespace, pod, container, id; and ticks.
fn rows(report: &Value) -> Vec<([String; 4], u64)> {
    let rows = report["containers"].as_array().unwrap().iter();
    let text = |row: &Value, name: &str| row["container"][name].as_str().unwrap_or("-").to_owned();
    rows.map(|row| {
        let names = ["namespace", "pod", "container", "id"].map(|name| text(row, name));
        (names, row["ticks"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn pods_by_name_with_their_labels_and_those_that_come_later() {
    if !is_root() {
        return;
    }
    let node = tempfile::tempdir().unwrap();
    let root = node.path().to_str().unwrap();
    let kubepods = Group::own(&naming(), "kubepods");
    let (first, second) = (id("a"), id("b"));
    let shop = Pod::make(&kubepods, node.path(), UIDS[0], ["prod", "shop-0", "app"], &first);
    let target = start(&shop.container, "native");
    let _other = native::start("unique");

    let one = record_watching(&[target.pid()], 2, &args(&["--pod", "shop-0", "--node-root", root]));
    assert_only(&one.folded, &["native"]);
    one.assert_samples_of(&[target.pid()], one.folded.total());
    let whole = (["prod", "shop-0", "app", &first].map(str::to_owned), one.folded.total());
    assert_eq!(rows(&one.report), [whole]);

    // A pod of the same namespace starts during the run; its group did not exist before.
    let (later, _late, _target) = std::thread::scope(|scope| {
        let run = scope.spawn(|| record(6, &args(&["--namespace", "prod", "--node-root", root])));
        std::thread::sleep(Duration::from_secs(2));
        let late = Pod::make(&kubepods, node.path(), UIDS[1], ["prod", "shop-1", "app"], &second);
        let target = start(&late.container, "kernel");
        (run.join().unwrap(), late, target)
    });
    assert_only(&entered(&later.folded), &["native", "kernel"]);
    let mut names: Vec<[String; 4]> = rows(&later.report).into_iter().map(|(names, _)| names).collect();
    names.sort();
    let expected = [["prod", "shop-0", "app", &first], ["prod", "shop-1", "app", &second]];
    assert_eq!(names, expected.map(|names| names.map(str::to_owned)));
}

/// The report of all processes while `happens` runs.
fn report_of_all(node: &Path, happens: impl FnOnce()) -> Value {
    profiler::while_sampling(&[], &["-a", "--node-root", node.to_str().unwrap()], happens).report
}

/// The kubelet names a container after it has started. A container may be gone before its stacks are read.
#[test]
fn a_name_that_comes_late_and_lives_that_are_short() {
    if !is_root() {
        return;
    }
    let node = tempfile::tempdir().unwrap();
    let (kubepods, names) = (Group::own(&naming(), "late-names"), ["prod", "late", "app"]);
    let late = Pod::make_unnamed(&kubepods, node.path(), UIDS[0], names, &id("a"));
    let _target = start(&late.container, "native");
    let report = report_of_all(node.path(), || {
        // At least one whole window has no name for this container.
        std::thread::sleep(Duration::from_millis(2500));
        Pod::write_node_files(node.path(), names, &id("a"));
        for digit in ["b", "c", "d", "e"] {
            let short = Group::make(kubepods.path(), &id(digit));
            let script = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";
            let mut shell = short.enter(Path::new("sh"));
            assert!(shell.args(["-c", script]).status().unwrap().success());
        }
        std::thread::sleep(Duration::from_millis(2500));
    });
    let rows = rows(&report);
    let ticks = |names: [&str; 4]| rows.iter().find(|row| row.0 == names).map_or(0, |row| row.1);
    let (named, before) = (["prod", "late", "app", &id("a")], ["prod", "late", "", &id("a")]);
    assert!(ticks(named) > 100 && ticks(before) > 100, "{rows:?}");
    // If very many programs start, the profiler may notice one of them too late.
    let sampled = ["b", "c", "d", "e"].iter().filter(|digit| ticks(["", "", "", &id(digit)]) > 20).count();
    assert!(sampled >= 3, "{sampled}: {rows:?}");
}

#[test]
fn each_container_has_a_file_and_its_labels() {
    if !is_root() {
        return;
    }
    let node = tempfile::tempdir().unwrap();
    let root = node.path().to_str().unwrap();
    let kubepods = Group::own(&naming(), "each");
    let pods = [("shop", "c"), ("bank", "d")].map(|(pod, digit)| {
        let uid = UIDS[usize::from(digit == "d")];
        Pod::make(&kubepods, node.path(), uid, ["test", pod, "app"], &id(digit))
    });
    let targets = [start(&pods[0].container, "native"), start(&pods[1].container, "kernel")];
    let _host = native::start("unique");
    let out = tempfile::tempdir().unwrap();
    let file = |name: &str| out.path().join(name);
    let (folded, pprof) = (file("x.folded"), file("x.pb.gz"));
    let line =
        ["-a", "-F", "999", "-d", "3", "--per-container", "--node-root", root, "--report", "text", "-o"];
    let outputs = [folded.to_str().unwrap(), "-o", pprof.to_str().unwrap()];
    let run = profiler::run(line.iter().chain(&outputs)).success();
    drop(targets);
    let read = |path: PathBuf| {
        Folded::parse(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
            .keep(|stack| stack[0] != "[lost]")
    };
    let all = read(folded);
    let mut sum = 0;
    for (pod, digit, program) in [("shop", "c", "native"), ("bank", "d", "kernel")] {
        let name = format!("test_{pod}_app-{}", &id(digit)[..12]);
        let own = read(file(&format!("x-{name}.folded")));
        assert_only(&own, &[program]);
        assert_eq!(own.total(), all.count(|stack| stack[0] == program));
        sum += own.total();
        assert!(run.stdout.contains(&format!("test/{pod}/app")), "{}", run.stdout);
        let mut text = Vec::new();
        let packed = std::fs::File::open(file(&format!("x-{name}.pb.gz"))).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut text).unwrap();
        let has = |part: &str| text.windows(part.len()).any(|at| at == part.as_bytes());
        for part in ["container.id", &id(digit), "k8s.pod.name", pod, "k8s.namespace.name", "k8s.pod.uid"] {
            assert!(has(part), "the profile of {pod} has no {part}");
        }
        assert!(has("process.pid") && has("process.executable.name") && has("thread.name"));
        assert!(!has(if pod == "shop" { "bank" } else { "shop" }), "another's name in the profile of {pod}");
    }
    let rest = read(file("x-no-container.folded"));
    assert!(rest.count(|stack| stack[0] == "unique") > 50, "{}", rest.top(10));
    assert_eq!(rest.total() + sum, all.total(), "each sample is in one file");
}

/// The sampled time in tenths of a second.
fn tenths(report: &Value) -> f64 {
    report["duration_s"].as_f64().unwrap() * 10.0
}

#[test]
fn cgroup_throttling_is_reported() {
    if !is_root() {
        return;
    }
    let Some(group) = Group::limitable("throttled") else {
        return skip("no hierarchy here has the cpu controller");
    };
    group.limit(200);
    let _target = start(&group, "native");
    let profile = record(3, &args(&["-G", &group.arg()]));
    assert_only(&profile.folded, &["native"]);
    let shown = &profile.report["groups"][0];
    assert!((shown["limit_cpus"].as_f64().unwrap() - 0.2).abs() < 1e-6, "{shown}");
    let n = |name: &str| shown[name].as_u64().unwrap();
    assert!(n("throttled_periods") > 5 && n("periods") >= n("throttled_periods"), "{shown}");
    assert!(n("throttled_usec") > 100_000, "{shown}");
    assert!(n("periods") as f64 <= tenths(&profile.report) + 2.0, "{shown} are not of the profile's seconds");
}

#[test]
fn only_the_throttled_jvm_reports_throttling() {
    if !is_root() {
        return;
    }
    let Some(group) = Group::limitable("throttled-jvm") else {
        return skip("no hierarchy here has the cpu controller");
    };
    let slow = Program::new("Shares").start_in(&group);
    let free = Program::new("Shares").start(&Jdk::host());
    // The limit is set only now: with it the JVM would take long to become ready.
    group.limit(200);
    let pids = format!("{},{}", slow.pid(), free.pid());
    let report = record(2, &args(&["-p", &pids])).report;
    let jvm = |target: &Target| {
        let mut rows = report["jvms"].as_array().unwrap().iter();
        rows.find(|row| row["pid"] == target.pid()).unwrap_or_else(|| panic!("{}", report["jvms"]))
    };
    let shown = &jvm(&slow)["throttling"];
    let n = |name: &str| shown[name].as_u64().unwrap_or_else(|| panic!("{}", jvm(&slow)));
    // The JVM wants a whole CPU and gets a fifth, so it is throttled in each tenth of a second of the profile.
    assert!(n("times") >= 5 && n("times") as f64 <= tenths(&report) + 2.0, "{shown} of {}", tenths(&report));
    assert!(n("usec") > 200_000, "{shown}");
    assert_eq!(jvm(&free)["throttling"], Value::Null);
}

#[test]
fn what_is_not_there_has_its_sentence() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "sentence");
    let twins = ["1", "2"].map(|end| Group::make(group.path(), &format!("{}{end}", &id("e")[..63])));
    let node = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["-G", "/no/such/group"], 4, "cgroup /no/such/group does not exist"),
        (&["-G", node.path().to_str().unwrap()], 2, "is not a cgroup"),
        (&["--container", "no-such-container"], 4, "no container is called no-such-container"),
        (&["--container", &id("e")[..20]], 2, "matches the ids of several containers: there are"),
        (&["--pod", "no-such-pod"], 4, "no pod is called no-such-pod"),
        (&["--namespace", "no-such"], 4, "no namespace is called no-such"),
    ];
    for (asked, code, said) in cases {
        let more = ["-d", "1", "-o", "-", "--node-root", node.path().to_str().unwrap()];
        profiler::run(asked.iter().chain(&more)).refused(code, said);
    }
    let both = ["-G", &group.arg(), "-d", "1", "--report", "none", "-o", "-"];
    let empty = profiler::run(both).success();
    assert!(empty.stderr.contains("has no process now"), "{}", empty.stderr);
    assert_eq!(empty.stdout, "", "nothing ran in it");
    profiler::run(["--per-container", "-d", "1", "-o", "-"])
        .refused(2, "--per-container writes several files");
    drop(twins);
}

fn shares() -> Vec<String> {
    let flags = ["/usr/bin/java", "-XX:+PreserveFramePointer", "-Xmx256m", "-cp", "/tmp/classes", "Shares"];
    flags.map(str::to_owned).to_vec()
}

/// JVMs in containers of runc: read-only root, no capability, no shell, another user, its own PID namespace. Then the
/// same in a user namespace.
#[test]
fn a_jvm_in_a_container_by_the_containers_name() {
    in_container(21, |jdk| {
        let root = jdk.root().unwrap();
        let mut binds = vec![(classes(), "/tmp/classes")];
        let shells =
            ["/usr/bin/dash", "/usr/bin/bash"].into_iter().filter(|shell| root.join(&shell[1..]).exists());
        binds.extend(shells.map(|shell| (Path::new("/dev/null"), shell)));
        let plain = container::config(root, &shares(), &binds);
        for config in [plain.clone(), container::in_user_namespace(plain)] {
            let name = container::new_name();
            let target = container::start_named(&name, &config);
            let _other = Program::new("Shares").start(&Jdk::host());
            let line = args(&["--container", &name]);
            let profile = record_watching(&[target.pid()], 4, &line);
            assert_only(&profile.folded, &["java"]);
            profile.assert_samples_of(&[target.pid()], profile.folded.total());
            let jvms = profile.report["jvms"].as_array().unwrap();
            assert_eq!(jvms.len(), 1, "{jvms:?}");
            let named = profile.folded.within("Shares.round");
            assert!(named.total() * 10 > profile.folded.total() * 9, "{jvms:?}:\n{}", named.top(10));
        }
    });
}

/// The names of runc's containers come from runc's own state files.
#[test]
fn containers_of_runc_have_their_names() {
    in_container(21, |jdk| {
        let node = scratch("node");
        let name = container::new_name();
        let state = node.join("run/runc").join(&name);
        std::fs::create_dir_all(&state).unwrap();
        let command = ["/tmp/native/native".to_owned()];
        let programs = native::program("native");
        let binds = [(programs.parent().unwrap(), "/tmp/native")];
        let target = container::start_named(&name, &container::config(jdk.root().unwrap(), &command, &binds));
        // The file as runc writes it, in runc's default place.
        let text = std::fs::read(scratch(&name).join("state").join(&name).join("state.json")).unwrap();
        std::fs::write(state.join("state.json"), text).unwrap();
        let profile = record_watching(
            &[target.pid()],
            2,
            &args(&[&ALL[..], &["--node-root", node.to_str().unwrap()]].concat()),
        );
        let rows = profile.report["containers"].as_array().unwrap();
        let own = rows.iter().find(|row| row["container"]["name"] == name.as_str()).expect("a row for it");
        profile.assert_samples_of(&[target.pid()], own["ticks"].as_u64().unwrap());
    });
}
