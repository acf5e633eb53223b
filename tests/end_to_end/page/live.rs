//! The page of a server: it grows without losing what the user looks at, and strangers get nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jbpf_prof::output::PictureOptions;
use jbpf_prof::profile::samples::TimeSpan;
use jbpf_prof::profile::{Accounts, Frame, Kind, Labels, Profile};
use jbpf_prof::sample::Event;
use jbpf_prof::serve::run::{RunServer, ServeConfig};
use rustix::process::{Pid, Signal, kill_process};
use testkit::browser::{self, Browser};
use testkit::{is_root, native, profiler, scratch};

use super::fixture::{self, Row, SECONDS, functions, rows, sum};
use super::{READY, boxes, shown_functions};

/// The timeout for everything that a server does by itself: on a busy machine too, it is faster.
const TIMEOUT: Duration = Duration::from_secs(300);

fn server() -> RunServer {
    RunServer::start(ServeConfig {
        address: "127.0.0.1:0".parse().unwrap(),
        token_file: None,
        events: vec![Event::Cpu, Event::Wait],
        title: "a run".into(),
    })
    .unwrap()
}

/// The samples of one second, as a run gives them.
fn second(of: u16) -> Profile {
    timed(&fixture::part(&rows().into_iter().filter(|row| row.second == of).collect::<Vec<Row>>()))
}

fn timed(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.span = TimeSpan { start_unix_ns: 1_795_000_000_400_000_000, duration_ns: 1_000_000_000 };
    profile
}

/// Waits until no page is connected any more.
fn drain(server: &RunServer) {
    let end = Instant::now() + TIMEOUT;
    while server.stats().clients > 0 {
        assert!(Instant::now() < end, "{} clients stay", server.stats().clients);
        server.drain();
    }
}

/// Everything that the page shows, without the numbers of nodes and symbols.
const ALL_SHOWN: &str = "(({ profile, shown }) => JSON.stringify({ columns: profile.columns, \
    own: [...shown.sums.own].map((own, node) => { const path = []; for (let at = node; at > 0; at = profile.parent[at]) \
    path.unshift(profile.nameOf(profile.symbol[at])); return [path.join(';'), own, shown.sums.total[node]]; }).sort(), \
    heat: jbpfProf.selection.dimensions.map((one) => { const { names, cells } = jbpfProf.selection.heat(one, 99); \
    return [one.name, names.map((name, at) => [name, [...cells[at]]]).sort()]; }), \
    pauses: profile.pauses.map(Object.values).map(String).sort(), \
    accounts: profile.events.map(({ name, accounts }) => [name, accounts.kept, accounts.lost, accounts.period_ns]) }))(jbpfProf)";

#[test]
fn increments_add_up_to_the_whole_page() {
    if browser::is_missing() {
        return;
    }
    let mut server = server();
    let mut page = Browser::start(&scratch("increments"), 1200, 800);
    server.add(second(0));
    page.open_served(&server.place(), READY);
    // The user looks at the widest process, and searches.
    for key in ["g", "ArrowDown", "Enter"] {
        page.key(key, false);
    }
    page.key("/", false);
    page.type_text("price");
    let zoom = page.value("location.hash.match(/zoom=\\w+/)[0]");
    for of in 1..SECONDS {
        server.add(second(of));
        page.wait_for(&format!("jbpfProf.profile.columns === {}", of + 1));
    }
    let all: Vec<Row> = rows().into_iter().filter(|row| row.event == Event::Cpu).collect();
    page.wait_for(&format!("jbpfProf.shown.sums.whole === {}", sum(&all)));
    assert_eq!(page.value("location.hash.match(/zoom=\\w+/)[0]"), zoom);
    assert!(boxes(&mut page, 1).contains_key("java"), "the zoom stays");
    let found = sum(all.iter().filter(|row| row.has("price")));
    assert!(page.text("#found").starts_with(&format!("{found} samples")), "{}", page.text("#found"));
    assert_eq!(page.value("document.activeElement.id"), "find", "the focus stays");
    page.value("(find => { find.value = ''; find.dispatchEvent(new Event('input')); find.blur(); })(document.getElementById('find'))");
    assert_eq!(shown_functions(&mut page), functions(&all, Event::Cpu));
    let grown = page.value(ALL_SHOWN);
    // The end brings the whole as one document, and the server needs no page any more.
    let whole = timed(&fixture::part(&rows()));
    server
        .end(&whole.views(), &PictureOptions { title: Some("the whole".into()), ..PictureOptions::default() })
        .unwrap();
    page.wait_for("document.getElementById('title').textContent === 'the whole'");
    assert_eq!(page.value(ALL_SHOWN), grown);
    assert_eq!(page.text("#live-state"), "the run has ended");
    drain(&server);
    assert_eq!(page.complaints, [""; 0]);
}

