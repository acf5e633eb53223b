//! The page in a real browser: its numbers are the profile's for each selection; names of hostile programs do
//! nothing; people without a mouse or a screen can use it.

mod fixture;
mod live;
mod npm;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use jbpf_prof::output::PictureOptions;
use jbpf_prof::profile::report::{JvmReport, ReportedNameSource};
use jbpf_prof::profile::{Frame, Kind, Labels, Profile, RunReport};
use jbpf_prof::sample::{Event, LockKind, ThreadState};
use jbpf_prof::waits::{LockView, WaitFilter, WaitView};
use serde_json::{Value, json};
use testkit::browser::{self, Browser};
use testkit::claims::{Tally, prove_tallies};
use testkit::java::{Jdk, Program};
use testkit::wald::Claim;
use testkit::{is_root, native, profiler, repository, scratch};

use fixture::{LOST, Row, SECONDS, functions, rows, sum};

/// True once the page is there.
const READY: &str = "window.jbpfProf !== undefined";

/// A browser with the page of the fixture; `None` without Chromium.
fn fixture_page(part: &str) -> Option<(Browser, PathBuf)> {
    if browser::is_missing() {
        return None;
    }
    let home = scratch(part);
    let file = home.join("page.html");
    let report = RunReport {
        target: "all processes".into(),
        duration_s: 6.0,
        warnings: vec!["The host was busy.".into()],
        jvms: vec![JvmReport {
            pid: 7,
            name: "Shop".into(),
            version: "21.0.2".into(),
            names: ReportedNameSource::AgentLate { ms: 240 },
            ..JvmReport::default()
        }],
        ..RunReport::default()
    };
    let picture_options = PictureOptions { report: Some(Arc::new(report)), ..PictureOptions::default() };
    fixture::write(&fixture::profile(&rows()), &file, &picture_options);
    let mut browser = Browser::start(&home, 1200, 800);
    browser.open(&file, "", READY);
    Some((browser, file))
}

/// The cells of the rows of a table: without shares, which stand in an element of their own.
fn table(browser: &mut Browser, selector: &str) -> Vec<Vec<String>> {
    let cells = "[...row.cells].map((cell) => cell.querySelector('.share') ? cell.firstChild.data : cell.textContent)";
    let rows = format!("[...document.querySelectorAll({})].map((row) => {cells})", json!(selector));
    serde_json::from_value(browser.value(&rows)).unwrap()
}

/// Name, total and own samples of the functions that the page shows.
fn shown_functions(browser: &mut Browser) -> BTreeSet<(String, u64, u64)> {
    browser.key("4", false);
    let rows = table(browser, "#panel-functions .split > div:first-child tbody tr");
    let number = |text: &str| text.replace(',', "").parse().unwrap();
    let all = rows.into_iter().filter(|row| row.len() > 1);
    all.map(|row| (row.last().unwrap().clone(), number(&row[0]), number(&row[1]))).collect()
}

fn cpu(keep: impl Fn(&Row) -> bool) -> Vec<Row> {
    rows().into_iter().filter(|row| row.event == Event::Cpu && keep(row)).collect()
}

#[test]
fn the_whole_profile_is_shown() {
    let Some((mut page, _)) = fixture_page("whole") else { return };
    let all = cpu(|_| true);
    let facts = page.text("#facts");
    assert!(facts.contains(&format!("{} samples at 100 Hz, {LOST} lost, 1 warning", sum(&all))), "{facts}");
    assert_eq!(shown_functions(&mut page), functions(&all, Event::Cpu));
    page.key("5", false);
    let lines: BTreeMap<String, u64> = table(&mut page, "#panel-lines tbody tr")
        .into_iter()
        .map(|row| (format!("{} {}", row[2], row[1]), row[0].parse().unwrap()))
        .collect();
    let of = |line: u32| sum(all.iter().filter(|row| row.stack.last().unwrap().line == line));
    assert_eq!(lines["Shop.price Shop.java:20 @ bci 21"], of(20));
    assert_eq!(lines["Shop.price Shop.java:21 @ bci 22"], of(21));
    assert_eq!(lines.values().sum::<u64>(), sum(&all), "{lines:?}");
    page.key("6", false);
    let run = page.text("#panel-run");
    for words in ["The host was busy.", "ring full", "counts full", "21.0.2", "agent late, after 240 ms"] {
        assert!(run.contains(words), "{words}: {run}");
    }
    assert_eq!(page.complaints, [""; 0]);
}

