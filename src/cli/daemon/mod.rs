//! `jbpf-prof daemon`: reads settings from a TOML file and from flags of the same names, and validates them.

mod effective;
pub(super) mod options;
mod otel;
mod sink;
mod value;

use std::path::{Path, PathBuf};

use log::LevelFilter;

use effective::EffectiveSettings;
use options::{Daemon, Options};
use sink::sinks;
use value::{pair, require, size, valid_url};

use super::config::{OWN_BINARY, duration};
use super::events::{distinct, named};
use crate::daemon::{Auth, BudgetLimits, DaemonConfig, KubeletConfig, StoreLimits, Trust};
use crate::failure::Failure;
use crate::profile::filter::Glob;
use crate::sample::Event;
use crate::serve::Address;
use crate::session::{AgentRule, OptedInPods};

/// The shortest and the longest window, seconds.
const WINDOWS: std::ops::RangeInclusive<u64> = 1..=300;
/// The highest rate for sampling that never ends, samples a second.
const MAX_HZ: f64 = 999.0;

/// The arguments of `jbpf-prof daemon`, validated.
#[derive(Clone, Debug)]
pub struct DaemonCommand {
    /// What the daemon runs with: sampling, budget, store, addresses, sinks.
    pub config: DaemonConfig,
    /// The least severe messages that go to standard error; by default warnings.
    pub log: LevelFilter,
    /// Only check the settings, and do not start.
    pub check: bool,
    /// Only print these settings, and do not start.
    pub printed: Option<String>,
    /// The arguments, for another reading of the settings.
    arguments: Daemon,
}

impl DaemonCommand {
    pub(super) fn new(daemon: &Daemon) -> Result<DaemonCommand, Failure> {
        let settings =
            EffectiveSettings::gather(daemon.config.as_deref(), &daemon.options, effective::variable)?;
        let printed = daemon.print_config.then(|| settings.text());
        let options = settings.options()?;
        let log = require("log-level", options.log_level)?.into();
        Ok(DaemonCommand {
            config: config(options)?,
            log,
            check: daemon.check,
            printed,
            arguments: daemon.clone(),
        })
    }

    /// Reads and validates the settings again, with the same arguments.
    ///
    /// # Errors
    /// A setting is wrong now, or the settings file cannot be read.
    pub fn read_again(&self) -> Result<DaemonCommand, Failure> {
        DaemonCommand::new(&self.arguments)
    }
}

/// The address at which a daemon with these settings answers health requests.
pub(super) fn health_address(file: Option<&Path>) -> Result<Address, Failure> {
    let settings = EffectiveSettings::gather(file, &Options::default(), effective::variable)?;
    let options = settings.options()?;
    // The other settings may be incomplete here: some may come from the daemon's flags.
    let ListenAddresses { metrics, api } = addresses(&options)?;
    metrics
        .or(api)
        .ok_or_else(|| Failure::usage("the daemon listens on no address: metrics and api are both off"))
}

fn config(options: Options) -> Result<DaemonConfig, Failure> {
    let ListenAddresses { metrics, api } = addresses(&options)?;
    let sinks = sinks(&options)?;
    let kubelet = kubelet(&options)?;
    let agent_for = agent_for(&options, kubelet.as_ref())?;
    let time = |name: &str, text: Option<String>| duration(name, &require(name, text)?);
    let space = |name: &str, text: Option<String>| size(name, &require(name, text)?);
    let window = time("window", options.window)?;
    if window.subsec_nanos() != 0 || !WINDOWS.contains(&window.as_secs()) {
        return Err(Failure::usage(format!(
            "window: use whole seconds, {} to {}",
            WINDOWS.start(),
            WINDOWS.end()
        )));
    }
    let percent = require("max-cpu", options.max_cpu)?;
    if !(0.01..=100.0).contains(&percent) {
        return Err(Failure::usage(format!("max-cpu {percent}: use 0.01 to 100 percent of the host")));
    }
    let hz = require("frequency", options.frequency)?;
    if !(1.0..=MAX_HZ).contains(&hz) {
        return Err(Failure::usage(format!("frequency {hz}: use 1 to {MAX_HZ} samples a second")));
    }
    let directory = require("directory", options.directory)?;
    if !directory.is_absolute() {
        return Err(Failure::usage(format!("directory {}: use an absolute path", directory.display())));
    }
    Ok(DaemonConfig {
        binary: PathBuf::from(OWN_BINARY),
        hz,
        events: events(options.events.as_deref().unwrap_or(&[]))?,
        idle_frames: options.idle_frames.unwrap_or_default(),
        wakers: require("wakers", options.wakers)?,
        trace_context: require("trace-context", options.trace_context)?,
        one_in: require("event-count", options.event_count)?.max(1),
        window_s: u32::try_from(window.as_secs()).unwrap_or(10),
        budget: BudgetLimits { cpu: percent / 100.0, memory: space("max-memory", options.max_memory)? },
        kill_switch: options.kill_switch,
        java: require("java", options.java)?.into(),
        agent_for,
        kubelet,
        attach_timeout: time("attach-timeout", options.attach_timeout)?,
        directory,
        store: StoreLimits {
            bytes: space("keep-size", options.keep_size)?,
            age: time("keep-age", options.keep_age)?,
        },
        metrics,
        api,
        token_file: options.token_file,
        concurrent_profiles: require("concurrent-profiles", options.concurrent_profiles)?.max(1),
        sinks,
    })
}

