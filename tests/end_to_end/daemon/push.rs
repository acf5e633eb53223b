//! Pushed windows are complete, reach sinks that start late or change their certificate, and can be read by them.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message;

use super::busy::Busy;
use super::receiver::{Identity, Receiver, Taken, free_port};
use super::run::{Daemon, folded};
use super::{assert_no_gaps, home};
use testkit::folded::Folded;
use testkit::otlp::broken_rules;
use testkit::{is_root, scratch, skip};

/// push/v1/push.proto and types/v1/types.proto of grafana/pyroscope, as in its documentation.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Series {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

impl Series {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|l| l.name == name).map(|l| l.value.as_str())
    }

    /// The profile of a series, through this file.
    pub(crate) fn profile(&self, file: &Path) -> Folded {
        std::fs::write(file, &self.samples[0].raw_profile).unwrap();
        folded(file)
    }
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

/// Stops the clock and waits until the spools of these sinks are empty, so that kept and pushed windows can be
/// compared. Returns the number of windows that have samples: the last one of a session may be short and have none,
/// and is no request then.
pub(crate) fn pause_and_drain_spools(daemon: &mut Daemon, sinks: &[&str]) -> usize {
    daemon.pause();
    for sink in sinks {
        let waiting = format!("spool_bytes{{sink=\"{sink}\"}}");
        daemon.wait("an empty spool", |d| d.metric(&waiting) == 0.0);
    }
    assert_eq!(daemon.metric("spool_dropped_total"), 0.0);
    daemon.files().iter().filter(|file| folded(file).total() > 0).count()
}

pub(crate) fn kept(daemon: &Daemon) -> u64 {
    daemon.files().iter().map(|file| folded(file).total()).sum()
}

/// What a daemon has kept.
struct Kept {
    windows: usize,
    samples: u64,
    /// The name of the busy program's process.
    busy: String,
}

impl Kept {
    /// Ends the daemon and the busy program, which would take CPU time from what reads the profiles.
    fn by(daemon: Daemon, windows: usize) -> Kept {
        let (samples, busy) = (kept(&daemon), daemon.busy().name().to_owned());
        drop(daemon);
        Kept { windows, samples, busy }
    }
}

/// The sinks of a daemon, some of which are away at first.
struct Sinks {
    token: PathBuf,
    /// Pyroscope, on whose port no server listens at first.
    late: u16,
    /// A Collector by HTTP.
    collector: Receiver,
    collector_port: u16,
    /// Accepts connections and requests, but does not answer.
    silent: TcpListener,
    secure: Secure,
}

/// Pyroscope by HTTP/1.1 and a Collector by gRPC, with TLS and one trusted certificate.
struct Secure {
    identities: [Identity; 2],
    ports: [u16; 2],
    ca: PathBuf,
    token: PathBuf,
}

impl Secure {
    fn new(home: &Path) -> Secure {
        let identities = ["secure-first", "secure-second"].map(|name| Identity::new(name, "IP:127.0.0.1"));
        let [ca, token] = ["ca.pem", "secure-token"].map(|file| home.join(file));
        Secure { identities, ports: [free_port(), free_port()], ca, token }
    }

    /// Writes the trusted certificate and the token.
    fn trust(&self, nth: usize, token: &str) {
        fs::write(&self.token, token).unwrap();
        fs::write(&self.ca, &self.identities[nth].certificate).unwrap();
    }

    fn listen(&self, nth: usize) -> [Receiver; 2] {
        self.ports.map(|port| Receiver::listen_as(&self.identities[nth], port))
    }

    fn settings(&self) -> String {
        let mut settings = String::from("otlp-protocol = \"grpc\"\n");
        for (sink, port) in ["pyroscope", "otlp"].iter().zip(self.ports) {
            let (ca, token) = (self.ca.display(), self.token.display());
            settings += &format!(
                "{sink}-url = \"https://127.0.0.1:{port}\"\n{sink}-ca-file = \"{ca}\"\n{sink}-token-file = \"{token}\"\n"
            );
        }
        settings
    }
}

/// The settings of a sink in a table.
fn table(name: &str, kind: &str, port: u16, more: &str) -> String {
    format!("[[sink]]\nname = \"{name}\"\ntype = \"{kind}\"\nurl = \"http://127.0.0.1:{port}/\"\n{more}\n")
}

impl Sinks {
    fn new(home: &Path) -> Sinks {
        let token = home.join("token");
        fs::write(&token, "secret\n").unwrap();
        let collector_port = free_port();
        Sinks {
            token,
            late: free_port(),
            collector: Receiver::listen(collector_port),
            collector_port,
            silent: TcpListener::bind("127.0.0.1:0").unwrap(),
            secure: Secure::new(home),
        }
    }

