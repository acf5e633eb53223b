//! Pushed windows are complete, reach sinks that start late, and can be read by them.

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use prost::Message;
use rustix::process::Signal;

use crate::receiver::{Identity, Receiver, Taken, free_port};
use crate::run::{Daemon, folded};
use crate::{assert_no_gaps, home};
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

/// Stops the clock, so that kept and pushed windows can be compared; returns the number of windows.
pub(crate) fn pause_and_drain_spool(daemon: &mut Daemon) -> usize {
    daemon.pause();
    daemon.wait("an empty spool", |d| d.metric("spool_bytes") == 0.0);
    let kept = daemon.files();
    assert_eq!(daemon.metric("spool_dropped_total"), 0.0);
    kept.len()
}

pub(crate) fn kept(daemon: &Daemon) -> u64 {
    daemon.files().iter().map(|file| folded(file).total()).sum()
}

#[test]
fn pyroscope_gets_every_window_although_it_was_away() {
    if !is_root() {
        return;
    }
    let port = free_port();
    let token = scratch("pyroscope-token").join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let sink = format!(
        "pyroscope-url = \"http://127.0.0.1:{port}\"\npyroscope-token-file = \"{}\"\npyroscope-tenant = \"t1\"\n\
         labels = [\"cluster=test\"]",
        token.display()
    );
    let mut daemon = Daemon::start(&home("pyroscope"), &sink);
    // No server listens yet.
    daemon.wait_for_windows(3);
    daemon.wait("an attempt that fails", |d| d.metric("push_total") > 0.0);
    let receiver = Receiver::listen(port);
    daemon.wait_for_windows(5);
    let windows = pause_and_drain_spool(&mut daemon);
    let shown = receiver.with(|taken| {
        assert_eq!(taken.len(), windows, "a request for each window");
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
    let (mut total, mut of_native) = (0, 0);
    for (n, series) in shown.iter().flat_map(|request| &request.series).enumerate() {
        let label = |name: &str| series.label(name);
        assert_eq!((label("__name__"), label("cluster")), (Some("process_cpu"), Some("test")));
        let service = label("service_name").unwrap();
        let known = ["__name__", "cluster", "service_name", "namespace", "pod", "container"];
        assert!(series.labels.iter().all(|l| known.contains(&l.name.as_str())), "{:?}", series.labels);
        let file = scratch.join(format!("{n}.pb.gz"));
        let profile = series.profile(&file);
        total += profile.total();
        if service == "native" {
            of_native += profile.total();
            assert_eq!(profile.count(|stack| stack[0] != "native"), 0);
            assert_go_reads(&file, profile.total());
        }
    }
    assert_eq!(total, kept(&daemon), "what was pushed is what was kept");
    assert!(of_native > 100, "{of_native} samples of a busy program");
}

/// A reload changes the sink's address: each window is at one of both servers.
#[test]
fn a_reload_changes_sinks_and_no_window_is_lost() {
    if !is_root() {
        return;
    }
    let ports = [free_port(), free_port()];
    let [before, after] = ports.map(Receiver::listen);
    let url = |port: u16| format!("otlp-url = \"http://127.0.0.1:{port}\"");
    let mut daemon = Daemon::start(
        &home("reloaded"),
        &format!("window = \"1s\"\nlog-level = \"info\"\n{}", url(ports[0])),
    );
    daemon.wait_for_windows(1);
    pause_and_drain_spool(&mut daemon);
    let sent = before.with(<[_]>::len);
    daemon.edit_settings(&url(ports[0]), &url(ports[1]));
    daemon.signal(Signal::HUP);
    daemon.wait("the reload", |daemon| daemon.said().contains("reload: the settings were read"));
    let windows = daemon.files().len();
    daemon.throw(false);
    daemon.wait_for_windows(windows + 1);
    pause_and_drain_spool(&mut daemon);
    let total = |receiver: &Receiver| -> u64 {
        receiver.with(|taken| taken.iter().map(|request| samples(&exported(&request.body))).sum())
    };
    assert_eq!(before.with(<[_]>::len), sent, "the old address gets no more");
    assert!(total(&before) > 0 && total(&after) > 0);
    assert_eq!(total(&before) + total(&after), kept(&daemon), "what was pushed is what was kept");
    let requests = sent + after.with(<[_]>::len);
    assert_eq!(daemon.metric("push_total{sink=\"otlp\",result=\"sent\"}"), requests as f64, "counters go on");
}

/// The sink accepts connections and requests but does not answer.
#[test]
fn a_sink_that_never_answers_delays_no_window() {
    if !is_root() {
        return;
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let sinks = format!(
        "pyroscope-url = \"http://127.0.0.1:{port}\"\notlp-url = \"http://127.0.0.1:{port}\"\notlp-protocol = \"grpc\""
    );
    let mut daemon = Daemon::start(&home("silent-sink"), &sinks);
    daemon.wait_for_windows(5);
    assert_no_gaps(&daemon.files());
    assert!(daemon.metric("spool_bytes") > 0.0, "what it does not take waits");
    assert_eq!(daemon.metric("rate_lowered_total"), 0.0);
}

/// Asserts that `go tool pprof` finds this many samples.
fn assert_go_reads(file: &Path, samples: u64) {
    let output = testkit::go().args(["tool", "pprof", "-sample_index=samples", "-raw"]).arg(file).output();
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

#[test]
fn a_collector_gets_every_window() {
    if !is_root() {
        return;
    }
    let port = free_port();
    let receiver = Receiver::listen(port);
    let sink = format!("otlp-url = \"http://127.0.0.1:{port}/\"\nlabels = [\"k8s.node.name=n1\"]");
    let mut daemon = Daemon::start(&home("otlp"), &sink);
    daemon.wait_for_windows(3);
    let windows = pause_and_drain_spool(&mut daemon);
    let shown = receiver.with(|taken| {
        assert_eq!(taken.len(), windows, "a request for each window");
        taken
            .iter()
            .map(|request| {
                assert_eq!(request.path, "/v1development/profiles");
                request.assert_says("content-type: application/x-protobuf");
                exported(&request.body)
            })
            .collect::<Vec<_>>()
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
    let mut has_kernel = false;
    for request in &shown {
        assert_eq!(broken_rules(request), Vec::<String>::new());
        let dictionary = request.dictionary.as_ref().unwrap();
        let key = |at: i32| dictionary.string_table[at as usize].as_str();
        let keys: Vec<&str> = dictionary.attribute_table.iter().map(|of| key(of.key_strindex)).collect();
        assert!(keys.contains(&"process.executable.build_id.htlhash"), "{keys:?}");
        let files: Vec<&str> = dictionary.mapping_table.iter().map(|of| key(of.filename_strindex)).collect();
        assert!(files.iter().any(|file| file.ends_with("/native")), "{files:?}");
        has_kernel |= files.contains(&"[kernel]");
    }
    // This kernel has a build id. A window of a program that hardly calls the kernel may have none of its code.
    assert!(has_kernel);
    let total: u64 = shown.iter().map(samples).sum();
    assert_eq!(total, kept(&daemon), "what was pushed is what was kept");
    assert!(services.iter().any(|service| service.contains("native")), "{services:?}");
}

/// The decoded request to a Collector.
pub(crate) fn exported(packed: &[u8]) -> ExportProfilesServiceRequest {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    ExportProfilesServiceRequest::decode(bytes.as_slice()).unwrap()
}

fn samples(request: &ExportProfilesServiceRequest) -> u64 {
    let scopes = request.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
    let samples = scopes.flat_map(|scope| &scope.profiles).flat_map(|profile| &profile.samples);
    samples.map(|sample| u64::try_from(sample.values[0]).unwrap()).sum()
}

/// A Collector can accept a request and reject profiles of it; and it can ask for a pause until a date.
#[test]
fn what_a_collector_rejects_is_counted_and_a_date_to_retry_at_is_kept() {
    if !is_root() {
        return;
    }
    let port = free_port();
    let receiver = Receiver::listen(port);
    let rejection =
        ExportProfilesPartialSuccess { rejected_profiles: 2, error_message: "no\nroom".to_owned() };
    let response = ExportProfilesServiceResponse { partial_success: Some(rejection) };
    receiver.answer_bytes(response.encode_to_vec());
    let settings = format!("window = \"1s\"\notlp-url = \"http://127.0.0.1:{port}\"");
    let mut daemon = Daemon::start(&home("rejecting"), &settings);
    daemon.wait_for_windows(1);
    daemon.wait("rejected profiles", |d| d.metric("push_rejected_profiles_total") >= 2.0);
    assert!(
        daemon.said().contains("otlp: 2 profiles of a request were rejected: no?room"),
        "{}",
        daemon.said()
    );
    assert_eq!(daemon.metric("push_total{sink=\"otlp\",result=\"failed\"}"), 0.0, "it is not sent again");
    receiver.fail(503, "Fri, 01 Jan 2100 00:00:00 GMT");
    daemon.wait("a failure", |d| d.metric("push_total{sink=\"otlp\",result=\"failed\"}") > 0.0);
    let (asked, windows) = (receiver.with(<[_]>::len), daemon.metric("windows_kept"));
    daemon.wait("windows that wait", |d| d.metric("windows_kept") >= windows + 1.0);
    assert_eq!(receiver.with(<[_]>::len), asked, "it is not asked before the date");
}

/// In gRPC a message that is too large gets the same status as too many messages, but without `RetryInfo`.
#[test]
fn a_collector_without_room_is_asked_again_when_it_says_so_only() {
    if !is_root() {
        return;
    }
    let port = free_port();
    let receiver = Receiver::listen(port);
    let sink = format!("otlp-url = \"http://127.0.0.1:{port}\"\notlp-protocol = \"grpc\"");
    receiver.refuse(("8", ""));
    let mut daemon = Daemon::start(&home("no-room"), &sink);
    let result = |daemon: &Daemon, result: &str| {
        daemon.metric(&format!("push_total{{sink=\"otlp\",result=\"{result}\"}}"))
    };
    daemon.wait_for_windows(1);
    daemon.wait("windows that are refused", |d| result(d, "refused") >= 2.0);
    assert_eq!(result(&daemon, "failed"), 0.0);
    // RESOURCE_EXHAUSTED, with a `google.rpc.RetryInfo` of an hour.
    let in_an_hour = "CAgaMQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIFCgMIkBw=";
    receiver.refuse(("8", in_an_hour));
    daemon.wait("one that is to be tried again", |d| result(d, "failed") > 0.0);
    let (asked, windows) = (receiver.with(<[_]>::len), daemon.metric("windows_kept"));
    daemon.wait("windows that wait", |d| d.metric("windows_kept") >= windows + 3.0);
    assert_eq!(receiver.with(<[_]>::len), asked, "it is not asked before");
    assert_eq!(result(&daemon, "failed"), 1.0);
}

/// TLS with one trusted certificate. The certificate and the token may change. One sink uses HTTP/1.1, the other gRPC.
#[test]
fn secure_sinks_are_known_by_their_certificate_and_may_change_it() {
    if !is_root() {
        return;
    }
    let home = home("secure");
    std::fs::create_dir_all(&home).unwrap();
    let (ca, token) = (home.join("ca.pem"), home.join("token"));
    let [first, second] = ["secure-first", "secure-second"].map(|name| Identity::new(name, "IP:127.0.0.1"));
    let trust = |identity: &Identity, text: &str| {
        std::fs::write(&token, text).unwrap();
        std::fs::write(&ca, &identity.certificate).unwrap();
    };
    trust(&first, "one\n");
    let ports = [free_port(), free_port()];
    let mut sinks = String::from("otlp-protocol = \"grpc\"\n");
    for (sink, port) in [("pyroscope", ports[0]), ("otlp", ports[1])] {
        let (ca, token) = (ca.display(), token.display());
        sinks += &format!(
            "{sink}-url = \"https://127.0.0.1:{port}\"\n{sink}-ca-file = \"{ca}\"\n{sink}-token-file = \"{token}\"\n"
        );
    }
    let listen = |identity: &Identity| ports.map(|port| Receiver::listen_as(identity, port));
    let sinks_of_first = listen(&first);
    let mut daemon = Daemon::start(&home, &sinks);
    daemon.wait_for_windows(2);
    pause_and_drain_spool(&mut daemon);
    let mut shown = by_grpc(sinks_of_first, "authorization: bearer one");
    let sinks_of_second = listen(&second);
    let before = daemon.metric("push_total");
    daemon.throw(false);
    daemon.wait("attempts that fail", |d| d.metric("push_total") > before + 2.0);
    for sink in &sinks_of_second {
        assert!(sink.with(<[_]>::is_empty), "an untrusted sink receives nothing");
    }
    trust(&second, "two\n");
    pause_and_drain_spool(&mut daemon);
    shown += by_grpc(sinks_of_second, "authorization: bearer two");
    assert_eq!(shown, kept(&daemon), "what was pushed is what was kept");
}

/// Ends a Pyroscope sink and a Collector; asserts that all their requests have this header line. Returns the number of
/// the Collector's samples.
fn by_grpc([pyroscope, otlp]: [Receiver; 2], line: &str) -> u64 {
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