/// The sampled events, each once; the CPU clock if the user names none.
fn events(names: &[String]) -> Result<Vec<Event>, Failure> {
    let named = |name: &String| named(name).map_err(|why| Failure::usage(format!("events {name}: {why}")));
    let named = names.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let events = distinct(&named).map_err(|why| Failure::usage(format!("events: {why}")))?;
    if events.contains(&Event::NativeAlloc) {
        return Err(Failure::usage(
            "events native-alloc: the daemon profiles all processes, and each malloc of a process would take about \
             a microsecond more; profile chosen processes with 'jbpf-prof -e native-alloc -p PID'",
        ));
    }
    Ok(if events.is_empty() { vec![Event::Cpu] } else { events })
}

/// The addresses at which the daemon listens; `None` for one that is off.
struct ListenAddresses {
    metrics: Option<Address>,
    /// Profiles name tenants, so an API that other hosts can reach needs a token.
    api: Option<Address>,
}

fn addresses(options: &Options) -> Result<ListenAddresses, Failure> {
    let address = |name: &str, text: &Option<String>| match require(name, text.as_deref())? {
        "off" => Ok(None),
        text => text.parse::<Address>().map(Some).map_err(|why| Failure::usage(format!("{name} {why}"))),
    };
    let metrics = address("metrics", &options.metrics)?;
    let api = address("api", &options.api)?;
    match &api {
        Some(address) if !address.is_local() && options.token_file.is_none() => Err(Failure::usage(format!(
            "api {address}: this address is not local, so profiles need a token: set token-file"
        ))),
        _ => Ok(ListenAddresses { metrics, api }),
    }
}

/// The rules that choose the JVMs to which the daemon attaches the agent.
fn agent_for(options: &Options, kubelet: Option<&KubeletConfig>) -> Result<Vec<AgentRule>, Failure> {
    let mut rules = Vec::new();
    for variable in options.agent_env.iter().flatten() {
        let (name, value) = pair("agent-env", variable)?;
        rules.push(AgentRule::Env(name, value));
    }
    rules.extend(options.agent_cgroup.iter().flatten().map(|like| AgentRule::Cgroup(Glob::new(like))));
    rules.extend(options.agent_pod.iter().flatten().map(|like| AgentRule::Pod(Glob::new(like))));
    rules.extend(kubelet.map(|kubelet| AgentRule::OptedIn(kubelet.opted_in.clone())));
    Ok(rules)
}

