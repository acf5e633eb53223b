//! The page without a terminal: keys change the state, and the state is drawn in memory.

use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

use super::draw::draw;
use super::keys::{Reaction, TopKey};
use super::live::LiveWindow;
use super::state::TopState;
use crate::profile::labels::ContainerLabels;
use crate::profile::report::{JvmReport, ReportedNameSource};
use crate::profile::{Accounts, Frame, Kind, Labels, Profile, RunReport};
use crate::sample::Event;

/// A second with these stacks: process with its pid, function names from the root on, samples.
fn window(stacks: &[(&str, u32, &str, u64)]) -> LiveWindow {
    let mut window = LiveWindow::new(10);
    second(&mut window, stacks);
    window
}

fn second(window: &mut LiveWindow, stacks: &[(&str, u32, &str, u64)]) {
    let mut profile = Profile::new();
    let mut kept = 0;
    for (process, pid, names, count) in stacks {
        let kind = |name: &str| if name.contains('.') { Kind::Java } else { Kind::Native };
        let code = names.split(' ').filter(|n| !n.is_empty()).map(|n| Arc::new(Frame::named(kind(n), n)));
        let stack: Vec<Arc<Frame>> =
            std::iter::once(Arc::new(Frame::named(Kind::Process, *process))).chain(code).collect();
        let container = (*pid == 3).then(|| {
            let id: Arc<str> = "0123456789abcdef".into();
            Arc::new(ContainerLabels { name: "web".into(), id, ..ContainerLabels::default() })
        });
        let labels = Labels { pid: *pid, process: (*process).into(), container, ..Labels::default() };
        profile.add(&labels, &stack, *count, count * 10_000_000);
        kept += count;
    }
    *profile.accounts_mut(Event::Cpu) =
        Accounts { taken: kept + 9, kept, filtered: 7, period_ns: 10_000_000, ..Accounts::default() };
    profile.accounts_mut(Event::Cpu).lose("ring full", 2);
    let jvm = |pid, names| JvmReport { pid, names, name: "Shop".into(), samples: 4, ..JvmReport::default() };
    let refused = ReportedNameSource::Refused { label: "attach disabled".into(), hint: String::new() };
    let jvms = vec![jvm(2, ReportedNameSource::AgentLate { ms: 9 }), jvm(9, refused)];
    window.push(profile, RunReport { duration_s: 1.0, jvms, ..RunReport::default() });
}

/// 98 samples and 2 that are lost.
const SHOP: [(&str, u32, &str, u64); 5] = [
    ("java", 2, "Main.run Shop.order Json.parse", 40),
    ("java", 2, "Main.run Shop.order", 20),
    ("java", 2, "Main.run Json.parse", 8),
    ("nginx", 3, "main serve write", 25),
    ("bash", 4, "main", 5),
];

fn shop() -> TopState {
    shown(&window(&SHOP))
}

fn shown(window: &LiveWindow) -> TopState {
    let mut state = TopState::new("all processes", &[Event::Cpu, Event::Wait]);
    state.set_snapshot(window.snapshot());
    state
}