    fn settings(&self) -> String {
        let of_late = format!(
            "token-file = \"{}\"\ntenant = \"t1\"\nlabels = [\"cluster=test\"]",
            self.token.display()
        );
        let silent = self.silent.local_addr().unwrap().port();
        [
            self.secure.settings(),
            table("late", "pyroscope", self.late, &of_late),
            table("collector", "otlp-http", self.collector_port, "labels = [\"k8s.node.name=n1\"]"),
            table("silent-http", "pyroscope", silent, ""),
            table("silent-grpc", "otlp-grpc", silent, ""),
        ]
        .concat()
    }
}

/// All sinks that answer sooner or later.
const ANSWERING: [&str; 4] = ["late", "collector", "pyroscope", "otlp"];

#[test]
fn each_sink_gets_every_window_although_it_was_away_or_has_a_new_certificate() {
    if !is_root() {
        return;
    }
    let home = home("sinks");
    fs::create_dir_all(&home).unwrap();
    let sinks = Sinks::new(&home);
    sinks.secure.trust(0, "one\n");
    let sinks_of_first = sinks.secure.listen(0);
    // The busy program calls the kernel never, this one always.
    let kernel = Busy::start("kernel");
    let mut daemon = Daemon::start(&home, &sinks.settings());
    daemon.wait_for_windows(1);
    daemon.wait("an attempt that fails", |d| result(d, "late", "failed") > 0.0);
    let late = Receiver::listen(sinks.late);
    daemon.wait_for_windows(3);
    daemon.wait("samples in the kernel", |d| {
        d.stored(&format!("process={}", kernel.name())).count(|stack| stack.last().unwrap().ends_with("_[k]"))
            > 0
    });
    drop(kernel);
    daemon.wait_for_busy(120);
    pause_and_drain_spools(&mut daemon, &ANSWERING);
    assert_no_gaps(&daemon.files());
    assert!(daemon.metric("spool_bytes") > 0.0, "what the silent sinks do not take waits");
    assert_eq!(daemon.metric("rate_lowered_total"), 0.0);

    let mut by_grpc = end_secure_sinks(sinks_of_first, "authorization: bearer one");
    let sinks_of_second = sinks.secure.listen(1);
    let before = ["pyroscope", "otlp"].map(|sink| result(&daemon, sink, "failed"));
    daemon.throw(false);
    daemon.wait("attempts that fail", |d| {
        let now = ["pyroscope", "otlp"].map(|sink| result(d, sink, "failed"));
        now[0] > before[0] && now[1] > before[1]
    });
    for sink in &sinks_of_second {
        assert!(sink.with(<[_]>::is_empty), "an untrusted sink receives nothing");
    }
    sinks.secure.trust(1, "two\n");
    let windows = pause_and_drain_spools(&mut daemon, &ANSWERING);
    by_grpc += end_secure_sinks(sinks_of_second, "authorization: bearer two");
    let kept = Kept::by(daemon, windows);
    assert_eq!(by_grpc, kept.samples, "what was pushed by gRPC is what was kept");
    assert_pyroscope_has(&late, &kept);
    assert_collector_has(&sinks.collector, &kept);
}

fn result(daemon: &Daemon, sink: &str, result: &str) -> f64 {
    daemon.metric(&format!("push_total{{sink=\"{sink}\",result=\"{result}\"}}"))
}

fn assert_pyroscope_has(receiver: &Receiver, kept: &Kept) {
    let shown = receiver.with(|taken| {
        let full = taken.iter().filter(|request| !request.body.is_empty());
        assert_eq!(full.count(), kept.windows, "a request for each window");
        for request in taken {
            assert_eq!(request.path, "/push.v1.PusherService/Push");
            for line in
                ["content-type: application/proto", "authorization: bearer secret", "x-scope-orgid: t1"]
            {
                request.assert_says(line);
            }
        }
        taken.iter().map(|request| PushRequest::decode(request.body.as_slice()).unwrap()).collect::<Vec<_>>()
    });
    let scratch = scratch("pyroscope-profiles");
    let (mut total, mut of_busy, mut files_of_busy) = (0, 0, Vec::new());
    for (n, series) in shown.iter().flat_map(|request| &request.series).enumerate() {
        let label = |name: &str| series.label(name);
        assert_eq!((label("__name__"), label("cluster")), (Some("process_cpu"), Some("test")));
        let service = label("service_name").unwrap();
        let known = ["__name__", "cluster", "service_name", "namespace", "pod", "container"];
        assert!(series.labels.iter().all(|l| known.contains(&l.name.as_str())), "{:?}", series.labels);
        let file = scratch.join(format!("{n}.pb.gz"));
        let profile = series.profile(&file);
        total += profile.total();
        if service == kept.busy {
            of_busy += profile.total();
            assert_eq!(profile.count(|stack| stack[0] != kept.busy), 0);
            files_of_busy.push(file);
        }
    }
    assert_eq!(total, kept.samples, "what was pushed is what was kept");
    assert!(of_busy > 100, "{of_busy} samples of a busy program");
    assert_go_reads(&files_of_busy, of_busy);
}

