//! The effective settings of a daemon. Each setting comes from the strongest of its sources: a flag, a variable, the
//! settings file, or the default.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;
use serde::Deserialize as _;
use toml::{Table, Value};

use super::options::{Options, SinkOptions, keys, read_file, variable_of};
use super::otel;
use crate::failure::{Exit, Failure};

/// The defaults of all settings that have one.
const DEFAULTS: &str = r#"
frequency = 19.0
events = ["cpu"]
wakers = false
trace-context = false
event-count = 1000
window = "10s"
max-cpu = 0.5
max-memory = "128MiB"
kill-switch = "/run/jbpf-prof/stop"
java = "vm"
attach-timeout = "10s"
directory = "/var/lib/jbpf-prof"
keep-size = "1GiB"
keep-age = "24h"
metrics = "127.0.0.1:9919"
api = "unix:/run/jbpf-prof/api.sock"
concurrent-profiles = 2
spool-size = "64MiB"
log-level = "warn"
"#;

/// Reads a variable of the environment; none if the variable is empty.
pub(super) fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

/// All settings that have a value, and where the value comes from.
#[derive(Default)]
pub(super) struct EffectiveSettings {
    table: Table,
    origins: BTreeMap<String, String>,
    /// The sink of OpenTelemetry's variables.
    otel: Option<SinkOptions>,
}

