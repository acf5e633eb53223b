//! Sinks: a `[[sink]]` table of the settings, or the flags of one protocol, which are a shorthand for such a table.

use std::collections::{BTreeMap, HashSet};

use super::options::{Options, SinkOptions};
use super::value::{pair, require, size, valid_url};
use crate::daemon::{Auth, Protocol, SinkConfig, Trust};
use crate::failure::Failure;

/// Defaults that all sinks share.
struct SinkDefaults {
    labels: BTreeMap<String, String>,
    spool_bytes: u64,
}

/// Settings of one sink.
struct SinkSource {
    options: SinkOptions,
    /// The prefix of the sink's flags and settings, such as `otlp`; `None` for a `[[sink]]` table.
    flags: Option<&'static str>,
}

/// All sinks; those of flags come first.
pub(super) fn sinks(options: &Options) -> Result<Vec<SinkConfig>, Failure> {
    let common = SinkDefaults {
        labels: labels("labels", options.labels.iter().flatten())?,
        spool_bytes: size("spool-size", require("spool-size", options.spool_size.as_deref())?)?,
    };
    let mut names = HashSet::new();
    let mut configs = Vec::new();
    let tables = options.sink.iter().map(|table| SinkSource { options: table.clone(), flags: None });
    for sink in pyroscope(options).into_iter().chain(otlp(options)?).chain(tables) {
        let config = sink.config(&common)?;
        if !names.insert(config.name.clone()) {
            return Err(Failure::usage(format!(
                "sink {}: two sinks have this name; names must be unique, since each sink has a spool of its name",
                config.name
            )));
        }
        configs.push(config);
    }
    Ok(configs)
}

fn pyroscope(options: &Options) -> Option<SinkSource> {
    let options = SinkOptions {
        name: Some("pyroscope".to_owned()),
        protocol: Protocol::Pyroscope.name().to_owned(),
        url: options.pyroscope_url.clone()?,
        token_file: options.pyroscope_token_file.clone(),
        user: options.pyroscope_user.clone(),
        password_file: options.pyroscope_password_file.clone(),
        ca_file: options.pyroscope_ca_file.clone(),
        tenant: options.pyroscope_tenant.clone(),
        ..SinkOptions::default()
    };
    Some(SinkSource { options, flags: Some("pyroscope") })
}

fn otlp(options: &Options) -> Result<Option<SinkSource>, Failure> {
    let Some(url) = options.otlp_url.clone() else { return Ok(None) };
    let protocol = match options.otlp_protocol.as_deref() {
        None | Some("http") => Protocol::OtlpHttp,
        Some("grpc") => Protocol::OtlpGrpc,
        Some(other) => return Err(Failure::usage(format!("otlp-protocol {other}: use http or grpc"))),
    };
    let options = SinkOptions {
        name: Some("otlp".to_owned()),
        protocol: protocol.name().to_owned(),
        url,
        token_file: options.otlp_token_file.clone(),
        user: options.otlp_user.clone(),
        password_file: options.otlp_password_file.clone(),
        ca_file: options.otlp_ca_file.clone(),
        ..SinkOptions::default()
    };
    Ok(Some(SinkSource { options, flags: Some("otlp") }))
}

impl SinkSource {
    fn config(self, common: &SinkDefaults) -> Result<SinkConfig, Failure> {
        let SinkSource { options, flags } = self;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if let Some(name) = options.name.as_deref().filter(|name| name.is_empty() || !name.chars().all(fits))
        {
            return Err(Failure::usage(format!("sink {name}: use letters, digits, - and _ only")));
        }
        let protocol = protocol(&options)?;
        let name = options.name.unwrap_or_else(|| protocol.name().to_owned());
        // How messages name one of this sink's settings.
        let setting = |key: &str| match flags {
            Some(prefix) => format!("{prefix}-{key}"),
            None => format!("sink {name}: {key}"),
        };
        if flags.is_none() && options.url.is_empty() {
            return Err(Failure::usage(format!("sink {name}: set url, such as https://host:port")));
        }
        let mut all = common.labels.clone();
        all.extend(labels(&setting("labels"), &options.labels)?);
        let auth = match (options.token_file, options.user, options.password_file) {
            (None, None, None) if !options.headers.is_empty() => Auth::with_headers(&options.headers)
                .map_err(|header| Failure::usage(format!("sink {name}: header {header} is invalid")))?,
            (None, None, None) => Auth::None,
            (Some(token), None, None) => Auth::Bearer(token),
            (None, Some(user), Some(password)) => Auth::Basic(user, password),
            _ => {
                let prefix = flags.map(|prefix| format!("{prefix}-")).unwrap_or_default();
                return Err(Failure::usage(format!(
                    "sink {name}: set {prefix}token-file, or both {prefix}user and {prefix}password-file"
                )));
            }
        };
        Ok(SinkConfig {
            protocol,
            url: valid_url(&setting("url"), &options.url)?,
            auth,
            trust: Trust { ca_file: options.ca_file, name: None },
            tenant: options.tenant,
            labels: all,
            spool_bytes: match &options.spool_size {
                Some(text) => size(&setting("spool-size"), text)?,
                None => common.spool_bytes,
            },
            name,
        })
    }
}

/// The protocol that a sink's `type` names.
fn protocol(options: &SinkOptions) -> Result<Protocol, Failure> {
    Protocol::named(&options.protocol).ok_or_else(|| {
        let sink = options.name.as_ref().map_or_else(|| "sink".to_owned(), |name| format!("sink {name}"));
        let known = Protocol::ALL.map(Protocol::name).join(", ");
        Failure::usage(match options.protocol.as_str() {
            "" => format!("{sink}: set type to one of {known}"),
            other => format!("{sink}: unknown type \"{other}\"; known types are {known}"),
        })
    })
}

/// The labels of the setting `name`.
fn labels<'a>(
    name: &str,
    texts: impl IntoIterator<Item = &'a String>,
) -> Result<BTreeMap<String, String>, Failure> {
    texts.into_iter().map(|text| pair(name, text)).collect()
}
