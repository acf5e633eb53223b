//! The daemon's page in a real browser: its token, its controls, and what they bring.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use jbpf_prof::output::{self, OutputTarget, PictureOptions};
use jbpf_prof::profile::pauses::{PauseMark, PauseTotals};
use jbpf_prof::profile::samples::TimeSpan;
use jbpf_prof::profile::{Frame, Kind, Labels, Profile};
use jbpf_prof::sample::Event;
use serde_json::json;
use testkit::browser::{self, Browser};
use testkit::cgroup::{Group, naming};
use testkit::is_root;
use testkit::native;
use testkit::target::Target;

use super::pods::{Pod, new_uid};
use super::receiver::free_port;
use super::run::Daemon;
use super::{home, now_ms};

/// True once samples are shown.
const SHOWN: &str = "window.jbpfProf !== undefined";
const MINUTE_MS: u64 = 60_000;
const WINDOW_MS: u64 = 1000;
/// Samples of a window of the past.
const SAMPLES: u64 = 500;
/// The pod that the page profiles; no other test has the namespace.
const NAMESPACE: &str = "paged";

/// A stored window of the past, with one function.
fn store(windows: &Path, start_ms: u64, function: &str) {
    let mut profile = Profile::new();
    let stack = [Frame::named(Kind::Process, "shop"), Frame::named(Kind::Native, function)].map(Arc::new);
    profile.add(&Labels { pid: 7, process: "shop".into(), ..Labels::default() }, &stack, SAMPLES, 0);
    let accounts = profile.accounts_mut(Event::Cpu);
    (accounts.taken, accounts.kept, accounts.period_ns) = (SAMPLES, SAMPLES, 10_101_010);
    let totals = PauseTotals { safepoints: 3, safepoint_usec: 12_000, ..PauseTotals::default() };
    profile.pauses.add(PauseMark { pid: 7, second: 0, totals });
    profile.span = TimeSpan { start_unix_ns: start_ms * 1_000_000, duration_ns: WINDOW_MS * 1_000_000 };
    let file = windows.join(format!("{start_ms:015}-{WINDOW_MS:07}.pb.gz"));
    output::write(&profile.views(), &OutputTarget::parse(&file, None).unwrap(), &PictureOptions::default())
        .unwrap();
}

fn live_state(page: &mut Browser, words: &str) {
    page.wait_for(&format!("document.getElementById('live-state').textContent.includes({})", json!(words)));
}

fn click(page: &mut Browser, id: &str) {
    page.value(&format!("document.getElementById({}).click()", json!(id)));
}

/// Chooses an option of a selection by its text.
fn choose(page: &mut Browser, id: &str, text: &str) {
    let option = format!(
        "[...document.getElementById({}).options].find((one) => one.text === {})",
        json!(id),
        json!(text)
    );
    page.wait_for(&format!("{option} !== undefined"));
    page.value(&format!("{option}.selected = true"));
}

/// Types a token into the form and sends it.
fn enter(page: &mut Browser, token: &str) {
    page.wait_for("document.activeElement?.id === 'token-text'");
    page.type_text(token);
    page.key("Enter", false);
}

#[test]
fn the_page_profiles_a_pod_and_compares_with_the_time_before() {
    if !is_root() || browser::is_missing() {
        return;
    }
    let home = home("page");
    let windows = home.join("data/windows");
    fs::create_dir_all(&windows).unwrap();
    let now = now_ms();
    // The times to compare end five minutes before the last window, which a busy machine stores some minutes from now.
    store(&windows, now - 5 * MINUTE_MS - MINUTE_MS / 2, "work_before");
    store(&windows, now - 11 * MINUTE_MS, "work_long_before");
    fs::write(home.join("token"), "right\n").unwrap();
    let pods = Group::own(&naming(), "kubepods");
    let pod = Pod::make(&pods, &format!("{NAMESPACE}_web-0"), &new_uid());
    let _in_pod = Target::start(&mut pod.group.enter(&native::program("native")));
    let port = free_port();
    let settings = format!(
        "api = \"127.0.0.1:{port}\"\ntoken-file = \"{}/token\"\nevents = [\"cpu\", \"context-switches\"]",
        home.display()
    );
    let mut daemon = Daemon::start(&home, &settings);
    daemon.wait("an open port", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());

    let mut page = Browser::start(&home, 1200, 800);
    page.open_served(
        &format!("http://127.0.0.1:{port}/"),
        "document.getElementById('token')?.hidden === false",
    );
    enter(&mut page, "wrong");
    page.wait_for("document.getElementById('token').textContent.includes('The token is not right.')");
    assert_eq!(page.value("window.jbpfProf === undefined"), true, "no samples without the token");
    enter(&mut page, "right");
    live_state(&mut page, "live");
    page.wait_for(SHOWN);
    // Chromium reports the refused request itself.
    let refused = std::mem::take(&mut page.complaints);
    assert!(refused.iter().all(|one| one.contains("401 (Unauthorized)")), "{refused:?}");

    assert_profiles_the_pod(&mut page);
    click(&mut page, "back");
    live_state(&mut page, "live");
    // What the daemon has stored is compared later.
    page.wait_for(
        "(({ profile, shown }) => [...shown.sums.own].some((own, node) => own > 60 && \
         profile.nameOf(profile.symbol[node]).startsWith('burn')))(jbpfProf)",
    );
    assert_compares(&mut page);
    assert_eq!(page.complaints, [""; 0]);
}