/// The frames of a row of the flame graph, each with its part of the width.
fn boxes(page: &mut Browser, level: usize) -> BTreeMap<String, f64> {
    let script = format!(
        "(({{flame}}) => {{ const row = flame.layout.rows[{level}]; return row.node.map((node, at) => \
         [flame.textOf(node), row.width[at] / flame.layout.width]); }})(jbpfProf)"
    );
    let boxes: Vec<(String, f64)> = serde_json::from_value(page.value(&script)).unwrap();
    boxes.into_iter().collect()
}

#[test]
fn frames_are_as_wide_as_their_samples() {
    let Some((mut page, _)) = fixture_page("widths") else { return };
    let [java, bash] = ["java", "bash"].map(|name| sum(&cpu(|row| &*row.labels.process == name)) as f64);
    let whole = java + bash + LOST as f64;
    let is = |part: f64, wanted: f64| assert!((part - wanted).abs() < 1e-6, "{part} is not {wanted}");
    let row = boxes(&mut page, 1);
    assert_eq!(row.len(), 3, "{row:?}");
    for (name, samples) in [("java", java), ("bash", bash), ("[lost]", LOST as f64)] {
        is(row[name], samples / whole);
    }
    is(boxes(&mut page, 2)["[ring full]"], (LOST - 1) as f64 / whole);
    // Down to the widest process, and zoom.
    for key in ["g", "ArrowDown", "Enter"] {
        page.key(key, false);
    }
    let detail = page.text("#detail");
    assert!(detail.starts_with(&format!("java {java} samples")), "{detail}");
    is(boxes(&mut page, 1)["java"], 1.0);
    let price = sum(&cpu(|row| row.has("Shop.price"))) as f64;
    is(boxes(&mut page, 4)["Shop.price"], price / java);
    assert!(boxes(&mut page, 4).contains_key("Shop.slow_[0]"), "interpreted code is marked");
    page.key("Escape", false);
    is(boxes(&mut page, 1)["java"], java / whole);
    assert_eq!(page.complaints, [""; 0]);
}

#[test]
fn a_range_of_time_is_chosen_by_keys_and_by_mouse() {
    let Some((mut page, file)) = fixture_page("range") else { return };
    // From second 1 to second 3.
    page.key("t", false);
    page.key("ArrowRight", false);
    page.key("ArrowRight", true);
    page.key("ArrowRight", true);
    page.wait_for("location.hash.includes('range=1-4')");
    let some = cpu(|row| (1..4).contains(&row.second));
    assert_eq!(shown_functions(&mut page), functions(&some, Event::Cpu));
    let facts = page.text("#facts");
    assert!(facts.contains(&format!("{} of {} samples", sum(&some), sum(&cpu(|_| true)))), "{facts}");
    assert!(facts.contains("this selection leaves them out"), "{facts}");

    // The last two seconds, by mouse.
    let place = "(() => { const box = document.querySelector('#strip canvas').getBoundingClientRect(); \
                 return [box.left + 120, box.top + 8, (box.width - 120)]; })()";
    let [left, top, width]: [f64; 3] = serde_json::from_value(page.value(place)).unwrap();
    let middle = |second: u16| (left + (f64::from(second) + 0.5) * width / f64::from(SECONDS), top);
    page.drag(middle(SECONDS - 2), middle(SECONDS - 1));
    page.wait_for("location.hash.includes('range=4-6')");
    let last = cpu(|row| row.second >= SECONDS - 2);
    assert_eq!(shown_functions(&mut page), functions(&last, Event::Cpu));

    // Compared with the first second.
    for key in ["c", "t", "Home", "Enter"] {
        page.key(key, false);
    }
    page.wait_for("location.hash.includes('compare=0-1')");
    let first = cpu(|row| row.second == 0);
    let share =
        |rows: &[Row], name: &str| sum(rows.iter().filter(|row| row.has(name))) as f64 / sum(rows) as f64;
    page.key("4", false);
    let changes: BTreeMap<String, String> =
        table(&mut page, "#panel-functions .split > div:first-child tbody tr")
            .into_iter()
            .map(|row| (row.last().unwrap().clone(), row[2].clone()))
            .collect();
    for name in ["recurse", "Shop.price", "Shop.run"] {
        let change = 100.0 * (share(&last, name) - share(&first, name));
        let sign = if change < 0.0 { "−" } else { "+" };
        assert_eq!(changes[name], format!("{sign}{:.2}", change.abs()), "{name}");
    }

    // The address leads to the same view.
    let address = page.value("location.hash").as_str().unwrap().trim_start_matches('#').to_owned();
    let facts = page.text("#facts");
    page.open(&file, &address, READY);
    assert_eq!(page.text("#facts"), facts);
    assert_eq!(page.value("document.querySelector('[role=tab][aria-selected=true]').id"), "tab-functions");
    assert_eq!(page.complaints, [""; 0]);
}