/// A function that takes two seconds of CPU time, at a rate.
fn two_seconds(function: &str, hz: u64) -> Profile {
    let mut profile = Profile::new();
    let (frame, period) = (Frame::named(Kind::Native, function.to_owned()), 1_000_000_000 / hz);
    profile.add(&Labels::default(), &[Arc::new(frame)], 2 * hz, 2 * hz * period);
    *profile.accounts_mut(Event::Cpu) =
        Accounts { taken: 2 * hz, kept: 2 * hz, expected: 2 * hz, period_ns: period, ..Accounts::default() };
    timed(&profile)
}

#[test]
fn samples_of_a_lower_rate_count_for_more() {
    if browser::is_missing() {
        return;
    }
    let mut server = server();
    server.add(two_seconds("morning", 100));
    let mut page = Browser::start(&scratch("rates"), 1200, 800);
    page.open_served(&server.place(), READY);
    page.wait_for("jbpfProf.shown.sums.whole === 200");
    server.add(two_seconds("evening", 8));
    page.wait_for("jbpfProf.shown.sums.whole === 400");
    let facts = page.text("#facts");
    let said = "400 samples at 100 Hz (those of lower rates count for more), none lost";
    assert!(facts.contains(said), "{facts}");
    assert_eq!(page.complaints, [""; 0]);
}

/// Sends a request, and returns the connection and the status of the answer.
fn ask(server: &RunServer, path: &str, head: &str) -> (BufReader<TcpStream>, u16) {
    let place = server.place();
    let address = place.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n").unwrap();
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line).unwrap();
    (answer, line.split(' ').nth(1).unwrap().parse().unwrap())
}

