//! What a sink answers decides whether and when it is asked again. Requests of an earlier daemon wait in the spools,
//! and this daemon samples nothing.

use std::fs;
use std::path::Path;

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
use prost::Message as _;
use testkit::is_root;

use super::home;
use super::receiver::{Receiver, free_port};
use super::run::Daemon;

/// Requests in each spool.
const WAITING: usize = 3;

/// A sink, with requests that wait for it.
struct Sink {
    name: &'static str,
    server: Receiver,
    settings: String,
}

impl Sink {
    fn new(home: &Path, name: &'static str, kind: &str) -> Sink {
        let spool = home.join("data/spool").join(name);
        fs::create_dir_all(&spool).unwrap();
        for number in 0..WAITING {
            fs::write(spool.join(format!("{number:016}.otlp.request")), "a request").unwrap();
        }
        let port = free_port();
        let settings =
            format!("[[sink]]\nname = \"{name}\"\ntype = \"{kind}\"\nurl = \"http://127.0.0.1:{port}\"\n");
        Sink { name, server: Receiver::listen(port), settings }
    }

    fn asked(&self) -> usize {
        self.server.with(<[_]>::len)
    }

    fn result(&self, daemon: &Daemon, result: &str) -> f64 {
        daemon.metric(&format!("push_total{{sink=\"{}\",result=\"{result}\"}}", self.name))
    }
}

#[test]
fn a_sink_is_asked_again_if_it_may_accept_the_request_later_and_not_before_it_wants_to_be() {
    if !is_root() {
        return;
    }
    let home = home("retries");
    // A Collector can accept a request and reject profiles of it.
    let rejects = Sink::new(&home, "rejects", "otlp-http");
    let rejection =
        ExportProfilesPartialSuccess { rejected_profiles: 2, error_message: "no\nroom".to_owned() };
    let response = ExportProfilesServiceResponse { partial_success: Some(rejection) };
    rejects.server.answer_bytes(response.encode_to_vec());
    // It can ask for a pause until a date.
    let until_date = Sink::new(&home, "until-date", "otlp-http");
    until_date.server.fail(503, "Fri, 01 Jan 2100 00:00:00 GMT");
    // In gRPC a message that is too large gets the same status as too many messages, RESOURCE_EXHAUSTED, but without
    // `google.rpc.RetryInfo`; this one has an hour.
    let refuses = Sink::new(&home, "refuses", "otlp-grpc");
    refuses.server.refuse(("8", ""));
    let in_an_hour = Sink::new(&home, "in-an-hour", "otlp-grpc");
    in_an_hour
        .server
        .refuse(("8", "CAgaMQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIFCgMIkBw="));
    // This sink names no valid pause. Its backoff is the clock: three attempts take longer than the first pause of
    // another sink would be without its answer, which is at most 1.5 seconds.
    let fails = Sink::new(&home, "fails", "otlp-http");
    fails.server.fail(503, "soon");

    let sinks = [&rejects, &until_date, &refuses, &in_an_hour, &fails];
    let settings: String = sinks.iter().map(|sink| sink.settings.as_str()).collect();
    let mut daemon = Daemon::start_paused(&home, &settings);
    daemon.wait("accepted requests", |d| rejects.result(d, "sent") == WAITING as f64);
    daemon.wait("refused requests", |d| refuses.result(d, "refused") == WAITING as f64);
    daemon.wait("failures", |d| [&until_date, &in_an_hour].iter().all(|sink| sink.result(d, "failed") > 0.0));
    let before = fails.asked().max(1);
    daemon.wait("attempts of the one that fails", |_| fails.asked() >= before + 2);

    assert_eq!(daemon.metric("push_rejected_profiles_total"), 2.0 * WAITING as f64);
    let said = daemon.said();
    assert!(said.contains("rejects: 2 profiles of a request were rejected: no?room"), "{said}");
    // None of these is sent again.
    for (sink, result) in [(&rejects, "sent"), (&refuses, "refused")] {
        assert_eq!((sink.asked(), sink.result(&daemon, result)), (WAITING, WAITING as f64), "{}", sink.name);
        assert_eq!(sink.result(&daemon, "failed"), 0.0, "{}", sink.name);
    }
    // They are not asked before.
    for sink in [&until_date, &in_an_hour] {
        assert_eq!((sink.asked(), sink.result(&daemon, "failed")), (1, 1.0), "{}", sink.name);
    }
    assert!(fails.result(&daemon, "failed") >= 2.0);
    assert_eq!(daemon.metric("spool_dropped_total"), 0.0);
}
