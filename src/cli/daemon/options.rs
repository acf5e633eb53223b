//! The settings of a daemon as they are written: in a file, and as flags of the same names.

use std::path::{Path, PathBuf};

use clap::Args as _;
use serde::{Deserialize, Serialize};

use super::super::choice::{JavaChoice, LogLevel};
use super::super::number;
use crate::failure::Failure;
use crate::sample::Event;
use crate::suggestion::nearest;

/// A table `[[sink]]` of the settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub(super) struct SinkOptions {
    /// Unique name; the default is the type.
    pub(super) name: Option<String>,
    /// `pyroscope`, `otlp-http` or `otlp-grpc`.
    #[serde(rename = "type")]
    pub(super) protocol: String,
    pub(super) url: String,
    /// File with the bearer token.
    pub(super) token_file: Option<PathBuf>,
    /// User of basic authentication.
    pub(super) user: Option<String>,
    /// File with the user's password.
    pub(super) password_file: Option<PathBuf>,
    /// Certificates to trust instead of the host's.
    pub(super) ca_file: Option<PathBuf>,
    /// Tenant (X-Scope-OrgID).
    pub(super) tenant: Option<String>,
    /// Headers (NAME=VALUE) with credentials. Only a variable can have them: files hold secrets in files of their own.
    #[serde(skip)]
    pub(super) headers: Vec<String>,
    /// Labels (NAME=VALUE) beside those of all sinks.
    pub(super) labels: Vec<String>,
    /// Disk space of the spool.
    pub(super) spool_size: Option<String>,
}

/// The command line of `daemon`.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Daemon {
    /// Read settings from this TOML file. Each option below is a key of the same name; an option on the command line wins.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Check the settings and exit.
    #[arg(long)]
    pub(super) check: bool,
    /// Print the settings with the source of each, and exit.
    ///
    /// A flag wins over the variable JBPF_PROF_KEY, the variable over the settings file, and the file over the default.
    #[arg(long)]
    pub(super) print_config: bool,
    #[command(flatten)]
    pub(super) options: Options,
}