#[test]
fn pauses_of_jvms_are_marks_on_the_strip_and_sums_of_the_selection() {
    let Some((mut page, _)) = fixture_page("pauses") else { return };
    let pauses = |page: &mut Browser| page.text("#pauses");
    assert_eq!(pauses(&mut page), "JVM pauses: 1,942 ms in 9 safepoints, 6 collections of 956 ms");
    // A mark is as high as the root of its share: of 15 pixels at least 2, 9 for 40 %, and all for a longer pause.
    let heights = page.value(
        "(({ strip }) => { const { canvas, heat, step } = strip; const top = 16 * heat.names.length; \
         const { data, width } = canvas.getContext('2d').getImageData(0, top, canvas.width, 15); \
         const pixel = (at, y) => data.slice(4 * (y * width + Math.round(120 + (at + 0.5) * step))).slice(0, 4).join(); \
         return [0, 1, 2, 3, 4, 5].map((at) => [...Array(15).keys()].filter((y) => pixel(at, y) !== pixel(2, y)).length); })(jbpfProf)",
    );
    assert_eq!(heights, json!([2, 2, 0, 9, 0, 15]));
    for key in ["t", "ArrowRight", "ArrowRight", "ArrowRight"] {
        page.key(key, false);
    }
    let detail = page.text("#detail");
    let jvms = "Shop (7) stood still for 400 ms in 4 safepoints, 4 collections of 200 ms; \
                JVM 70 stood still for 30 ms in 1 safepoint";
    assert!(detail.ends_with(jvms), "{detail}");
    page.key("ArrowLeft", false);
    assert!(page.text("#detail").ends_with("no JVM pauses"), "{}", page.text("#detail"));
    // Seconds 1 and 2, compared with second 0.
    page.key("ArrowLeft", true);
    page.wait_for("location.hash.includes('range=1-3')");
    assert_eq!(pauses(&mut page), "JVM pauses: 0.3 ms in 1 safepoint");
    for key in ["c", "t", "Home", "Enter"] {
        page.key(key, false);
    }
    page.wait_for("location.hash.includes('compare=0-1')");
    let compared =
        "JVM pauses: 0.3 ms in 1 safepoint, compared with 12 ms in 2 safepoints, 1 collection of 6.0 ms";
    assert_eq!(pauses(&mut page), compared);
    page.value("document.getElementById('clear-time').click()");
    page.wait_for("document.getElementById('pauses').textContent.startsWith('JVM pauses: 1,942 ms')");
    let rows = |page: &mut Browser| table(page, "#run-pauses tbody tr");
    let all = [
        ["JVM 70", "2", "1,530", "1", "750"],
        ["Shop (7)", "7", "412.3", "5", "206"],
        ["all", "9", "1,942.3", "6", "956"],
    ];
    assert_eq!(rows(&mut page), all);
    // Only the JVM that is selected.
    page.value("location.hash = 'process=java'");
    page.wait_for("!jbpfProf.selection.isWhole");
    assert_eq!(rows(&mut page), [all[1]]);
    page.value("location.hash = 'process=bash'");
    page.wait_for("jbpfProf.pauses.isEmpty");
    assert_eq!((pauses(&mut page), rows(&mut page).len()), (String::new(), 0));
    assert_eq!(page.complaints, [""; 0]);
}