fn assert_collector_has(receiver: &Receiver, kept: &Kept) {
    let shown = receiver.with(|taken| {
        assert_eq!(taken.len(), kept.windows, "a request for each window");
        let exported = taken.iter().map(|request| {
            assert_eq!(request.path, "/v1development/profiles");
            request.assert_says("content-type: application/x-protobuf");
            exported(&request.body)
        });
        exported.collect::<Vec<_>>()
    });
    let mut services = Vec::new();
    for resource in shown.iter().flat_map(|request| &request.resource_profiles) {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        assert!(attributes.iter().any(|a| a.key == "k8s.node.name"), "{attributes:?}");
        services
            .extend(attributes.iter().filter(|a| a.key == "service.name").map(|a| format!("{:?}", a.value)));
        for profile in resource.scope_profiles.iter().flat_map(|scope| &scope.profiles) {
            assert!(profile.period > 10_000_000 && profile.time_unix_nano > 0, "{profile:?}");
        }
    }
    let [mut has_kernel, mut has_native] = [false; 2];
    for request in &shown {
        assert_eq!(broken_rules(request), Vec::<String>::new());
        let dictionary = request.dictionary.as_ref().unwrap();
        let key = |at: i32| dictionary.string_table[at as usize].as_str();
        let keys: Vec<&str> = dictionary.attribute_table.iter().map(|of| key(of.key_strindex)).collect();
        let files: Vec<&str> = dictionary.mapping_table.iter().map(|of| key(of.filename_strindex)).collect();
        // Each file has it, but the kernel, whose file is not read.
        let is_known = files.iter().all(|file| ["", "[kernel]"].contains(file))
            || keys.contains(&"process.executable.build_id.htlhash");
        assert!(is_known, "{keys:?}, {files:?}");
        has_native |= files.iter().any(|file| file.ends_with("/native"));
        has_kernel |= files.contains(&"[kernel]");
    }
    // A short window may have neither. This kernel has a build id.
    assert!(has_native && has_kernel);
    let total: u64 = shown.iter().map(samples).sum();
    assert_eq!(total, kept.samples, "what was pushed is what was kept");
    assert!(services.iter().any(|service| service.contains(&kept.busy)), "{services:?}");
}

/// Asserts that `go tool pprof`, which adds files up, finds this many samples.
fn assert_go_reads(files: &[PathBuf], samples: u64) {
    let output = testkit::go().args(["tool", "pprof", "-sample_index=samples", "-raw"]).args(files).output();
    let Some(output) = output.ok().filter(|o| o.status.success()) else {
        return skip("there is no `go tool pprof` on this machine");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().skip_while(|line| *line != "Samples:");
    let columns = lines.nth(1).map(|line| line.trim().trim_end_matches("[dflt]"));
    assert_eq!(columns, Some("samples/count cpu/nanoseconds"), "{text}");
    let counts = lines.take_while(|line| *line != "Locations").filter_map(|line| {
        let (counts, _) = line.split_once(':')?;
        counts.split_whitespace().next()?.parse::<u64>().ok()
    });
    assert_eq!(counts.sum::<u64>(), samples, "{text}");
}

/// The decoded request to a Collector.
pub(crate) fn exported(packed: &[u8]) -> ExportProfilesServiceRequest {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    ExportProfilesServiceRequest::decode(bytes.as_slice()).unwrap()
}

/// The number of samples of a request to a Collector.
pub(crate) fn samples(request: &ExportProfilesServiceRequest) -> u64 {
    let scopes = request.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
    let samples = scopes.flat_map(|scope| &scope.profiles).flat_map(|profile| &profile.samples);
    samples.map(|sample| u64::try_from(sample.values[0]).unwrap()).sum()
}

/// Ends a Pyroscope sink and a Collector; asserts that all their requests have this header line. Returns the number of
/// the Collector's samples.
fn end_secure_sinks([pyroscope, otlp]: [Receiver; 2], line: &str) -> u64 {
    let has = |request: &Taken| request.assert_says(line);
    pyroscope.with(|taken| taken.iter().for_each(has));
    assert!(!pyroscope.with(<[_]>::is_empty));
    otlp.with(|taken| {
        let shown = taken.iter().map(|request| {
            has(request);
            let call = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
            assert_eq!(request.path, call);
            request.assert_says("grpc-encoding: gzip");
            samples(&exported(request.message()))
        });
        shown.sum()
    })
}
