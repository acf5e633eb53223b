//! Profiles of cgroups, containers and pods: all samples of the target, and no samples of other processes.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use testkit::cgroup::{Group, Throttling, hierarchies, naming};
use testkit::claims::{Tally, at_least, prove, prove_tallies};
use testkit::folded::{Folded, has, is, user_leaf};
use testkit::java::{Jdk, Program, classes, in_container};
use testkit::profiler::{self, ALL, Profile, Sampling, is_main_thread, record_by, while_sampling, with_time};
use testkit::spent::{Watch, spend};
use testkit::target::Target;
use testkit::wald::Claim;
use testkit::{container, is_root, native, skip};

/// The truth of the program `native`.
const BURNS: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];

/// CPU time that has hundreds of samples.
const A_WHILE: Duration = Duration::from_millis(300);

fn start(group: &Group, program: &str) -> Target {
    Target::start(&mut group.enter(&native::program(program)))
}

/// A profile of one second at 2,999 Hz, and the CPU time of these processes: the first second in which the machine gave
/// each of them time.
fn second(watched: &[u32], args: &[&str]) -> Profile {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    with_time(watched, || record_by(&["-F", "2999"], watched, 1.0, &args))
}

/// Asserts that a profile has samples, all of them of these programs.
#[track_caller]
fn assert_only(folded: &Folded, programs: &[&str]) {
    assert!(folded.total() > 20, "the profile is empty:\n{}", folded.top(10));
    let others = folded.keep(|stack| !programs.contains(&stack[0].as_str()));
    assert_eq!(others.total(), 0, "{}", others.top(10));
}

/// Removes the shell that enters a group and then executes the program; a profile that began earlier may have it.
fn entered(folded: &Folded) -> Folded {
    folded.keep(|stack| stack[0] != "sh")
}

/// A number that no other test has.
fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A container's id that no other test has. Tests beside this one have pods, too, and a profiler finds all of them.
fn id(digit: &str) -> String {
    format!("{:06x}{:08x}{}", number(), std::process::id(), digit.repeat(50))
}

/// A pod's uid that no other test has.
fn uid() -> String {
    format!("0a1b2c3d-0000-1111-{:04x}-{:012x}", number(), std::process::id())
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
        let (own, inner) = std::thread::scope(|scope| {
            let inner = scope.spawn(|| second(&pids[1..], &["-G", &nested.arg()]));
            let own = second(&pids, &["-G", &wanted.arg()]);
            (own, inner.join().unwrap())
        });
        assert_only(&own.folded, &["native", "kernel"]);
        for (pid, program) in pids.iter().zip(["native", "kernel"]) {
            own.assert_samples_of(&[*pid], own.folded.count(|stack| stack[0] == program));
        }
        assert_only(&inner.folded, &["kernel"]);
        inner.assert_samples_of(&pids[1..], inner.folded.total());
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
        let (mut kept, mut runs) = (0, 0);
        // On a busy machine one run may have few samples.
        while kept <= 50 {
            let mut inside = own.enter(Path::new("unshare"));
            inside.arg("--cgroup").arg(profiler::binary());
            inside.args(["-F", "2999", "-d", "1", "--report", "json", "-o", "/dev/null", "-G", &other.arg()]);
            let run = profiler::finish(&mut inside).success();
            let report: Value = serde_json::from_str(&run.stdout).unwrap();
            let path = Path::new("/").join(other.path().strip_prefix(&point).unwrap());
            let shown = report["groups"][0]["path"].as_str().map(Path::new);
            assert_eq!(shown, Some(path.as_path()), "{name}");
            assert!(!run.stderr.contains("cgroup"), "{name}: {}", run.stderr);
            kept += report["accounts"]["kept"].as_u64().unwrap();
            runs += 1;
            assert!(runs < 20, "{name}: {kept} samples in {runs} runs");
        }
    }
}

/// Samples of a program in one of its functions.
fn tally(folded: &Folded, function: &str) -> Tally {
    let hits = folded.count(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, function)));
    Tally { hits, samples: folded.total() }
}