#[test]
fn samples_are_selected_by_process_thread_event_and_reason() {
    let Some((mut page, _)) = fixture_page("selection") else { return };
    let choose = |page: &mut Browser, facet: &str, value: &str| {
        let input = format!(
            "[...document.querySelectorAll('#facets fieldset')].find((box) => box.firstChild.textContent === {}) \
             .querySelector('label[title={}] input').click()",
            json!(facet),
            json!(value)
        );
        page.value(&input);
    };
    choose(&mut page, "Process", "java");
    let java = cpu(|row| &*row.labels.process == "java");
    assert_eq!(shown_functions(&mut page), functions(&java, Event::Cpu));
    choose(&mut page, "Thread", "worker (9)");
    let worker = cpu(|row| row.labels.tid == 9);
    assert_eq!(shown_functions(&mut page), functions(&worker, Event::Cpu));
    choose(&mut page, "Thread", "worker (9)");
    choose(&mut page, "Process", "java");
    choose(&mut page, "Pod", "prod/shop-0");
    let bash = cpu(|row| &*row.labels.process == "bash");
    assert_eq!(shown_functions(&mut page), functions(&bash, Event::Cpu));
    choose(&mut page, "Pod", "prod/shop-0");
    choose(&mut page, "JVM", "Shop (7)");
    assert_eq!(shown_functions(&mut page), functions(&java, Event::Cpu));
    choose(&mut page, "JVM", "Shop (7)");

    page.value("document.getElementById('event-1').click()");
    let waits: Vec<Row> = rows().into_iter().filter(|row| row.event == Event::Wait).collect();
    assert_eq!(shown_functions(&mut page), functions(&waits, Event::Wait));
    // Also with a waker above the wait.
    let locks: Vec<Row> = waits.iter().filter(|row| row.has("[wait: monitor ")).cloned().collect();
    assert!(locks.iter().any(|row| row.has("Shop.unlock")));
    for (facet, value) in [("Reason", "monitor"), ("Java lock", "Shop$Cache")] {
        choose(&mut page, facet, value);
        assert_eq!(shown_functions(&mut page), functions(&locks, Event::Wait), "{facet}");
        choose(&mut page, facet, value);
    }
    choose(&mut page, "State", "blocked");
    let blocked: Vec<Row> = waits.into_iter().filter(|row| row.has("[blocked: disk read]")).collect();
    assert_eq!(shown_functions(&mut page), functions(&blocked, Event::Wait));
    assert_eq!(page.complaints, [""; 0]);
}

/// The words are those of `--state` and `--reason`, also where only the leaf has them, as in folded stacks.
#[test]
fn the_leaf_of_a_wait_has_state_reason_and_lock() {
    if browser::is_missing() {
        return;
    }
    let of_lock = |reason: &str| {
        let lock = Some(LockView { class: "[Lshop.Cache;".into(), owner: None });
        WaitView { cut: 0, reason: reason.into(), idle: None, lock, waiting_method: None }
            .leaf(ThreadState::Sleeping)
    };
    assert_eq!(LockKind::ALL.len(), 3, "the reasons of locks are as many as the kinds");
    let mut cases = Vec::new();
    for reason in ["monitor", "Object.wait", "park"] {
        WaitFilter::default().add_reason(&format!("{reason} x.Y")).unwrap();
        cases.push((of_lock(reason), ["sleeping", reason, "[Lshop.Cache;"]));
    }
    for (kind, name, wanted) in [
        (Kind::Native, "[wait: monitor x.Y]", ["running", "", ""]),
        (Kind::Wait, "[wait: monitor]", ["sleeping", "monitor", ""]),
        (Kind::Wait, "[wait: in park_me]", ["sleeping", "in park_me", ""]),
        (Kind::Wait, "[idle: thread pool]", ["sleeping", "thread pool", ""]),
        (Kind::Blocked, "[blocked: disk read]", ["blocked", "disk read", ""]),
        (Kind::Queued, "[runnable]", ["runnable", "CPU", ""]),
        (Kind::Queued, "[throttled]", ["throttled", "quota", ""]),
    ] {
        cases.push((Frame::named(kind, name), wanted));
    }
    let mut profile = Profile::new();
    for (at, (leaf, _)) in cases.iter().enumerate() {
        let stack = [Frame::named(Kind::Native, format!("f{at}")), leaf.clone()].map(Arc::new);
        profile.add(&Labels::default(), &stack, 1, 0);
    }
    let accounts = profile.accounts_mut(Event::Cpu);
    (accounts.taken, accounts.kept) = (cases.len() as u64, cases.len() as u64);
    let home = scratch("leaves");
    let file = home.join("page.html");
    fixture::write(&profile, &file, &PictureOptions::default());
    let mut page = Browser::start(&home, 1200, 800);
    page.open(&file, "", READY);
    let words = "(({ profile, selection }) => [...profile.keyNode].map((node, key) => [profile.nameOf(profile.symbol[profile.parent[node]]), \
                 ['state', 'reason', 'lock'].map((name) => selection.dimensions.find((one) => one.name === name)) \
                 .map((one) => one.values[one.ofKey[key]])]))(jbpfProf)";
    let shown: BTreeMap<String, [String; 3]> =
        serde_json::from_value::<Vec<(String, [String; 3])>>(page.value(words))
            .unwrap()
            .into_iter()
            .collect();
    assert_eq!(shown.len(), cases.len());
    for (at, (leaf, wanted)) in cases.iter().enumerate() {
        assert_eq!(shown[&format!("f{at}")], *wanted, "{}", leaf.name);
    }
    assert_eq!(page.complaints, [""; 0]);
}