impl EffectiveSettings {
    /// Gathers the settings of all sources. `variable` reads the environment.
    pub(super) fn gather(
        file: Option<&Path>,
        flags: &Options,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<EffectiveSettings, Failure> {
        let mut settings = EffectiveSettings::default();
        settings.add(DEFAULTS.parse().map_err(broken)?, "default");
        let file = file.map(Path::to_owned).or_else(|| variable("JBPF_PROF_CONFIG").map(Into::into));
        if let Some(file) = file {
            settings.add(read_file(&file)?, &file.display().to_string());
        }
        for key in keys() {
            let name = variable_of(&key);
            if let Some(value) = variable(&name) {
                settings.add(of_variable(&name, &key, &value)?, &name);
            }
        }
        settings.add(Table::try_from(flags).map_err(broken)?, "flag");
        // A sink of its own, so that no credentials for one collector go to another one.
        if !settings.table.contains_key("otlp-url") {
            settings.otel = otel::sink(variable)?;
        }
        Ok(settings)
    }

    /// Adds a stronger source. Labels of all sources add up; of two that have the same name the later one counts.
    fn add(&mut self, source: Table, origin: &str) {
        for (key, mut value) in source {
            let mut origin = origin.to_owned();
            if let (Some(Value::Array(before)), "labels", Value::Array(labels)) =
                (self.table.get(&key), key.as_str(), &mut value)
            {
                labels.splice(0..0, before.iter().cloned());
                origin = format!("{}, {origin}", self.origins[&key]);
            }
            self.origins.insert(key.clone(), origin);
            self.table.insert(key, value);
        }
    }

    /// The settings for validation.
    pub(super) fn options(self) -> Result<Options, Failure> {
        let mut options = Options::deserialize(self.table).map_err(broken)?;
        options.sink.splice(0..0, self.otel);
        Ok(options)
    }

    /// The settings as a settings file, with the source of each setting in a comment.
    pub(super) fn text(&self) -> String {
        let line = |key: &str, value: &Value| format!("{key} = {value}");
        let mut text = String::new();
        for key in keys() {
            text += &match self.table.get(&key) {
                Some(value) => format!("{:<50} # {}\n", line(&key, value), self.origins[&key]),
                None => format!("# {key:<48} # not set\n"),
            };
        }
        let of_file = self.table.get("sink").and_then(Value::as_array).into_iter().flatten();
        let otel = self.otel.iter().filter_map(|sink| Value::try_from(sink).ok());
        let otel = otel.map(|sink| (sink, "OTEL_EXPORTER_OTLP_ENDPOINT"));
        let of_file = of_file.map(|sink| (sink.clone(), self.origins["sink"].as_str()));
        for (sink, origin) in otel.chain(of_file) {
            text += &format!("\n{:<50} # {origin}\n", "[[sink]]");
            for (key, value) in sink.as_table().into_iter().flatten() {
                text += &(line(key, value) + "\n");
            }
        }
        for header in self.otel.iter().flat_map(|sink| &sink.headers) {
            let name = header.split('=').next().unwrap_or_default();
            text += &format!("# header {name}: the value is not shown\n");
        }
        text
    }
}

/// A variable has the syntax of the flag.
fn of_variable(name: &str, key: &str, value: &str) -> Result<Table, Failure> {
    #[derive(Parser)]
    struct CommandLineFlags {
        #[command(flatten)]
        options: Options,
    }
    let flags =
        CommandLineFlags::try_parse_from(["daemon", &format!("--{key}={value}")]).map_err(|error| {
            let text = error.to_string();
            let reason = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(format!("{name}: {reason}"))
        })?;
    Table::try_from(flags.options).map_err(broken)
}

/// Settings are text, numbers and lists, which TOML always can hold.
fn broken(error: impl std::fmt::Display) -> Failure {
    Failure { exit: Exit::Failed, message: format!("settings: {error}") }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    fn gathered(
        file: &str,
        flags: &Options,
        variables: &[(&str, &str)],
    ) -> Result<EffectiveSettings, String> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), file).unwrap();
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        EffectiveSettings::gather(Some(path.path()), flags, variable)
            .map(|mut settings| {
                for origin in settings.origins.values_mut() {
                    *origin = origin.replace(path.path().to_str().unwrap(), "FILE");
                }
                settings
            })
            .map_err(|failure| failure.message)
    }

    fn has(text: &str, setting: &str, origin: &str) -> bool {
        text.lines().any(|line| {
            line.split_once(" # ").is_some_and(|(left, right)| left.trim_end() == setting && right == origin)
        })
    }

    #[test]
    fn the_strongest_source_wins_and_is_named() {
        let flags = Options {
            keep_age: Some("3h".to_owned()),
            labels: Some(vec!["c=3".to_owned()]),
            ..Options::default()
        };
        let file = "window = \"20s\"\nkeep-age = \"1h\"\nmax-cpu = 1\nlabels = [\"a=1\"]";
        let variables = [
            ("JBPF_PROF_KEEP_AGE", "2h"),
            ("JBPF_PROF_MAX_CPU", "2"),
            ("JBPF_PROF_LABELS", "b=2"),
            ("JBPF_PROF_EVENTS", "cpu,wait"),
            ("JBPF_PROF_METRICS_PORT", "tcp://10.0.0.1:9919"),
        ];
        let settings = gathered(file, &flags, &variables).unwrap();
        let text = settings.text();
        for (setting, origin) in [
            ("frequency = 19.0", "default"),
            ("window = \"20s\"", "FILE"),
            ("max-cpu = 2.0", "JBPF_PROF_MAX_CPU"),
            ("events = [\"cpu\", \"wait\"]", "JBPF_PROF_EVENTS"),
            ("keep-age = \"3h\"", "flag"),
            ("labels = [\"a=1\", \"b=2\", \"c=3\"]", "FILE, JBPF_PROF_LABELS, flag"),
            ("# token-file", "not set"),
        ] {
            assert!(has(&text, setting, origin), "{setting}: {text}");
        }
        let options = settings.options().unwrap();
        assert_eq!(options.labels.unwrap(), ["a=1", "b=2", "c=3"]);
        // The text is a settings file that gives the same settings.
        let again = gathered(&text, &Options::default(), &[]).unwrap();
        assert!(keys().iter().all(|key| text.contains(key.as_str())), "{text}");
        assert_eq!(again.table["max-cpu"], Value::Float(2.0));
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (name, value, said) in [
            ("JBPF_PROF_FREQUENCY", "x", "JBPF_PROF_FREQUENCY: invalid value 'x'"),
            ("JBPF_PROF_JAVA", "maybe", "JBPF_PROF_JAVA: invalid value 'maybe'"),
            ("JBPF_PROF_CONCURRENT_PROFILES", "-", "JBPF_PROF_CONCURRENT_PROFILES: invalid value"),
        ] {
            let message = gathered("", &Options::default(), &[(name, value)]).err().unwrap();
            assert!(message.starts_with(said) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn opentelemetrys_variables_are_weaker_than_settings() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"),
        ];
        let settings = gathered("", &Options::default(), &variables).unwrap();
        let text = settings.text();
        assert!(has(&text, "[[sink]]", "OTEL_EXPORTER_OTLP_ENDPOINT"), "{text}");
        assert!(text.contains("# header authorization") && !text.contains("secret"), "{text}");
        assert_eq!(settings.options().unwrap().sink[0].url, "http://collector:4318");
        let settings = gathered("otlp-url = \"http://other:4318\"", &Options::default(), &variables).unwrap();
        assert!(settings.options().unwrap().sink.is_empty(), "the credentials are for another collector");
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let defaults: Table = DEFAULTS.parse().unwrap();
        let command = Options::augment_args(clap::Command::new("daemon"));
        let mut checked = 0;
        for argument in command.get_arguments() {
            let (Some(key), Some(help)) = (argument.get_long(), argument.get_help()) else { continue };
            let help = help.to_string();
            let Some((_, default)) = help.rsplit_once("[default: ") else { continue };
            let Some(value) = defaults.get(key) else { continue };
            let value = value.to_string().replace(['"', '[', ']'], "");
            let value = value.strip_suffix(".0").unwrap_or(&value);
            assert!(default.split([']', ',']).next() == Some(value), "{key}: {default} {value}");
            checked += 1;
        }
        assert_eq!(checked, defaults.len());
    }
}