#[test]
fn strangers_and_too_many_clients_are_refused() {
    let mut server = server();
    server.add(second(0));
    let local = "Host: 127.0.0.1\r\n";
    for (path, head, wanted) in [
        ("/", local, 200),
        ("/", "Host: evil.example\r\n", 200),
        ("/live", "Host: evil.example\r\n", 403),
        ("/live", "Host: 127.0.0.1\r\nOrigin: http://evil.example\r\n", 403),
        ("/live", "Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("/x", local, 404),
    ] {
        assert_eq!(ask(&server, path, head).1, wanted, "{path} {head}");
    }
    let head = |path| {
        let (mut answer, _) = ask(&server, path, &format!("{local}Connection: close\r\n"));
        let mut text = String::new();
        answer.read_to_string(&mut text).unwrap();
        text
    };
    let shell = head("/");
    assert!(shell.contains("connect-src 'self'") && !shell.contains("unsafe-inline"), "{shell}");
    assert!(!shell.contains("Shop"), "the page itself has no data");
    let clients: Vec<_> = (0..8).map(|_| ask(&server, "/live", local)).collect();
    assert!(clients.iter().all(|(_, status)| *status == 200));
    assert_eq!(ask(&server, "/live", local).1, 503);
    assert_eq!((server.stats().clients, server.stats().refused), (8, 1));
}

#[test]
fn a_client_that_never_reads_is_dropped_and_others_go_on() {
    let mut server = server();
    let (_silent, status) = ask(&server, "/live", "Host: x\r\n");
    let (mut reader, _) = ask(&server, "/live", "Host: x\r\n");
    assert_eq!((status, server.stats().clients), (200, 2));
    let (receive, received) = std::sync::mpsc::channel();
    let events = std::thread::spawn(move || {
        let mut increments = 0;
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 0 && !line.starts_with("event: end") {
            if line.starts_with("event: increment") {
                increments += 1;
                receive.send(()).unwrap();
            }
            line.clear();
        }
        increments
    });
    // Names that do not compress: the buffers of the kernel are full soon.
    let mut number = 88_172_645_463_325_252_u64;
    let end = Instant::now() + TIMEOUT;
    let mut sent = 0_u64;
    while server.stats().slow == 0 {
        assert!(Instant::now() < end, "the silent client is not dropped after {sent} increments");
        let mut row = rows()[0].clone();
        row.stack = (0..2000)
            .map(|_| {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                jbpf_prof::profile::Frame::named(
                    jbpf_prof::profile::Kind::Native,
                    format!("{number:016x}{:016x}", number.rotate_left(29)),
                )
            })
            .collect();
        server.add(timed(&fixture::part(&[row])));
        sent += 1;
        received.recv_timeout(TIMEOUT).unwrap();
    }
    let whole = second(0);
    server.end(&whole.views(), &PictureOptions::default()).unwrap();
    assert_eq!(events.join().unwrap(), sent, "the other client has all increments");
    drain(&server);
    assert_eq!(server.stats().slow, 1);
}

/// A run that the test may leave. Its command ends with it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program burns CPU time in one function until the page shows that, and is followed by another program with its
/// own function.
#[test]
fn a_run_is_shown_while_it_goes_on() {
    if !is_root() || browser::is_missing() {
        return;
    }
    let [first, second] = ["turn_a", "turn_b"].map(native::program);
    let home = scratch("live-run");
    let [file, go] = ["run.html", "go"].map(|name| home.join(name));
    for old in [&file, &go] {
        let _ = std::fs::remove_file(old);
    }
    let script = "until [ -e \"$2\" ] || ! kill -0 $PPID; do \"$0\" 500; done; exec \"$1\" 500";
    let run = Command::new(profiler::binary())
        .args(["-q", "-F", "499", "--serve", "127.0.0.1:0", "-o"])
        .arg(&file)
        .args(["--", "sh", "-c", script])
        .args([&first, &second, &go])
        .stderr(Stdio::piped())
        .spawn();
    let mut run = Run(run.unwrap());
    let mut said = BufReader::new(run.0.stderr.take().unwrap()).lines();
    let url = said
        .find_map(|line| Some(line.unwrap().split_once("the page is at ")?.1.split(' ').next()?.to_owned()));
    let mut page = Browser::start(&home, 1200, 800);
    page.open_served(&url.unwrap(), READY);
    page.wait_for("jbpfProf.profile.strings.includes('work_of_a')");
    page.value("window.kept = 1");
    std::fs::write(go, "").unwrap();
    page.wait_for("jbpfProf.profile.strings.includes('work_of_b')");
    assert_eq!(page.value("window.kept"), 1, "the page was not loaded again");
    page.wait_for("document.getElementById('live-state').textContent === 'the run has ended'");
    assert!(said.any(|line| line.unwrap().contains("stays until Ctrl-C")));
    // Only the document of the end has a report; it is shown some time after its state.
    page.wait_for("jbpfProf.profile.report !== null");
    let served = works(&mut page);
    // A client that connects after the end gets the whole document.
    page.open_served("about:blank", "true");
    kill_process(Pid::from_child(&run.0), Signal::INT).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(0));
    page.open(&file, "", READY);
    assert_eq!(page.complaints, [""; 0]);
    // How long a program runs is a matter of the machine: the page that was served has what the file has.
    assert!(served.len() == 2 && served.iter().all(|row| row.1 > 0), "{served:?}");
    assert_eq!(served, works(&mut page));
}

/// The rows of the two programs' own functions.
fn works(page: &mut Browser) -> Vec<(String, u64, u64)> {
    shown_functions(page).into_iter().filter(|row| row.0.starts_with("work_of_")).collect()
}