#[test]
fn a_search_counts_each_sample_once() {
    let Some((mut page, _)) = fixture_page("search") else { return };
    page.key("/", false);
    page.type_text("RECURSE");
    let (found, all) = (sum(&cpu(|row| row.has("recurse"))), sum(&cpu(|_| true)) + LOST);
    let percent = 100.0 * found as f64 / all as f64;
    assert_eq!(page.text("#found"), format!("{found} samples, {percent:.2} %"));
    page.value("(find => { find.value = '/Shop[.](slow|price)/'; find.dispatchEvent(new Event('input')); })(document.getElementById('find'))");
    let found = sum(&cpu(|row| row.has("Shop.slow") || row.has("Shop.price")));
    assert!(page.text("#found").starts_with(&format!("{found} samples, ")));
    page.value("document.getElementById('find').blur()");
    let names: BTreeSet<String> = shown_functions(&mut page).into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["Shop.price", "Shop.slow"].map(str::to_owned).into());
    assert_eq!(page.complaints, [""; 0]);
}

#[test]
fn callers_and_callees_count_recursion_once() {
    let Some((mut page, _)) = fixture_page("tree") else { return };
    let name = |row: &[String]| row.last().unwrap().trim_start_matches(['▸', '▾']).to_owned();
    page.key("2", false);
    let tree = table(&mut page, "#panel-tree tbody tr");
    let java = sum(&cpu(|row| &*row.labels.process == "java"));
    assert_eq!((name(&tree[0]), &*tree[0][0]), ("java".into(), &*java.to_string()));
    assert_eq!(name(&tree[1]), "start_thread");
    page.key("3", false);
    let ends = table(&mut page, "#panel-callers tbody tr[aria-level='1']");
    let recurse = sum(&cpu(|row| row.has("recurse")));
    let own = ends.iter().find(|row| name(row) == "recurse").unwrap();
    assert_eq!((&*own[0], &*own[1]), (&*recurse.to_string(), &*recurse.to_string()));

    page.value("location.hash = 'view=functions&function=recurse'");
    page.wait_for("document.querySelector('.stack h2').textContent.startsWith('recurse')");
    let sides = ["Callers", "Callees"].map(|side| {
        let rows = table(&mut page, &format!("table[aria-label={side}] tbody tr[aria-level='1']"));
        rows.iter().map(|row| (name(row), row[0].parse().unwrap())).collect::<Vec<(String, u64)>>()
    });
    assert_eq!(sides, [vec![("main".into(), recurse)], vec![("recurse".into(), recurse)]]);
    assert_eq!(page.complaints, [""; 0]);
}