#[test]
fn it_is_what_a_profile_of_all_has_of_the_same_seconds() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "same");
    let target = start(&group, "native");
    let _other = native::start("kernel");
    let (pid, path) = (target.pid(), group.arg());
    let of = |whose: &str| BURNS.map(|(name, truth)| (format!("{name} in {whose}"), Claim::Is(truth)));
    let claims = [of("the group's profile"), of("the profile of all")].concat();
    prove_tallies(&claims, || {
        let (all, own) = std::thread::scope(|scope| {
            let all = scope.spawn(|| second(&[pid], &ALL));
            let own = second(&[pid], &["-G", &path]);
            (all.join().unwrap(), own)
        });
        assert_only(&own.folded, &["native"]);
        own.assert_samples_of(&[pid], own.folded.total());
        let of_all = all.folded.of_thread(pid);
        all.assert_samples_of(&[pid], of_all.total());
        let tallies = [&own.folded, &of_all].map(|folded| BURNS.map(|(name, _)| tally(folded, name)));
        tallies.concat()
    });
}

#[test]
fn processes_in_new_child_cgroups_are_profiled() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "later");
    let mut later = None;
    let profile = while_sampling(&[], &["-G", &group.arg()], || {
        let nested = Group::make(group.path(), "new");
        let target = start(&nested, "native");
        spend(target.pid(), A_WHILE);
        later = Some((target, nested));
    });
    drop(later);
    assert_only(&entered(&profile.folded), &["native"]);
}

#[test]
fn a_recreated_cgroup_is_profiled_again() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "again");
    let path = group.path().to_owned();
    let sampling = Sampling::begin(&["-G", path.to_str().unwrap()]);
    drop(group);
    let again = Group::make(&naming(), path.file_name().unwrap().to_str().unwrap());
    let target = start(&again, "native");
    sampling.wait_for("is chosen");
    spend(target.pid(), A_WHILE);
    sampling.signal(Signal::INT);
    let profile = sampling.end(Watch::keep(&[]));
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
    let profile = second(&pids, &["-G", &one.arg(), "-G", &path]);
    assert_only(&profile.folded, &["native", "kernel"]);
    profile.assert_samples_of(&pids, profile.folded.total());
}

/// A pod's cgroup as the kubelet and containerd make it, with its names in the node's files.
struct Pod {
    container: Group,
    _pod: Group,
}

impl Pod {
    fn make(kubepods: &Group, node: &Path, names: [&str; 3], id: &str) -> Pod {
        Pod::write_node_files(node, names, id);
        Pod::make_unnamed(kubepods, node, names, id)
    }

    /// Writes the log file whose name has the names of the container.
    fn write_node_files(node: &Path, [namespace, pod, container]: [&str; 3], id: &str) {
        let logs = node.join("var/log/containers");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join(format!("{pod}_{namespace}_{container}-{id}.log")), "").unwrap();
    }

    fn make_unnamed(kubepods: &Group, node: &Path, [namespace, pod, container]: [&str; 3], id: &str) -> Pod {
        let uid = uid();
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
    let (first, second_id) = (id("a"), id("b"));
    let shop = Pod::make(&kubepods, node.path(), ["prod", "shop-0", "app"], &first);
    let target = start(&shop.container, "native");
    let _other = native::start("unique");

    let one = second(&[target.pid()], &["--pod", "shop-0", "--node-root", root]);
    assert_only(&one.folded, &["native"]);
    one.assert_samples_of(&[target.pid()], one.folded.total());
    let whole = (["prod", "shop-0", "app", &first].map(str::to_owned), one.folded.total());
    assert_eq!(rows(&one.report), [whole]);

    // A pod of the same namespace starts during the run; its group did not exist before.
    let sampling = Sampling::begin(&["--namespace", "prod", "--node-root", root]);
    let late = Pod::make(&kubepods, node.path(), ["prod", "shop-1", "app"], &second_id);
    let late_target = start(&late.container, "kernel");
    sampling.wait_for("is chosen");
    for pid in [&target, &late_target].map(Target::pid) {
        spend(pid, A_WHILE);
    }
    sampling.signal(Signal::INT);
    let later = sampling.end(Watch::keep(&[]));
    assert_only(&entered(&later.folded), &["native", "kernel"]);
    let mut names: Vec<[String; 4]> = rows(&later.report).into_iter().map(|(names, _)| names).collect();
    names.sort();
    let expected = [["prod", "shop-0", "app", &first], ["prod", "shop-1", "app", &second_id]];
    assert_eq!(names, expected.map(|names| names.map(str::to_owned)));
}

