//! Sinks: a `[[sink]]` table of the settings, or the flags of one protocol, which are a shorthand for such a table.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use super::options::{Options, SinkOptions};
use super::value::{pair, size, valid_url};
use crate::daemon::{Auth, Protocol, SinkConfig, Trust};
use crate::failure::Failure;

/// Defaults that all sinks share.
struct Common {
    labels: BTreeMap<String, String>,
    spool_bytes: u64,
}

/// All sinks; those of flags come first.
pub(super) fn sinks(options: &Options) -> Result<Vec<SinkConfig>, Failure> {
    let common = Common {
        labels: labels(options.labels.iter().flatten())?,
        spool_bytes: size("spool-size", options.spool_size.as_deref().unwrap_or("64MiB"))?,
    };
    let mut names = HashSet::new();
    let mut configs = Vec::new();
    for sink in pyroscope(options).into_iter().chain(otlp(options)?).chain(options.sink.iter().cloned()) {
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

fn pyroscope(options: &Options) -> Option<SinkOptions> {
    Some(SinkOptions {
        name: Some("pyroscope".to_owned()),
        protocol: Protocol::Pyroscope.name().to_owned(),
        url: options.pyroscope_url.clone()?,
        token_file: options.pyroscope_token_file.clone(),
        user: options.pyroscope_user.clone(),
        password_file: options.pyroscope_password_file.clone(),
        ca_file: options.pyroscope_ca_file.clone(),
        tenant: options.pyroscope_tenant.clone(),
        ..SinkOptions::default()
    })
}

fn otlp(options: &Options) -> Result<Option<SinkOptions>, Failure> {
    let Some(url) = options.otlp_url.clone() else { return Ok(None) };
    let protocol = match options.otlp_protocol.as_deref() {
        None | Some("http") => Protocol::OtlpHttp,
        Some("grpc") => Protocol::OtlpGrpc,
        Some(other) => return Err(Failure::usage(format!("otlp-protocol {other}: use http or grpc"))),
    };
    Ok(Some(SinkOptions {
        name: Some("otlp".to_owned()),
        protocol: protocol.name().to_owned(),
        url,
        token_file: options.otlp_token_file.clone(),
        user: options.otlp_user.clone(),
        password_file: options.otlp_password_file.clone(),
        ca_file: options.otlp_ca_file.clone(),
        ..SinkOptions::default()
    }))
}

impl SinkOptions {
    fn config(self, common: &Common) -> Result<SinkConfig, Failure> {
        let known = || Protocol::ALL.map(Protocol::name).join(", ");
        let protocol = Protocol::named(&self.protocol).ok_or_else(|| {
            Failure::usage(format!("sink: type \"{}\": there are {}", self.protocol, known()))
        })?;
        let name = self.name.unwrap_or_else(|| self.protocol.clone());
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(Failure::usage(format!("sink {name}: use letters, digits, - and _ only")));
        }
        let mut all = common.labels.clone();
        all.extend(labels(&self.labels)?);
        Ok(SinkConfig {
            protocol,
            url: valid_url(&format!("{name}-url"), &self.url)?,
            auth: auth(&name, (self.token_file, self.user, self.password_file))?,
            trust: Trust { ca_file: self.ca_file, name: None },
            tenant: self.tenant,
            labels: all,
            spool_bytes: self.spool_size.map_or(Ok(common.spool_bytes), |text| size("spool-size", &text))?,
            name,
        })
    }
}

fn labels<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<BTreeMap<String, String>, Failure> {
    texts.into_iter().map(|text| pair("labels", text)).collect()
}

fn auth(sink: &str, given: (Option<PathBuf>, Option<String>, Option<PathBuf>)) -> Result<Auth, Failure> {
    match given {
        (None, None, None) => Ok(Auth::None),
        (Some(token), None, None) => Ok(Auth::Bearer(token)),
        (None, Some(user), Some(password)) => Ok(Auth::Basic(user, password)),
        _ => Err(Failure::usage(format!("{sink}: set either token-file, or user and password-file"))),
    }
}