#[test]
fn hostile_names_do_nothing() {
    if browser::is_missing() {
        return;
    }
    let long = "<img src=x onerror=hit()>".repeat(65_536 / 25);
    let names = [
        "<script>hit()</script>",
        "</script><script>hit()</script>",
        "--><svg onload=hit()>",
        "<img src=http://127.0.0.1:9/ onerror=hit()>",
        "\"><b onmouseover=hit()>",
        "javascript:hit()",
        "{profile}{script}",
        "a\u{0}b\nc\u{1b}[31m",
        "\u{202e}gpj.exe\u{2066}",
        "__proto__",
        "constructor",
        &long,
    ];
    let mut profile = Profile::new();
    for name in names {
        let labels =
            Labels { pid: 1, process: name.into(), thread: name.into(), tid: 2, ..Labels::default() };
        let frame = Frame { file: Some(name.into()), line: 3, ..Frame::named(Kind::Native, name) };
        let stack = [Frame::named(Kind::Process, name), frame].map(Arc::new);
        profile.add(&labels, &stack, 10, 0);
    }
    let kept = 10 * names.len() as u64;
    let accounts = profile.accounts_mut(Event::Cpu);
    (accounts.kept, accounts.taken) = (kept, kept);
    accounts.lose("</script><script>hit()</script>", 1);
    accounts.taken += 1;
    let home = scratch("hostile");
    let file = home.join("page.html");
    let report =
        RunReport { command: names[1].into(), warnings: vec![names[0].into()], ..RunReport::default() };
    let picture_options = PictureOptions {
        title: Some(names[1].into()),
        report: Some(Arc::new(report)),
        ..PictureOptions::default()
    };
    fixture::write(&profile, &file, &picture_options);
    let mut page = Browser::start(&home, 1200, 800);
    page.open(&file, "find=%3Cscript%3Ehit()&process=__proto__&zoom=constructor&range=9-1&view=x", READY);
    page.value(
        "document.getElementById('facets').querySelectorAll('input:checked').forEach((box) => box.click())",
    );
    page.value("location.hash = ''");
    page.wait_for("jbpfProf.view.query === ''");
    let listed: BTreeSet<String> = shown_functions(&mut page).into_iter().map(|row| row.0).collect();
    assert_eq!(listed.len(), names.len(), "{listed:?}");
    assert!(listed.contains(names[0]) && listed.contains("constructor"), "names are shown as text");
    for tab in 1..=6 {
        page.key(&tab.to_string(), false);
    }
    assert!(page.text("#panel-run").contains(names[0]));
    let markup = "document.querySelectorAll('img, svg, iframe, b[onmouseover], #panels script, a').length";
    assert_eq!(page.value(markup), 0);
    assert_eq!(page.value("document.scripts.length"), 2);
    let foul = "[...document.body.innerText].filter((c) => /[\\u0000-\\u0008\\u001b\\u202a-\\u202e\\u2066-\\u2069]/.test(c)).length";
    assert_eq!(page.value(foul), 0);
    assert_eq!(page.complaints, [""; 0], "neither an error nor a request nor a refusal of the policy");

    // The policy holds: neither a script nor a request can be added.
    page.value("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.hit = 1' }))");
    page.value("document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.1:9/x' }))");
    assert_eq!(page.value("window.hit === undefined"), true);
    page.wait_for("true");
    assert!(
        page.complaints.iter().any(|said| said.contains("Content Security Policy")),
        "{:?}",
        page.complaints
    );
}

#[test]
fn axe_finds_no_violation() {
    let Some((mut page, file)) = fixture_page("axe") else { return };
    let Some(axe) = npm::axe() else { return };
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for view in [
            "flame",
            "tree",
            "callers",
            "functions&function=recurse",
            "lines",
            "run",
            "flame&compare=0-2&range=3-5&find=run",
        ] {
            page.open(&file, &format!("view={view}"), READY);
            page.value(&axe);
            let result = page.value("axe.run(document, { resultTypes: ['violations'] })");
            assert!(result["passes"].as_array().unwrap().len() > 10, "axe looked at nothing");
            let said = |one: &Value| format!("{}: {}", one["help"], one["nodes"][0]["html"]);
            let violations: Vec<String> = result["violations"].as_array().unwrap().iter().map(said).collect();
            assert_eq!(violations, [""; 0], "{view}, {scheme}");
        }
    }
}

#[test]
fn types_are_checked() {
    let Some(tsc) = npm::tsc() else { return };
    let main = repository().join("src/output/page/web/main.js");
    let wrong = scratch("types").join("wrong.js");
    std::fs::write(&wrong, "/** @type {number} */\nexport const wrong = \"text\";\n").unwrap();
    let mut tsc = Command::new(tsc);
    tsc.args("--noEmit --allowJs --checkJs --strict --target es2022 --module esnext".split(' '));
    tsc.args("--moduleResolution bundler --noImplicitReturns --lib es2023,dom,dom.iterable".split(' '));
    let output = tsc.arg(main).arg(wrong).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // A mistake has a line that names the file, and indented lines that explain it.
    let mistakes: Vec<&str> = said.lines().filter(|line| !line.starts_with(' ')).collect();
    assert!(!output.status.success() && !mistakes.is_empty(), "the compiler checks nothing: {said}");
    assert!(mistakes.iter().all(|line| line.contains("wrong.js(2,")), "{said}");
}