/// How many containers live for a tenth of a second, and how many of them must have their row.
const LIVES: usize = 8;
const NOTICED: usize = 6;
/// How many profiles may be taken until one has these rows. A profiler that looks at cgroups only at the end of each
/// second sees one life of ten: six of eight lives in one of 36,000 profiles.
const MOST_PROFILES: usize = 20;

/// Containers that live for a tenth of a second of CPU time, one after the other; their ids.
fn short_lives(kubepods: &Group) -> Vec<String> {
    let live = |_| {
        let id = id("b");
        let short = Group::make(kubepods.path(), &id);
        let mut program = short.enter(&native::program("short"));
        assert!(program.arg("100").status().unwrap().success());
        id
    };
    (0..LIVES).map(live).collect()
}

/// How many of these containers have their own row with the samples of a life.
fn noticed(report: &Value, ids: &[String]) -> usize {
    let rows = rows(report);
    let ticks = |id: &String| rows.iter().find(|row| row.0 == ["", "", "", id]).map_or(0, |row| row.1);
    ids.iter().filter(|id| ticks(id) > 20).count()
}

/// The kubelet names a container after it has started. A container may be gone before its stacks are read.
#[test]
fn a_name_that_comes_late_and_lives_that_are_short() {
    if !is_root() {
        return;
    }
    /// The log has this of each window that is over.
    const WINDOW_IS_OVER: &str = "taken in within";
    let node = tempfile::tempdir().unwrap();
    let (kubepods, names, own) = (Group::own(&naming(), "late-names"), ["prod", "late", "app"], id("a"));
    let late = Pod::make_unnamed(&kubepods, node.path(), names, &own);
    let target = start(&late.container, "native");
    let args = [&ALL[..], &["-v", "--node-root", node.path().to_str().unwrap()]].concat();

    let sampling = Sampling::begin(&args);
    let begun = Instant::now();
    spend(target.pid(), A_WHILE);
    // Windows last a second or more, so one of these is over after that time, and has no name for this container.
    (0..=begun.elapsed().as_secs()).for_each(|_| sampling.wait_for(WINDOW_IS_OVER));
    Pod::write_node_files(node.path(), names, &own);
    let mut ids = short_lives(&kubepods);
    // The profiler looks for a missing name at the end of a window, unless it has just looked.
    (0..3).for_each(|_| sampling.wait_for(WINDOW_IS_OVER));
    spend(target.pid(), A_WHILE);
    sampling.signal(Signal::INT);
    let mut report = sampling.end(Watch::keep(&[])).report;
    let rows = rows(&report);
    let ticks = |names: [&str; 4]| rows.iter().find(|row| row.0 == names).map_or(0, |row| row.1);
    let (named, before) = (["prod", "late", "app", &own], ["prod", "late", "", &own]);
    assert!(ticks(named) > 100 && ticks(before) > 100, "{rows:?}");

    // While very many programs start, as tests beside this one may do, the profiler looks at cgroups at the end of a
    // window only.
    for _ in 1..MOST_PROFILES {
        if noticed(&report, &ids) >= NOTICED {
            return;
        }
        report = while_sampling(&[], &args, || ids = short_lives(&kubepods)).report;
    }
    panic!("{} of {LIVES} in the last of {MOST_PROFILES} profiles: {report}", noticed(&report, &ids));
}

