//! OpenTelemetry's variables of an OTLP exporter, as a sink.

use super::options::SinkOptions;
use crate::failure::Failure;

/// The variable whose presence makes a sink.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The sink `otlp` that OpenTelemetry's variables describe; none without an endpoint. `variable` reads the environment.
pub(super) fn sink(variable: impl Fn(&str) -> Option<String>) -> Result<Option<SinkOptions>, Failure> {
    let Some(url) = variable(ENDPOINT) else { return Ok(None) };
    let protocol = match variable("OTEL_EXPORTER_OTLP_PROTOCOL").as_deref() {
        None | Some("http/protobuf") => "otlp-http",
        Some("grpc") => "otlp-grpc",
        Some(other) => {
            return Err(Failure::usage(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL {other}: use http/protobuf or grpc"
            )));
        }
    };
    let mut labels = pairs("OTEL_RESOURCE_ATTRIBUTES", variable("OTEL_RESOURCE_ATTRIBUTES"))?;
    // Each process and container is a service of its own, so one name for all of them would be wrong.
    labels.retain(|label| !label.starts_with("service.name="));
    Ok(Some(SinkOptions {
        name: Some("otlp".to_owned()),
        protocol: protocol.to_owned(),
        url,
        ca_file: variable("OTEL_EXPORTER_OTLP_CERTIFICATE").map(Into::into),
        headers: pairs("OTEL_EXPORTER_OTLP_HEADERS", variable("OTEL_EXPORTER_OTLP_HEADERS"))?,
        labels,
        ..SinkOptions::default()
    }))
}

/// The pairs of a list `a=b,c=d`, whose values are percent-encoded. The message of an error has no value: it can be a
/// secret.
fn pairs(name: &str, text: Option<String>) -> Result<Vec<String>, Failure> {
    let text = text.unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let pair = entry.split_once('=').filter(|(key, _)| !key.trim().is_empty());
            let decoded = pair.and_then(|(key, value)| Some((key.trim(), decoded(value.trim())?)));
            let (key, value) = decoded.ok_or_else(|| {
                Failure::usage(format!("{name}: expected NAME=VALUE,… with percent-encoding"))
            })?;
            Ok(format!("{key}={value}"))
        })
        .collect()
}

/// A text without its percent-encoding; `None` if the encoding is invalid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<SinkOptions>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        sink(variable).map_err(|failure| failure.message)
    }

    #[test]
    fn an_endpoint_makes_a_sink() {
        assert!(of(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=b")]).unwrap().is_none());
        let endpoint = (ENDPOINT, "https://collector:4317");
        let sink = of(&[
            endpoint,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20eA%3D%3D, x-tenant = t1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=shop"),
        ]);
        let sink = sink.unwrap().unwrap();
        assert_eq!((sink.protocol.as_str(), sink.url.as_str()), ("otlp-grpc", endpoint.1));
        assert_eq!(sink.headers, ["authorization=Basic eA==", "x-tenant=t1"]);
        assert_eq!(sink.labels, ["deployment.environment.name=prod"]);
        assert_eq!(sink.ca_file.unwrap().to_str(), Some("/ca.pem"));
        assert_eq!(of(&[endpoint]).unwrap().unwrap().protocol, "otlp-http");
    }

    #[test]
    fn errors_name_the_variable_and_no_value() {
        let endpoint = (ENDPOINT, "http://collector:4318");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%2"),
            ("OTEL_RESOURCE_ATTRIBUTES", "=secret"),
        ] {
            let message = of(&[endpoint, (name, value)]).unwrap_err();
            assert!(message.starts_with(name) && !message.contains("secret"), "{message}");
        }
    }
}