/// Only the kubelet knows annotations of pods, and the daemon asks the kubelet for nothing else.
fn kubelet(options: &Options) -> Result<Option<KubeletConfig>, Failure> {
    let pairs = options.agent_annotation.iter().flatten().map(|text| pair("agent-annotation", text));
    let annotations: Vec<(String, String)> = pairs.collect::<Result<_, _>>()?;
    let token = options.kubelet_token_file.clone();
    let trust = Trust { ca_file: options.kubelet_ca_file.clone(), name: options.kubelet_name.clone() };
    match (&options.kubelet_url, annotations.is_empty()) {
        (Some(url), false) if url.starts_with("http:") && (token.is_some() || trust != Trust::default()) => {
            Err(Failure::usage(format!(
                "kubelet-url {url}: use https; the token and the kubelet's certificate need TLS"
            )))
        }
        (Some(url), false) => Ok(Some(KubeletConfig {
            url: valid_url("kubelet-url", url)?,
            auth: token.map_or(Auth::None, Auth::Bearer),
            trust,
            annotations,
            opted_in: OptedInPods::default(),
        })),
        (None, false) => {
            Err(Failure::usage("agent-annotation: annotations come from the kubelet: set kubelet-url"))
        }
        (None, true) if token.is_none() && trust == Trust::default() => Ok(None),
        _ => Err(Failure::usage(
            "kubelet: the settings of the kubelet have no effect without agent-annotation and kubelet-url",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::daemon::Protocol;

    fn from_file(text: &str, flags: &[&str]) -> Result<DaemonConfig, String> {
        #[derive(clap::Parser)]
        struct DaemonArgs {
            #[command(flatten)]
            daemon: Daemon,
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let line = [&["daemon", "--config", path], flags].concat();
        let line = <DaemonArgs as clap::Parser>::try_parse_from(line).map_err(|e| e.to_string())?;
        DaemonCommand::new(&line.daemon)
            .map(|job| job.config)
            .map_err(|failure| failure.message.replace(path, "FILE"))
    }

    #[test]
    fn the_file_counts_and_flags_win() {
        let config = from_file(
            "frequency = 49\nwindow = \"30s\"\nmax-memory = \"64MiB\"\njava = \"off\"\nlabels = [\"a=b\", \"f=g\"]\n\
             otlp-url = \"http://collector:4317\"\notlp-protocol = \"grpc\"\n",
            &["--frequency", "29", "--pyroscope-url", "https://p:4040", "--labels", "a=c,d=e"],
        )
        .unwrap();
        assert_eq!((config.hz, config.window_s), (29.0, 30));
        assert_eq!(config.budget, BudgetLimits { cpu: 0.005, memory: 64 << 20 });
        assert_eq!(config.java, crate::session::JavaNaming::Off);
        let sinks: Vec<_> =
            config.sinks.iter().map(|s| (s.protocol, s.url.as_str(), s.labels.clone())).collect();
        let labels = BTreeMap::from(
            [("a", "c"), ("d", "e"), ("f", "g")].map(|(name, value)| (name.into(), value.into())),
        );
        assert_eq!(
            sinks,
            [
                (Protocol::Pyroscope, "https://p:4040", labels.clone()),
                (Protocol::OtlpGrpc, "http://collector:4317", labels)
            ]
        );
        let usual = from_file("", &[]).unwrap();
        assert_eq!((usual.hz, usual.window_s, usual.java), (19.0, 10, crate::session::JavaNaming::Vm));
    }

    /// Flags of one protocol make a sink with the protocol's name, so that its spool keeps its place.
    #[test]
    fn there_may_be_several_sinks_of_a_kind() {
        let config = from_file(
            "labels = [\"a=b\"]\nspool-size = \"1MiB\"\n\
             [[sink]]\nname = \"central\"\ntype = \"pyroscope\"\nurl = \"https://c:4040\"\ntenant = \"t\"\n\
             [[sink]]\ntype = \"otlp-http\"\nurl = \"http://o:4318\"\nlabels = [\"a=c\"]\nspool-size = \"2MiB\"\n",
            &["--pyroscope-url", "https://p:4040", "--otlp-url", "http://o:4317"],
        );
        let sinks: Vec<_> = config
            .unwrap()
            .sinks
            .into_iter()
            .map(|s| (s.name, s.protocol, s.tenant, s.labels["a"].clone(), s.spool_bytes >> 20))
            .collect();
        let sink = |name: &str, protocol, tenant: Option<&str>, a: &str, spool| {
            (name.to_owned(), protocol, tenant.map(str::to_owned), a.to_owned(), spool)
        };
        assert_eq!(
            sinks,
            [
                sink("pyroscope", Protocol::Pyroscope, None, "b", 1),
                sink("otlp", Protocol::OtlpHttp, None, "b", 1),
                sink("central", Protocol::Pyroscope, Some("t"), "b", 1),
                sink("otlp-http", Protocol::OtlpHttp, None, "c", 2),
            ]
        );
    }

    #[test]
    fn mistakes_are_named_with_what_is_right() {
        for (text, said) in [
            ("frequenzy = 19", "FILE: unknown setting frequenzy; did you mean frequency?"),
            ("keep_size = \"1GiB\"", "did you mean keep-size?"),
            ("a = [", "FILE: line 1: "),
            ("window = \"10s\"\nfrequency = \"x\"", "FILE: frequency: "),
            ("window = \"1.5s\"", "window: use whole seconds"),
            ("frequency = 0", "frequency 0"),
            ("max-cpu = 0", "max-cpu 0"),
            ("max-memory = \"much\"", "max-memory much: expected a size"),
            ("api = \"0.0.0.0:80\"", "set token-file"),
            ("metrics = \"here\"", "metrics here: expected an address"),
            ("pyroscope-url = \"ftp://x\"", "pyroscope-url ftp://x"),
            (
                "otlp-url = \"http://x\"\notlp-user = \"u\"",
                "sink otlp: set otlp-token-file, or both otlp-user and otlp-password-file",
            ),
            ("otlp-url = \"http://x\"\notlp-protocol = \"udp\"", "use http or grpc"),
            ("[[sink]]\nurl = \"http://x\"", "sink: set type to one of pyroscope, otlp-http, otlp-grpc"),
            (
                "[[sink]]\nname = \"prod\"\ntype = \"x\"",
                "sink prod: unknown type \"x\"; known types are pyroscope",
            ),
            ("[[sink]]\ntype = \"pyroscope\"", "sink pyroscope: set url"),
            ("[[sink]]\ntype = \"pyroscope\"\nurl = \"x\"", "sink pyroscope: url x: expected a URL"),
            (
                "[[sink]]\nname = \"prod\"\ntype = \"pyroscope\"\nurl = \"http://x\"\nuser = \"u\"",
                "sink prod: set token-file, or both user and password-file",
            ),
            (
                "[[sink]]\nname = \"prod\"\ntype = \"pyroscope\"\nurl = \"http://x\"\nlabels = [\"y\"]",
                "sink prod: labels y: expected NAME=VALUE",
            ),
            (
                "[[sink]]\nname = \"prod\"\ntype = \"pyroscope\"\nurl = \"http://x\"\nspool-size = \"much\"",
                "sink prod: spool-size much: expected a size",
            ),
            ("[[sink]]\nname = \"a/b\"\ntype = \"pyroscope\"\nurl = \"http://x\"", "sink a/b: use letters"),
            ("[[sink]]\nuri = \"http://x\"", "FILE: sink: unknown field `uri`"),
            (
                "pyroscope-url = \"http://x\"\n[[sink]]\ntype = \"pyroscope\"\nurl = \"http://y\"",
                "sink pyroscope: two sinks have this name",
            ),
            ("labels = [\"x\"]", "labels x: expected NAME=VALUE"),
            ("agent-annotation = [\"a=b\"]", "set kubelet-url"),
            ("kubelet-url = \"https://n:10250\"", "without agent-annotation"),
            ("kubelet-name = \"n\"", "without agent-annotation"),
            (
                "agent-annotation = [\"a=b\"]\nkubelet-url = \"http://n:10255\"\nkubelet-token-file = \"/t\"",
                "use https",
            ),
            ("directory = \"here\"", "use an absolute path"),
        ] {
            let was = from_file(text, &[]).unwrap_err();
            assert!(was.contains(said) && !was.contains('\n'), "{text}: {was}");
        }
        assert!(from_file("api = \"0.0.0.0:80\"\ntoken-file = \"/t\"", &[]).is_ok());
    }

    #[test]
    fn annotations_are_asked_of_the_kubelet() {
        let text = "agent-env = [\"A=1\"]\nagent-annotation = [\"jbpf-prof/agent=true\"]";
        let flags = ["--kubelet-url", "https://10.0.0.1:10250", "--kubelet-name", "n1"];
        let config = from_file(text, &flags).unwrap();
        let kubelet = config.kubelet.unwrap();
        assert_eq!(kubelet.annotations, [("jbpf-prof/agent".to_owned(), "true".to_owned())]);
        assert_eq!(kubelet.trust.name.as_deref(), Some("n1"));
        let rule = AgentRule::OptedIn(kubelet.opted_in);
        assert_eq!(config.agent_for, [AgentRule::Env("A".to_owned(), "1".to_owned()), rule]);
    }
}