/// A program burns one and a half seconds of CPU time in one function, then executes another program with its own
/// function.
#[test]
fn a_run_has_its_seconds_and_its_accounts() {
    if !is_root() || browser::is_missing() {
        return;
    }
    let [first, second] = ["turn_a", "turn_b"].map(native::program);
    let home = scratch("run");
    let file = home.join("run.html");
    let paths = [&first, &second, &file].map(|path| path.to_str().unwrap());
    let run = profiler::run([
        "-F", "2999", "--report", "json", "-e", "wall", "-o", paths[2], "--", paths[0], "1500", "1", paths[1],
    ]);
    if run.code == Some(3) {
        testkit::skip(&format!("this host cannot sample waiting time: {}", run.stderr));
        return;
    }
    let report: Value = serde_json::from_str(&run.success().stdout).unwrap();
    let mut page = Browser::start(&home, 1200, 800);
    page.open(&file, "", READY);
    let events = page.value("jbpfProf.profile.events.map((event) => [event.name, event.accounts.kept])");
    let kept = |of: &Value| of["accounts"]["kept"].clone();
    assert_eq!(events, json!([["cpu", kept(&report)], ["wait", kept(&report["events"][0])]]));
    let total = page.value("jbpfProf.shown.sums.whole");
    assert_eq!(total.as_f64(), kept(&report).as_f64());
    let shown = shown_functions(&mut page);
    let row = |name: &str| shown.iter().find(|row| row.0 == name).unwrap().clone();
    let functions = report["functions"].as_array().unwrap();
    for name in ["work_of_a", "work_of_b"] {
        let own = functions.iter().find(|function| function["name"] == name).unwrap();
        assert_eq!(json!([row(name).1, row(name).2]), json!([own["total"], own["self"]]));
        assert!(row(name).1 > 1_000, "{name}: {}", row(name).1);
    }
    // The first program runs first.
    let columns = page.value("jbpfProf.profile.columns").as_u64().unwrap();
    assert!(columns >= 3, "{columns}");
    page.value("location.hash = 'view=functions&range=0-1'");
    page.wait_for("jbpfProf.selection.range !== null");
    let begin: BTreeSet<String> = shown_functions(&mut page).into_iter().map(|row| row.0).collect();
    assert!(begin.contains("work_of_a") && !begin.contains("work_of_b"), "{begin:?}");
    page.value(&format!("location.hash = 'view=functions&range={}-{columns}'", columns - 1));
    page.wait_for(&format!("jbpfProf.selection.range[0] === {}", columns - 1));
    let end: BTreeSet<String> = shown_functions(&mut page).into_iter().map(|row| row.0).collect();
    assert!(end.contains("work_of_b") && !end.contains("work_of_a"), "{end:?}");
    assert_eq!(page.complaints, [""; 0]);
}

/// Stacks of a JVM wait some seconds for their names, and keep the seconds in which they were sampled.
#[test]
fn stacks_of_a_jvm_stay_in_their_seconds() {
    if !is_root() || browser::is_missing() {
        return;
    }
    let home = scratch("jvm");
    let file = home.join("jvm.html");
    let target = Program::new("Shares").start(&Jdk::host());
    let pid = target.pid().to_string();
    let mut page = Browser::start(&home, 1200, 800);
    let claims = [("samples with names of Java".to_owned(), Claim::AtLeast(0.5))];
    let mut named = 0;
    while named <= 100 {
        prove_tallies(&claims, || {
            profiler::run(["-d", "4", "-F", "499", "-p", &pid, "-o", file.to_str().unwrap()]).success();
            page.open(&file, "find=Shares", READY);
            let [hits, samples] = ["found", "sums.whole"].map(|sum| {
                let sum = page.value(&format!("jbpfProf.shown.{sum}"));
                sum.as_f64().unwrap() as u64
            });
            named += hits;
            let seconds = page.value("[...jbpfProf.selection.heat(null, 1).cells[0]]");
            let seconds: Vec<f64> = serde_json::from_value(seconds).unwrap();
            assert!(seconds.len() >= 3, "{seconds:?}");
            assert!(seconds.iter().all(|samples| *samples > 0.0), "{seconds:?}");
            vec![Tally { hits, samples }]
        });
    }
}