/// The lines of a screen.
fn screen(state: &mut TopState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|canvas| draw(canvas, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

/// The rows below the titles, with single spaces.
fn rows(state: &mut TopState) -> Vec<String> {
    let lines = screen(state, 120, 30);
    let rows = lines[4..29].iter().filter(|line| !line.is_empty());
    rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn press(state: &mut TopState, keys: &[TopKey]) {
    for key in keys {
        assert_eq!(state.on_key(*key), Reaction::Redraw, "{key:?}");
    }
}

fn type_in(state: &mut TopState, text: &str) {
    press(state, &text.chars().map(TopKey::Char).collect::<Vec<_>>());
}

#[test]
fn functions_have_self_and_total_and_each_order() {
    let mut state = shop();
    let by_self = [
        "48.0 % 48.0 % Java Json.parse",
        "25.0 % 25.0 % native write",
        "20.0 % 60.0 % Java Shop.order",
        "5.0 % 30.0 % native main",
        "0.0 % 68.0 % Java Main.run",
        "0.0 % 25.0 % native serve",
    ];
    assert_eq!(rows(&mut state), by_self);
    press(&mut state, &[TopKey::Char('s')]);
    let total = rows(&mut state);
    assert_eq!(total[..2], ["0.0 % 68.0 % Java Main.run", "20.0 % 60.0 % Java Shop.order"]);
    press(&mut state, &[TopKey::Char('s')]);
    assert!(rows(&mut state)[0].ends_with("Json.parse") && rows(&mut state)[5].ends_with("write"));
    assert!(screen(&mut state, 120, 30)[2].contains("sort: name"));
    press(&mut state, &[TopKey::Char('s')]);
    assert_eq!(rows(&mut state), by_self);
}

#[test]
fn the_head_has_the_account_and_the_jvms() {
    let mut state = shop();
    let head = screen(&mut state, 120, 30)[..3].join("\n");
    for part in [
        "all processes  CPU time, last 1 s",
        "98 samples, 2 lost, 0 missed; since the start 98, 2 lost; JVMs 2, 1 with names",
        " 1 functions  2 processes ",
    ] {
        assert!(head.contains(part), "{head}");
    }
    press(&mut state, &[TopKey::Char('4')]);
    let account = rows(&mut state);
    for line in [
        "107 samples taken: CPU time, since the start",
        "98 in the profile",
        "7 not asked for (other processes, idle)",
        "2 lost: ring full",
        "4 JVM 2 Shop : names by the agent, 0.0 % Java",
        "4 JVM 9 Shop : no names: attach disabled, 0.0 % Java",
    ] {
        assert!(account.contains(&line.to_owned()), "{account:#?}");
    }
}

#[test]
fn callers_and_callees_unfold_below_their_function() {
    let mut state = shop();
    press(&mut state, &[TopKey::Left]);
    let callers = rows(&mut state);
    assert_eq!(callers[..3], ["48.0 % 48.0 % Java Json.parse", "40.0 % ← Shop.order", "8.0 % ← Main.run"]);
    // Enter on the first caller selects its function, whose callees unfold in its place.
    press(&mut state, &[TopKey::Down, TopKey::Enter, TopKey::Right]);
    let callees = rows(&mut state);
    let at = callees.iter().position(|row| row.ends_with("Shop.order")).unwrap();
    assert_eq!(callees[at + 1..at + 3], ["40.0 % → Json.parse", "20.0 % → [itself]"]);
    assert_eq!(callees.len(), 6 + 2);
    press(&mut state, &[TopKey::Right]);
    assert_eq!(rows(&mut state).len(), 6);
    press(&mut state, &[TopKey::End, TopKey::Left, TopKey::Escape]);
    assert_eq!(rows(&mut state).len(), 6);
}

#[test]
fn many_neighbours_are_summed_up() {
    let names: Vec<String> = (0..20).map(|n| format!("caller{n:02} hub")).collect();
    let stacks: Vec<_> = names.iter().map(|names| ("p", 1, names.as_str(), 1)).collect();
    let mut state = shown(&window(&stacks));
    press(&mut state, &[TopKey::Left]);
    let rows = rows(&mut state);
    assert!(rows[0].ends_with("hub") && rows[12].contains("← caller"), "{rows:#?}");
    assert!(rows[13].ends_with("% ← [8 more]"), "{rows:#?}");
}

#[test]
fn processes_and_containers_lead_to_their_functions() {
    let mut state = shop();
    press(&mut state, &[TopKey::Tab]);
    assert_eq!(rows(&mut state), ["68.0 % 0.68 2 - java", "25.0 % 0.25 3 web nginx", "5.0 % 0.05 4 - bash"]);
    press(&mut state, &[TopKey::Down, TopKey::Enter]);
    // 25 samples of the process, and 2 that are lost and could be anybody's.
    assert_eq!(rows(&mut state)[0], "92.6 % 92.6 % native write");
    assert!(screen(&mut state, 120, 30)[0].contains("process nginx (3)"));
    press(&mut state, &[TopKey::Escape, TopKey::Char('3')]);
    assert_eq!(rows(&mut state), ["73.0 % 0.73 - [in no container]", "25.0 % 0.25 0123456789ab web"]);
    press(&mut state, &[TopKey::Down, TopKey::Enter]);
    assert_eq!(rows(&mut state).len(), 3);
    assert!(screen(&mut state, 120, 30)[0].contains("container web"));
}

#[test]
fn a_filter_is_typed_kept_and_removed() {
    let mut state = shop();
    type_in(&mut state, "/JSON");
    assert_eq!(rows(&mut state), ["48.0 % 48.0 % Java Json.parse"]);
    let lines = screen(&mut state, 120, 30);
    assert!(lines[29].starts_with("filter: json_") && lines[2].contains("filter: json (5 hidden)"));
    // Letters that are keys elsewhere are text here.
    type_in(&mut state, "q");
    assert!(rows(&mut state)[0].starts_with("No row contains \"jsonq\""));
    press(&mut state, &[TopKey::Backspace, TopKey::Enter, TopKey::Char('s')]);
    assert_eq!(rows(&mut state), ["48.0 % 48.0 % Java Json.parse"]);
    press(&mut state, &[TopKey::Escape]);
    assert_eq!(rows(&mut state).len(), 6);
    type_in(&mut state, &format!("/{}", "é".repeat(300)));
    press(&mut state, &[TopKey::Escape]);
    assert_eq!((rows(&mut state).len(), state.choice.filter.as_str()), (6, ""));
}

#[test]
fn the_selected_function_stays_selected() {
    let mut live = window(&SHOP);
    let mut state = shown(&live);
    let selected = |state: &mut TopState| {
        let mut terminal = Terminal::new(TestBackend::new(80, 20)).unwrap();
        terminal.draw(|canvas| draw(canvas, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let is_selected = |y: &u16| buffer[(0, *y)].modifier.contains(Modifier::REVERSED);
        let y = (4..19).find(is_selected).unwrap();
        (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>()
    };
    assert!(selected(&mut state).contains("Json.parse"));
    // The user has selected nothing: the cursor stays on the first row.
    second(&mut live, &[("nginx", 3, "main serve write", 900)]);
    state.set_snapshot(live.snapshot());
    assert!(selected(&mut state).contains("write"));
    press(&mut state, &[TopKey::Down]);
    assert!(selected(&mut state).contains("Json.parse"));
    second(&mut live, &[("bash", 4, "main", 2000)]);
    state.set_snapshot(live.snapshot());
    assert!(selected(&mut state).contains("Json.parse"), "it is the third row now");
    press(&mut state, &[TopKey::Home]);
    assert!(selected(&mut state).contains("main"));
}

#[test]
fn each_event_has_its_rows() {
    let mut state = shop();
    press(&mut state, &[TopKey::Char('e')]);
    assert_eq!(rows(&mut state), ["No samples in the last 1 s."]);
    press(&mut state, &[TopKey::Char('e')]);
    assert_eq!(rows(&mut state).len(), 6);
}

#[test]
fn keys_quit_pause_and_suspend() {
    let mut state = shop();
    press(&mut state, &[TopKey::Char(' ')]);
    assert!(state.is_paused && screen(&mut state, 120, 30)[0].ends_with("PAUSED"));
    press(&mut state, &[TopKey::Char('?')]);
    assert!(screen(&mut state, 120, 30).iter().any(|line| line.contains("Ctrl-Z")));
    // Any key leaves the help, also one that quits elsewhere.
    press(&mut state, &[TopKey::Char('q')]);
    assert_eq!(rows(&mut state).len(), 6);
    assert_eq!(state.on_key(TopKey::Suspend), Reaction::Suspend);
    for quit in [TopKey::Char('q'), TopKey::Interrupt] {
        assert_eq!(state.on_key(quit), Reaction::Quit);
    }
    press(&mut state, &[TopKey::Char('/')]);
    assert_eq!(state.on_key(TopKey::Interrupt), Reaction::Quit);
}

#[test]
fn hostile_names_do_nothing() {
    let foul = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{200f}\r\n\tb";
    let long = "x".repeat(64 << 10);
    let wide = "漢字".repeat(200);
    let mut state = shown(&window(&[(foul, 1, foul, 9), (&long, 5, &long, 8), (&wide, 6, &wide, 7)]));
    for view in ['1', '2', '3', '4'] {
        press(&mut state, &[TopKey::Char(view), TopKey::Down, TopKey::Left]);
        for size in [(120, 30), (33, 9)] {
            for line in screen(&mut state, size.0, size.1) {
                assert!(crate::text::is_clean(&line, usize::MAX), "{line:?}");
                assert!(!line.contains('\u{202e}'));
            }
        }
    }
    press(&mut state, &[TopKey::Char('1')]);
    let rows = rows(&mut state);
    assert!(rows[0].contains("a?[2J?]0;x??31m????") && rows[3].contains('漢'), "{rows:#?}");
    assert!(rows[1].contains('…'), "{rows:#?}");
}

#[test]
fn no_size_panics_and_wide_names_fit() {
    let name = format!("{}end", "漢字".repeat(50));
    let mut state = shown(&window(&[("p", 1, &name, 3), ("p", 1, "main", 2)]));
    for view in ['1', '2', '3', '4', '?'] {
        press(&mut state, &[TopKey::Char(view)]);
        for (width, height) in [(0, 0), (1, 1), (0, 9), (9, 0), (7, 3), (20, 4), (20, 5), (300, 80)] {
            screen(&mut state, width, height);
        }
    }
    press(&mut state, &[TopKey::Char('1'), TopKey::Char('1')]);
    let mut terminal = Terminal::new(TestBackend::new(60, 8)).unwrap();
    terminal.draw(|canvas| draw(canvas, &mut state)).unwrap();
    let buffer = terminal.backend().buffer();
    let line: String = (0..60).map(|x| buffer[(x, 4)].symbol()).collect();
    assert!(line.contains('…') && line.trim_end().ends_with("end"), "both ends are shown: {line:?}");
}

#[test]
fn the_cursor_scrolls_the_rows() {
    let names: Vec<String> = (0..50).map(|n| format!("f{n:02}")).collect();
    let stacks: Vec<_> = names.iter().zip(0..).map(|(name, n)| ("p", 1, name.as_str(), 100 - n)).collect();
    let mut state = shown(&window(&stacks));
    let mut ends = |keys: &[TopKey]| {
        press(&mut state, keys);
        let lines = screen(&mut state, 60, 15);
        [lines[4].clone(), lines[13].clone()].map(|line| line[line.len() - 3..].to_owned())
    };
    assert_eq!(ends(&[]), ["f00", "f09"]);
    assert_eq!(ends(&[TopKey::PageDown]), ["f01", "f10"]);
    assert_eq!(ends(&[TopKey::End]), ["f40", "f49"]);
    assert_eq!(ends(&[TopKey::PageUp, TopKey::Up]), ["f38", "f47"]);
    assert_eq!(ends(&[TopKey::Home]), ["f00", "f09"]);
}

#[test]
fn nothing_to_show_says_why() {
    let mut state = TopState::new("pid 1\u{1b}[2J", &[Event::Cpu]);
    let lines = screen(&mut state, 120, 30);
    assert!(lines[0].contains("pid 1?[2J"), "{}", lines[0]);
    assert!(lines[4].starts_with("Waiting for the first second."));
    press(&mut state, &[TopKey::Enter, TopKey::Left, TopKey::Down, TopKey::End, TopKey::PageUp]);
    assert_eq!(screen(&mut state, 120, 30), lines);
}
