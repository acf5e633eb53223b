//! A real OpenTelemetry Collector gets the kept windows by HTTP and gRPC. `bench/collector.sh` builds it and runs this.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::home;
use super::push::{kept, pause_and_drain_spools};
use super::receiver::free_port;
use super::run::Daemon;
use testkit::is_root;

/// The Collector's settings: it prints each value of the profiles that it receives.
fn settings(port: u16, protocol: &str) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{{protocol}: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}\n\
         exporters: {{debug: {{verbosity: detailed}}}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
         pipelines: {{profiles: {{receivers: [otlp], exporters: [debug]}}}}\n"
    )
}

fn collect(binary: &Path, protocol: &str) {
    let (home, port) = (home(&format!("collector-{protocol}")), free_port());
    fs::create_dir_all(&home).unwrap();
    let (file, said) = (home.join("collector.yaml"), home.join("collector.out"));
    fs::write(&file, settings(port, protocol)).unwrap();
    let mut collector = Command::new(binary)
        .arg("--config")
        .arg(&file)
        .arg("--feature-gates=service.profilesSupport")
        .stdin(Stdio::null())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let url = format!("otlp-url = \"http://127.0.0.1:{port}\"\notlp-protocol = \"{protocol}\"");
    let mut daemon = Daemon::start(&home, &url);
    daemon.wait_for_windows(3);
    let windows = pause_and_drain_spools(&mut daemon, &["otlp"]);
    collector.kill().unwrap();
    collector.wait().unwrap();
    let text = fs::read_to_string(&said).unwrap();
    let received = text.lines().filter(|line| line.contains("resource profiles")).count();
    assert!(received == windows && windows >= 3, "{received} requests for {windows} windows: {protocol}");
    let values = text.lines().filter_map(|line| line.trim().strip_prefix("Values: [")?.strip_suffix(']'));
    let total: u64 = values.map(|value| value.parse::<u64>().unwrap()).sum();
    assert_eq!(total, kept(&daemon), "{protocol}: what the Collector has is what is kept");
    let service = format!("service.name: Str({})", daemon.busy().name());
    assert!(text.contains(&service) && text.contains("burn"), "{protocol}");
}

#[test]
#[ignore = "bench/collector.sh builds the Collector that it needs, in two minutes of CPU time"]
fn a_real_collector_has_the_same_totals() {
    assert!(is_root(), "the profiler needs root");
    let binary = std::env::var_os("JBPF_PROF_COLLECTOR").expect("JBPF_PROF_COLLECTOR names a Collector");
    for protocol in ["http", "grpc"] {
        collect(Path::new(&binary), protocol);
    }
}