fn assert_profiles_the_pod(page: &mut Browser) {
    let rate = page.text("#facts");
    assert!(rate.contains(" at 99 Hz"), "{rate}");
    choose(page, "place", &format!("pod {NAMESPACE}/web-0"));
    choose(page, "event", "CPU time");
    page.value("document.getElementById('length').value = 1");
    // The progress as far as the user sees it.
    page.value(
        "((bar) => new MutationObserver(() => { if (!bar.hidden) window.progressed = Math.max(window.progressed, bar.value); }) \
         .observe(bar, { attributes: true }))(document.getElementById('progress'))",
    );
    // On a busy machine a second may have few samples of the pod, and the page may be drawn rarely.
    for _ in 0..60 {
        let (samples, progress) = profile_the_pod(page);
        if samples > 10.0 && progress > 0.1 {
            return;
        }
    }
    panic!("no profile of the pod has samples, or no progress is shown");
}

/// Asks for a profile of the pod, and asserts what it has. Returns its samples, and the progress that was shown before.
fn profile_the_pod(page: &mut Browser) -> (f64, f64) {
    let what = format!("1 s, pod {NAMESPACE}/web-0, CPU time");
    let state = page.value(
        "(window.progressed = 0, document.getElementById('now').click(), document.getElementById('live-state').textContent)",
    );
    assert!(state.as_str().unwrap().contains(&format!("profiling: {what}")), "{state}");
    live_state(page, &format!("a profile of {what}"));
    let facts = page.value(
        "(({ profile }) => [profile.events.map((one) => one.name), profile.containers.map((one) => one.pod), \
         [...profile.keyLabels].every((at) => profile.labels.container[at] === 0), \
         document.getElementById('progress').hidden])(jbpfProf)",
    );
    assert_eq!(facts, json!([["cpu"], ["web-0"], true, true]));
    let number = |page: &mut Browser, expression: &str| page.value(expression).as_f64().unwrap();
    (number(page, "jbpfProf.shown.sums.whole"), number(page, "window.progressed"))
}

fn assert_compares(page: &mut Browser) {
    let disabled = page.value("[...document.getElementById('before').options].map((one) => one.disabled)");
    assert_eq!(disabled, json!([false, true, true, true]), "only what is stored is offered");
    click(page, "compare");
    live_state(page, "the last 5 min against the time before");
    // The time before has one window of the two, the time now what the daemon has sampled itself.
    let own = |sums: &str| {
        format!(
            "[...{sums}.own].flatMap((own, node) => own > 0 ? [[jbpfProf.profile.nameOf(jbpfProf.profile.symbol[node]), own]] : [])"
        )
    };
    assert_eq!(page.value(&own("jbpfProf.shown.base")), json!([["work_before", SAMPLES]]));
    let pauses = page.value("['range', 'base'].map((name) => jbpfProf.pauses.byJvm(jbpfProf.selection[name]).filter(({ pid }) => pid === 7))");
    let shop = json!({"pid": 7, "name": "shop (7)", "safepoints": 3, "safepoint_usec": 12_000, "collections": 0, "collection_usec": 0});
    assert_eq!(pauses, json!([[], [shop]]));
    let now: Vec<(String, f64)> = serde_json::from_value(page.value(&own("jbpfProf.shown.sums"))).unwrap();
    assert!(now.iter().any(|(name, own)| name.starts_with("burn") && *own > 50.0), "{now:?}");
    assert!(now.iter().all(|(name, _)| !name.starts_with("work_")), "{now:?}");
}