/// The settings, as they are written.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
#[command(mut_args(with_variable))]
pub(super) struct Options {
    /// Take at most this many samples a second on each CPU [default: 19].
    #[arg(short = 'F', long, value_name = "HZ", value_parser = number::daemon_rate, help_heading = "Sampling")]
    pub(super) frequency: Option<f64>,
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        help_heading = "Sampling",
        help = format!(
            "Sample these events (comma-separated): {}, but not {} [default: cpu]",
            Event::names(),
            Event::NativeAlloc.name()
        )
    )]
    pub(super) events: Option<Vec<String>>,
    /// Treat threads that sleep in these functions or their callees as idle (comma-separated); * matches any text.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Sampling")]
    pub(super) idle_frames: Option<Vec<String>>,
    /// Put the stack that ended a wait on top of the wait's own stack [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Sampling")]
    pub(super) wakers: Option<bool>,
    /// Record the trace and the span that each thread works for, where programs publish them [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Sampling")]
    pub(super) trace_context: Option<bool>,
    /// Take one sample for each N events, for all events but cpu, wait, alloc and rss [default: 1000].
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub(super) event_count: Option<u64>,
    /// Store one profile for each period of this length [default: 10s].
    #[arg(long, value_name = "TIME", help_heading = "Sampling")]
    pub(super) window: Option<String>,
    /// Limit the CPU time of the profiler, in percent of the host; the sampling rate adapts [default: 0.5].
    #[arg(long, value_name = "PERCENT", value_parser = number::percent, help_heading = "Sampling")]
    pub(super) max_cpu: Option<f64>,
    /// Limit the memory of the profiler with its BPF maps; caches are evicted above the limit [default: 128MiB].
    #[arg(long, value_name = "SIZE", help_heading = "Sampling")]
    pub(super) max_memory: Option<String>,
    /// Pause sampling while this file exists [default: /run/jbpf-prof/stop].
    #[arg(long, value_name = "FILE", help_heading = "Sampling")]
    pub(super) kill_switch: Option<PathBuf>,

    /// Choose the source of Java names [default: vm, which loads nothing into JVMs].
    #[arg(long, value_enum, help_heading = "Java")]
    pub(super) java: Option<JavaChoice>,
    /// With --java vm: attach the agent to JVMs with this environment variable.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', help_heading = "Java")]
    pub(super) agent_env: Option<Vec<String>>,
    /// With --java vm: attach the agent to JVMs in cgroups with this path; * matches any text.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', help_heading = "Java")]
    pub(super) agent_cgroup: Option<Vec<String>>,
    /// With --java vm: attach the agent to JVMs in pods with this NAMESPACE/NAME; * matches any text.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', help_heading = "Java")]
    pub(super) agent_pod: Option<Vec<String>>,
    /// With --java vm: attach the agent to JVMs in pods with this annotation. Needs --kubelet-url.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', help_heading = "Java")]
    pub(super) agent_annotation: Option<Vec<String>>,
    /// Stop waiting for a JVM that does not answer the attach request after this time [default: 10s].
    #[arg(long, value_name = "TIME", help_heading = "Java")]
    pub(super) attach_timeout: Option<String>,

    /// Ask this kubelet for annotations of pods, for example `https://node:10250`.
    #[arg(long, value_name = "URL", help_heading = "Kubelet")]
    pub(super) kubelet_url: Option<String>,
    /// Read the bearer token for the kubelet from this file.
    #[arg(long, value_name = "FILE", help_heading = "Kubelet")]
    pub(super) kubelet_token_file: Option<PathBuf>,
    /// Trust these CA certificates for the kubelet instead of those of the host.
    #[arg(long, value_name = "FILE", help_heading = "Kubelet")]
    pub(super) kubelet_ca_file: Option<PathBuf>,
    /// Expect this name in the certificate of the kubelet [default: the host of the URL].
    #[arg(long, value_name = "NAME", help_heading = "Kubelet")]
    pub(super) kubelet_name: Option<String>,

    /// Store profiles and the spools of sinks in this directory [default: /var/lib/jbpf-prof].
    #[arg(long, value_name = "DIR", help_heading = "Keeping")]
    pub(super) directory: Option<PathBuf>,
    /// Limit the disk space of stored profiles; the oldest are removed first [default: 1GiB].
    #[arg(long, value_name = "SIZE", help_heading = "Keeping")]
    pub(super) keep_size: Option<String>,
    /// Remove stored profiles that are older than this [default: 24h].
    #[arg(long, value_name = "TIME", help_heading = "Keeping")]
    pub(super) keep_age: Option<String>,

    /// Serve /metrics, /healthz and /readyz on this address, or `off` [default: 127.0.0.1:9919].
    #[arg(long, value_name = "ADDRESS", help_heading = "HTTP")]
    pub(super) metrics: Option<String>,
    /// Serve profiles, too, on this address. Non-local addresses need --token-file [default: unix:/run/jbpf-prof/api.sock].
    #[arg(long, value_name = "ADDRESS", help_heading = "HTTP")]
    pub(super) api: Option<String>,
    /// Require the bearer token in this file for profiles.
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub(super) token_file: Option<PathBuf>,
    /// Limit the profiles that are made at the same time [default: 2].
    #[arg(long, value_name = "N", value_parser = number::profiles, help_heading = "HTTP")]
    pub(super) concurrent_profiles: Option<usize>,

    /// Push profiles to this Grafana Pyroscope, for example `https://pyroscope.example:4040`.
    #[arg(long, value_name = "URL", help_heading = "Pushing")]
    pub(super) pyroscope_url: Option<String>,
    /// Read the bearer token for Pyroscope from this file.
    #[arg(long, value_name = "FILE", help_heading = "Pushing")]
    pub(super) pyroscope_token_file: Option<PathBuf>,
    /// Authenticate as this user at Pyroscope.
    #[arg(long, value_name = "NAME", help_heading = "Pushing")]
    pub(super) pyroscope_user: Option<String>,
    /// Read the password of the Pyroscope user from this file.
    #[arg(long, value_name = "FILE", help_heading = "Pushing")]
    pub(super) pyroscope_password_file: Option<PathBuf>,
    /// Trust these CA certificates for Pyroscope instead of those of the host.
    #[arg(long, value_name = "FILE", help_heading = "Pushing")]
    pub(super) pyroscope_ca_file: Option<PathBuf>,
    /// Push as this tenant (X-Scope-OrgID).
    #[arg(long, value_name = "NAME", help_heading = "Pushing")]
    pub(super) pyroscope_tenant: Option<String>,
    /// Push profiles to this OpenTelemetry Collector, for example `http://collector:4318`.
    #[arg(long, value_name = "URL", help_heading = "Pushing")]
    pub(super) otlp_url: Option<String>,
    /// Use this protocol for OpenTelemetry: http or grpc [default: http].
    #[arg(long, value_name = "PROTOCOL", help_heading = "Pushing")]
    pub(super) otlp_protocol: Option<String>,
    /// Read the bearer token for OpenTelemetry from this file.
    #[arg(long, value_name = "FILE", help_heading = "Pushing")]
    pub(super) otlp_token_file: Option<PathBuf>,
    /// Authenticate as this user at the OpenTelemetry Collector.
    #[arg(long, value_name = "NAME", help_heading = "Pushing")]
    pub(super) otlp_user: Option<String>,
    /// Read the password of the OpenTelemetry user from this file.
    #[arg(long, value_name = "FILE", help_heading = "Pushing")]
    pub(super) otlp_password_file: Option<PathBuf>,
    /// Trust these CA certificates for OpenTelemetry instead of those of the host.
    #[arg(long, value_name = "FILE", help_heading = "Pushing")]
    pub(super) otlp_ca_file: Option<PathBuf>,
    /// Add these labels to all pushed profiles, for example cluster=a,node=b.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', help_heading = "Pushing")]
    pub(super) labels: Option<Vec<String>>,
    /// Limit the disk space of the spool of each sink; the oldest profiles are dropped first [default: 64MiB].
    #[arg(long, value_name = "SIZE", help_heading = "Pushing")]
    pub(super) spool_size: Option<String>,

    /// Sinks, any number of a kind; in the file only.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sink: Vec<SinkOptions>,

    /// Set the log level of standard error [default: warn].
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Log")]
    pub(super) log_level: Option<LogLevel>,
}

