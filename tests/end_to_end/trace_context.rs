//! Trace contexts, end to end: programs that publish the spans of their threads as OTEP 4947 says, in each way in which
//! thread-local variables are found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jbpf_prof::output;
use jbpf_prof::profile::Profile;
use jbpf_prof::sample::{Event, SpanContext};
use testkit::claims::{Tally, prove_tallies};
use testkit::java::{classes, on_host};
use testkit::profiler::{Profile as Sampled, Run, lost, out_file, run, while_sampling};
use testkit::spent::spend;
use testkit::target::Target;
use testkit::wald::Claim;
use testkit::{is_root, native, scratch};

/// The flags of a program that has the writer itself.
const OWN: [&str; 4] =
    ["-fno-omit-frame-pointer", "-pthread", "-DLINKED", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"];

fn own_writer() -> PathBuf {
    let writer = testkit::sources().join("span_writer.c");
    native::with_flags("spans.c", "spans-own", &[&OWN[..], &[writer.to_str().unwrap()]].concat())
}

/// A program that opens its writer, which is a library with these flags, when `go` exists.
fn opened_writer(flags: &[&str]) -> (PathBuf, PathBuf) {
    let program = native::with_flags("spans.c", "spans-open", &["-fno-omit-frame-pointer", "-pthread"]);
    let dir = scratch("span-writer").join(flags.join("")).join("lib");
    fs::create_dir_all(&dir).unwrap();
    let flags: Vec<_> = flags.iter().map(|flag| flag.as_ref()).collect();
    (program, native::library(&dir, "span_writer", &flags))
}

/// The result of a run: its profile and its report.
struct Traced {
    profile: Profile,
    report: serde_json::Value,
}

/// Reads and removes the file of a run.
fn take(out: &Path) -> Profile {
    let profile = output::read(out).unwrap();
    fs::remove_file(out).unwrap();
    profile
}

/// A profile of some seconds.
fn traced(pid: u32, seconds: &str, more: &[&str]) -> Traced {
    let out = out_file("pb.gz");
    let (pid, name) = (pid.to_string(), out.to_str().unwrap());
    let args = ["-p", &pid, "-F", "2999", "-d", seconds, "--report", "json", "-o", name];
    let Run { stdout, .. } = run([&args[..], more].concat()).success();
    Traced { profile: take(&out), report: serde_json::from_str(&stdout).unwrap() }
}

/// A profile with trace contexts, from before something happens until it has happened.
fn traced_while(target: &Target, happens: impl FnOnce()) -> (Traced, Sampled) {
    let out = out_file("pb.gz");
    let pid = target.pid().to_string();
    let args = ["-p", &pid, "--trace-context", "-o", out.to_str().unwrap()];
    let sampled = while_sampling(&[target.pid()], &args, happens);
    (Traced { profile: take(&out), report: sampled.report.clone() }, sampled)
}

/// Samples by the function of the program that ran, and by their span.
fn by_function(profile: &Profile) -> BTreeMap<(String, Option<SpanContext>), u64> {
    let mut sums = BTreeMap::new();
    for sample in profile.samples() {
        let names = profile
            .trie()
            .path_to_root(sample.leaf)
            .map(|node| profile.frames().get(profile.frame_of(node)).name);
        let known = |name: &str| name.starts_with("span_") || name == "no_span";
        let mut methods = names.map(|name| name.strip_prefix("Endpoints.").unwrap_or(&name).to_owned());
        let function = methods.find(|name| known(name)).unwrap_or_default();
        *sums.entry((function, profile.labels(sample.labels).span)).or_default() += sample.weight.count;
    }
    sums
}

/// Samples by the first byte of their trace: 16 * thread + number. Asserts that each sample in a function has exactly
/// the function's span.
#[track_caller]
fn by_trace(traced: &Traced) -> BTreeMap<u8, u64> {
    let sums = by_function(&traced.profile);
    let mut of_span: BTreeMap<u8, u64> = BTreeMap::new();
    for ((function, span), count) in &sums {
        let number: Option<u8> = function.strip_prefix("span_").map(|number| number.parse().unwrap());
        match (number, span) {
            (Some(number), Some(SpanContext { trace, span })) => {
                let id = trace.0[0];
                assert!(
                    [16 + number, 32 + number].contains(&id),
                    "{function} has the trace {trace}: {sums:#?}"
                );
                assert_eq!((trace.0, span.0), ([id; 16], [id + 128; 8]), "ids are mixed: {sums:#?}");
                *of_span.entry(id).or_default() += count;
            }
            (Some(_), None) => panic!("{function} has no trace: {sums:#?}"),
            (None, Some(span)) => assert!(function.is_empty(), "no_span has {span:?}: {sums:#?}"),
            (None, None) => {}
        }
    }
    let traces = &traced.report["traces"];
    assert!(traces["in_span"].as_u64().unwrap() >= of_span.values().sum::<u64>(), "{traces}");
    assert_accounts(traced);
    of_span
}

/// Proves that the spans of a program are right, and have their shares; `check` looks at each profile.
#[track_caller]
fn prove_spans(pid: u32, check: impl Fn(&Traced)) {
    // Threads share CPUs with others, so only the spans of one thread have known shares.
    let spans: [(u8, u8); 6] = [(16, 1), (16, 2), (16, 3), (32, 1), (32, 2), (32, 3)];
    let claims = spans
        .map(|(thread, number)| (format!("span {}", thread + number), Claim::Is(f64::from(number) / 6.0)));
    prove_tallies(&claims, || {
        let traced = traced(pid, "2", &["--trace-context"]);
        check(&traced);
        let sums = by_trace(&traced);
        let of = |id: u8| sums.get(&id).copied().unwrap_or(0);
        let tally = |(thread, number): (u8, u8)| {
            let samples = (1..=3).map(|number| of(thread + number)).sum();
            Tally { hits: of(thread + number), samples }
        };
        spans.map(tally).to_vec()
    });
}

/// Asserts that each sample of the profile counts as one with, without or with an unknown trace, and that none is lost.
#[track_caller]
fn assert_accounts(traced: &Traced) {
    let traces = &traced.report["traces"];
    let number = |name: &str| traces[name].as_u64().unwrap();
    let kept = traced.report["accounts"]["kept"].as_u64().unwrap();
    let all: u64 = ["in_span", "no_span", "unread", "unpublished"].map(number).iter().sum();
    assert_eq!((all, lost(&traced.report)), (kept, 0), "{traces}");
    let with_span: u64 =
        by_function(&traced.profile).iter().filter(|((_, span), _)| span.is_some()).map(|(_, n)| n).sum();
    assert_eq!(number("in_span"), with_span);
}

#[test]
fn spans_of_a_program_s_own_writer_are_right() {
    if !is_root() {
        return;
    }
    let target = Target::start(Command::new(own_writer()).args(["-", "-"]));
    prove_spans(target.pid(), |traced| {
        assert_eq!(traced.report["traces"]["unpublished"], 0, "{}", traced.report["traces"]);
    });
}

#[test]
fn spans_of_a_java_service_are_right() {
    on_host(25, |jdk| {
        let tool = |name| Command::new(jdk.home().expect("it is on the host").join("bin").join(name));
        let (dir, source) = (scratch("endpoints"), testkit::sources().join("jdk22/Endpoints.java"));
        let compiled =
            tool("javac").arg("-d").arg(&dir).arg("-cp").arg(classes()).arg(source).status().unwrap();
        assert!(compiled.success(), "it does not compile");
        let library = native::library(&dir, "span_writer", &[]);
        let path = format!("{}:{}", dir.display(), classes().display());
        let target = Target::start(
            tool("java")
                .args(["--enable-native-access=ALL-UNNAMED", "-XX:CompileCommand=quiet"])
                .args(["-XX:CompileCommand=dontinline,Endpoints::*span*", "-cp", &path, "Endpoints"])
                .arg(library),
        );
        prove_spans(target.pid(), |_| {});
    });
}

/// Libraries that are opened while the program runs have their blocks wherever there is room.
#[test]
fn spans_of_a_writer_that_is_opened_later_are_right() {
    if !is_root() {
        return;
    }
    let x86 = cfg!(target_arch = "x86_64");
    let descriptors = if x86 { "-mtls-dialect=gnu2" } else { "-mtls-dialect=desc" };
    let general = if x86 { "-mtls-dialect=gnu" } else { "-mtls-dialect=trad" };
    for flags in [vec![general], vec![descriptors], vec!["-ftls-model=initial-exec"]] {
        let (program, library) = opened_writer(&flags);
        let go = scratch("span-writer").join("go");
        let mut right = 0;
        // Samples from before the first look at the library have no span.
        for _ in 0..10 {
            let _ = fs::remove_file(&go);
            let target = start_opening(&program, &library, &go);
            // The library is mapped and linked while sampling goes on.
            let (traced, _) = traced_while(&target, || {
                fs::write(&go, "").unwrap();
                spend(target.pid(), Duration::from_secs(2));
            });
            right += with_right_span(&traced, &flags);
            if right > 100 {
                break;
            }
        }
        assert!(right > 100, "{flags:?}: only {right} samples have a span");
    }
}

fn start_opening(program: &Path, library: &Path, go: &Path) -> Target {
    Target::start(Command::new(program).arg(library).arg(go))
}

/// The samples that have their span. Asserts that no sample has a false one.
#[track_caller]
fn with_right_span(traced: &Traced, flags: &[&str]) -> u64 {
    let sums = by_function(&traced.profile);
    let mut right = 0;
    for ((function, span), count) in &sums {
        let (Some(number), Some(SpanContext { trace, span })) = (function.strip_prefix("span_"), span) else {
            continue;
        };
        let (number, id): (u8, u8) = (number.parse().unwrap(), trace.0[0]);
        assert!([16 + number, 32 + number].contains(&id), "{flags:?}: {sums:#?}");
        assert_eq!((trace.0, span.0), ([id; 16], [id + 128; 8]), "{flags:?}: {sums:#?}");
        right += count;
    }
    assert_accounts(traced);
    right
}

#[test]
fn one_trace_is_kept() {
    if !is_root() {
        return;
    }
    let target = Target::start(Command::new(own_writer()).args(["-", "-"]));
    let id = "13".repeat(16);
    // The other traces are filtered: those of the other thread, and half of the time of the own one. A busy machine may
    // give the own one more time.
    let claims = [("samples of the trace".to_owned(), Claim::AtMost(0.5))];
    prove_tallies(&claims, || {
        let traced = traced(target.pid(), "1", &["--trace", &id]);
        let sums = by_function(&traced.profile);
        for (function, span) in sums.keys() {
            assert_eq!(span.unwrap().trace.to_string(), id, "{function}: {sums:#?}");
        }
        traced.profile.check().unwrap();
        let accounts = traced.profile.accounts(Event::Cpu);
        assert!(accounts.kept > 0, "{accounts:?}");
        vec![Tally { hits: accounts.kept, samples: accounts.kept + accounts.filtered }]
    });
    run(["-d", "1", "--trace", "13", "-o", "-"]).refused(2, "expected 32 hexadecimal digits");
}

/// No published content costs a program its samples.
#[test]
fn hostile_contexts_lose_no_samples() {
    if !is_root() {
        return;
    }
    let target = Target::start(Command::new(own_writer()).args(["-", "-", "hostile"]));
    let (mut unread, mut worked) = (0, 0);
    for _ in 0..10 {
        let (traced, sampled) = traced_while(&target, || spend(target.pid(), Duration::from_secs(2)));
        assert_accounts(&traced);
        sampled.assert_samples_of(&[target.pid()], sampled.folded.total());
        unread += traced.report["traces"]["unread"].as_u64().unwrap();
        let sums = by_function(&traced.profile);
        worked += sums.iter().filter(|((name, _), _)| !name.is_empty()).map(|(_, n)| n).sum::<u64>();
        if unread > 50 && worked > 50 {
            return;
        }
    }
    panic!("the test reached {unread} false pointers, and {worked} samples of threads with one");
}

#[test]
fn without_the_option_nothing_is_read() {
    if !is_root() {
        return;
    }
    let target = Target::start(Command::new(own_writer()).args(["-", "-"]));
    let mut samples = 0;
    for _ in 0..20 {
        let traced = traced(target.pid(), "1", &[]);
        let sums = by_function(&traced.profile);
        assert!(sums.keys().all(|(_, span)| span.is_none()), "{sums:#?}");
        assert_eq!(traced.report.get("traces"), None);
        samples += sums.values().sum::<u64>();
        if samples > 100 {
            return;
        }
    }
    panic!("only {samples} samples of a busy program");
}

/// Each process has the attributes that it publishes, cleaned and without those that jbpf-prof measures. No content costs
/// a process its samples.
#[test]
fn published_attributes_are_those_of_the_process() {
    if !is_root() {
        return;
    }
    let program = native::with_flags("publisher.c", "publisher", &["-fno-omit-frame-pointer", "-pthread"]);
    let hows = ["file", "anonymous", "changing", "garbage", "nowhere"];
    let targets = hows.map(|how| Target::start(Command::new(&program).args([how, how])));
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for _ in 0..20 {
        let out = out_file("pb.gz");
        let name = out.to_str().unwrap();
        run(["-p", &pids, "-F", "999", "-d", "1", "--trace-context", "-o", name]).success();
        let profile = take(&out);
        for sample in profile.samples() {
            let labels = profile.labels(sample.labels);
            let at = targets.iter().position(|target| target.pid() == labels.pid).unwrap();
            let attributes = labels.resource.iter().flat_map(|resource| resource.iter());
            let text: Vec<String> = attributes.map(|of| format!("{}={}", of.key, of.value)).collect();
            seen.entry(hows[at]).or_default().insert(text.join(" "));
        }
        if seen.len() == hows.len() {
            break;
        }
    }
    assert_eq!(seen.len(), hows.len(), "each process ran: {seen:#?}");
    let of = |how: &str, version: &str| {
        format!("deployment.environment.name=test? service.name={how} service.version={version}")
    };
    let has_names = has_named_mappings(targets[1].pid());
    for (how, texts) in &seen {
        for text in texts {
            match *how {
                "file" => assert_eq!(*text, of(how, "0000000000000000")),
                "anonymous" if has_names => assert_eq!(*text, of(how, "0000000000000000")),
                "changing" => {
                    let whole = ["0000000000000000", "1"].map(|version| of(how, version));
                    assert!(text.is_empty() || whole.contains(text), "a torn record: {text}");
                }
                _ => assert_eq!(text, "", "{how}"),
            }
        }
    }
}

/// Whether the kernel names mappings of private memory (Linux 5.17, with `CONFIG_ANON_VMA_NAME`).
fn has_named_mappings(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("[anon:OTEL_CTX]")
}