#[test]
fn each_container_has_a_file_and_its_labels() {
    if !is_root() {
        return;
    }
    let node = tempfile::tempdir().unwrap();
    let root = node.path().to_str().unwrap();
    let kubepods = Group::own(&naming(), "each");
    let [shop, bank] = ["shop", "bank"].map(|pod| {
        let id = id("c");
        (Pod::make(&kubepods, node.path(), ["test", pod, "app"], &id), id)
    });
    let links = ["native", "kernel"].map(|name| native::under_own_name(&native::program(name), name));
    let [native, kernel] = links.each_ref().map(|link| link.file_name().unwrap().to_str().unwrap());
    let start = |pod: &Pod, program: &Path| Target::start(&mut pod.container.enter(program));
    let targets = [start(&shop.0, &links[0]), start(&bank.0, &links[1])];
    let (_host, unique) = native::start_under_own_name("unique");
    let out = tempfile::tempdir().unwrap();
    let file = |name: &str| out.path().join(name);
    let (folded, pprof) = (file("x.folded"), file("x.pb.gz"));
    // This profile has the programs of other tests, too.
    let line = ["-a", "--java", "off", "-F", "2999", "-d", "2", "--per-container", "--node-root", root];
    let outputs = ["--report", "text", "-o", folded.to_str().unwrap(), "-o", pprof.to_str().unwrap()];
    let run = profiler::run(line.iter().chain(&outputs)).success();
    drop(targets);
    let read = |path: PathBuf| {
        Folded::parse(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
            .keep(|stack| stack[0] != "[lost]")
    };
    let all = read(folded);
    for (pod, id, program, another) in [("shop", &shop.1, native, "bank"), ("bank", &bank.1, kernel, "shop")]
    {
        let name = format!("test_{pod}_app-{}", &id[..12]);
        let own = read(file(&format!("x-{name}.folded")));
        assert_only(&own, &[program]);
        assert_eq!(own.total(), all.count(|stack| stack[0] == program));
        assert!(run.stdout.contains(&format!("test/{pod}/app")), "{}", run.stdout);
        assert_labels(&file(&format!("x-{name}.pb.gz")), pod, id, another);
    }
    let rest = read(file("x-no-container.folded"));
    assert!(rest.count(|stack| stack[0] == unique) > 50, "{}", rest.top(10));
    let names = std::fs::read_dir(out.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let each = names.filter(|name| name.starts_with("x-") && name.ends_with(".folded"));
    let sum: u64 = each.map(|name| read(file(&name)).total()).sum();
    assert_eq!(sum, all.total(), "each sample is in one file");
}

/// Asserts that a container's pprof profile has its labels, and not the name of another pod.
#[track_caller]
fn assert_labels(pprof: &Path, pod: &str, id: &str, another: &str) {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(pprof).unwrap()).read_to_end(&mut text).unwrap();
    let has = |part: &str| text.windows(part.len()).any(|at| at == part.as_bytes());
    for part in ["container.id", id, "k8s.pod.name", pod, "k8s.namespace.name", "k8s.pod.uid"] {
        assert!(has(part), "the profile of {pod} has no {part}");
    }
    assert!(has("process.pid") && has("process.executable.name") && has("thread.name"));
    assert!(!has(another), "another's name in the profile of {pod}");
}

/// A limit, in thousandths of a CPU, that a busy program feels although the machine is busy.
const LIMIT: usize = 50;
/// Periods of a tenth of a second in which a group is to be throttled.
const PERIODS: u64 = 12;

/// Waits until a group has been throttled in `PERIODS` more periods, and returns what the kernel counted meanwhile.
fn throttled(group: &Group) -> Throttling {
    let (begun, until) = (group.throttling(), Instant::now() + Duration::from_secs(300));
    while group.throttling().throttled_periods < begun.throttled_periods + PERIODS {
        assert!(Instant::now() < until, "the limit is not felt: {:?}", since(group, begun));
        std::thread::sleep(Duration::from_millis(10));
    }
    since(group, begun)
}

/// What the kernel has counted since then.
fn since(group: &Group, then: Throttling) -> Throttling {
    let now = group.throttling();
    Throttling {
        periods: now.periods - then.periods,
        throttled_periods: now.throttled_periods - then.throttled_periods,
        seconds: now.seconds - then.seconds,
    }
}

/// Asserts that a report has as many throttled periods, and as much throttled time, as the kernel counted: at least
/// within the profile, at most from before it until after it.
#[track_caller]
fn assert_throttling(times: &Value, usec: &Value, within: Throttling, around: Throttling) {
    let times = times.as_u64().unwrap();
    assert!(
        (within.throttled_periods..=around.throttled_periods).contains(&times),
        "{times}: {within:?} {around:?}"
    );
    // Microseconds are rounded.
    let (least, most) = (within.seconds * 1e6 - 2.0, around.seconds * 1e6 + 2.0);
    let usec = usec.as_u64().unwrap() as f64;
    assert!((least..=most).contains(&usec), "{usec}: {within:?} {around:?}");
}

#[test]
fn cgroup_throttling_is_reported() {
    if !is_root() {
        return;
    }
    let Some(group) = Group::limitable("throttled") else {
        return skip("no hierarchy here has the cpu controller");
    };
    group.limit(LIMIT);
    let _target = start(&group, "native");
    // This is before the profile, whose report does not have it.
    throttled(&group);
    let (before, mut within) = (group.throttling(), None);
    let profile = while_sampling(&[], &["-G", &group.arg()], || within = Some(throttled(&group)));
    let (within, around) = (within.unwrap(), since(&group, before));
    assert_only(&profile.folded, &["native"]);
    let shown = &profile.report["groups"][0];
    assert!((shown["limit_cpus"].as_f64().unwrap() - LIMIT as f64 / 1e3).abs() < 1e-6, "{shown}");
    assert_throttling(&shown["throttled_periods"], &shown["throttled_usec"], within, around);
    let periods = shown["periods"].as_u64().unwrap();
    assert!((within.periods..=around.periods).contains(&periods), "{periods}: {within:?} {around:?}");
    assert!(periods >= shown["throttled_periods"].as_u64().unwrap(), "{shown}");
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
    let pids = format!("{},{}", slow.pid(), free.pid());
    let (before, mut within) = (group.throttling(), None);
    let profile = while_sampling(&[], &["-p", &pids], || {
        // The limit is set only now: with it the JVM would take long to become ready.
        group.limit(LIMIT);
        within = Some(throttled(&group));
    });
    let around = since(&group, before);
    let jvm = |target: &Target| {
        let mut rows = profile.report["jvms"].as_array().unwrap().iter();
        rows.find(|row| row["pid"] == target.pid()).unwrap_or_else(|| panic!("{}", profile.report["jvms"]))
    };
    let shown = &jvm(&slow)["throttling"];
    assert!(shown.is_object(), "{}", jvm(&slow));
    assert_throttling(&shown["times"], &shown["usec"], within.unwrap(), around);
    assert_eq!(jvm(&free)["throttling"], Value::Null);
}

#[test]
fn what_is_not_there_has_its_sentence() {
    if !is_root() {
        return;
    }
    let group = Group::own(&naming(), "sentence");
    let id = id("e");
    let beginning = &id[..63];
    let twins = ["1", "2"].map(|end| Group::make(group.path(), &format!("{beginning}{end}")));
    let node = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["-G", "/no/such/group"], 4, "cgroup /no/such/group does not exist"),
        (&["-G", node.path().to_str().unwrap()], 2, "is not a cgroup"),
        (&["--container", "no-such-container"], 4, "no container is called no-such-container"),
        (&["--container", &beginning[..20]], 2, "matches the ids of several containers: there are"),
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
        let _other = Program::new("Shares").start(&Jdk::host());
        for config in [plain.clone(), container::in_user_namespace(plain)] {
            let name = container::new_name();
            let target = container::start_named(&name, &config);
            let batch = || {
                let profile = second(&[target.pid()], &["--container", &name, "--per-thread"]);
                assert_only(&profile.folded, &["java"]);
                profile.assert_samples_of(&[target.pid()], profile.folded.total());
                let jvms = profile.report["jvms"].as_array().unwrap();
                assert_eq!(jvms.len(), 1, "{jvms:?}");
                profile.folded
            };
            let named = has("Shares.round");
            // How much the compiler threads work is a matter of the machine.
            prove(batch, &[at_least(0.9, "named stacks of the main thread", named).among(is_main_thread)]);
        }
    });
}

/// The names of runc's containers come from runc's own state files.
#[test]
fn containers_of_runc_have_their_names() {
    in_container(21, |jdk| {
        let node = tempfile::tempdir().unwrap();
        let name = container::new_name();
        let state = node.path().join("run/runc").join(&name);
        std::fs::create_dir_all(&state).unwrap();
        let command = ["/tmp/native/native".to_owned()];
        let programs = native::program("native");
        let binds = [(programs.parent().unwrap(), "/tmp/native")];
        let target = container::start_named(&name, &container::config(jdk.root().unwrap(), &command, &binds));
        // The file as runc writes it, in runc's default place.
        std::fs::copy(container::state_file(&name), state.join("state.json")).unwrap();
        let args = [&ALL[..], &["--node-root", node.path().to_str().unwrap()]].concat();
        let profile = second(&[target.pid()], &args);
        let rows = profile.report["containers"].as_array().unwrap();
        let own = rows.iter().find(|row| row["container"]["name"] == name.as_str()).expect("a row for it");
        profile.assert_samples_of(&[target.pid()], own["ticks"].as_u64().unwrap());
    });
}