/// The variable of a setting: `JBPF_PROF_MAX_CPU` for `max-cpu`.
pub(super) fn variable_of(key: &str) -> String {
    format!("JBPF_PROF_{}", key.to_uppercase().replace('-', "_"))
}

/// Names the variable of an option in its long help.
fn with_variable(argument: clap::Arg) -> clap::Arg {
    let takes_value = argument.get_action().takes_values();
    let Some(key) = argument.get_long().filter(|_| takes_value) else { return argument };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string);
    let help = format!("{}\n[env: {}]", help.unwrap_or_default(), variable_of(key));
    argument.long_help(help)
}

/// The keys of all settings but sinks, in the order of the help.
pub(super) fn keys() -> Vec<String> {
    let command = Options::augment_args(clap::Command::new("daemon"));
    command.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned).collect()
}

/// Reads a settings file, and checks each key and the type of its value.
pub(super) fn read_file(file: &Path) -> Result<toml::Table, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        wrong(format!("line {line}: {}", error.message()))
    })?;
    known(&table).map_err(wrong)?;
    for (key, value) in &table {
        let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = Options::deserialize(alone) {
            let why = error.message().replace("expected f64", "expected a number");
            let why = why.replace("expected usize", "expected a whole number");
            return Err(wrong(format!("{key}: {why}")));
        }
    }
    Ok(table)
}

/// Whether all keys mean something.
fn known(table: &toml::Table) -> Result<(), String> {
    let mut names = keys();
    names.push("sink".to_owned());
    let Some(stray) = table.keys().find(|key| !names.contains(key)) else { return Ok(()) };
    let nearest = nearest(stray, names.iter().map(String::as_str));
    Err(format!("unknown setting {stray}; did you mean {nearest}?"))
}
