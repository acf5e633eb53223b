//! The attributes in a process context: the message `ProcessContext` of OpenTelemetry's OTEP 4719, of which only the
//! fields are decoded that jbpf-prof uses. The process may publish any bytes.

use prost::Message;

use crate::profile::resource::{ResourceAttribute, ResourceAttributes};

/// The fields of `opentelemetry.proto.processcontext.v1development.ProcessContext`.
#[derive(Clone, PartialEq, Message)]
struct ContextMessage {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
}

/// `opentelemetry.proto.resource.v1.Resource`.
#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValueMessage>,
}

/// `opentelemetry.proto.common.v1.KeyValue`.
#[derive(Clone, PartialEq, Message)]
struct KeyValueMessage {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<ValueMessage>,
}

/// `opentelemetry.proto.common.v1.AnyValue`. Arrays, lists of keys and bytes are skipped.
#[derive(Clone, PartialEq, Message)]
struct ValueMessage {
    #[prost(oneof = "ScalarValue", tags = "1, 2, 3, 4")]
    value: Option<ScalarValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ScalarValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Float(f64),
}

/// Decodes a payload. A payload that is no such message has no attributes.
#[must_use]
pub fn decode(payload: &[u8]) -> ResourceAttributes {
    let message = ContextMessage::decode(payload).unwrap_or_default();
    let attributes = message.resource.unwrap_or_default().attributes.into_iter();
    ResourceAttributes::new(attributes.filter_map(|KeyValueMessage { key, value }| {
        let value = match value?.value? {
            ScalarValue::Text(text) => text,
            ScalarValue::Flag(flag) => flag.to_string(),
            ScalarValue::Integer(number) => number.to_string(),
            ScalarValue::Float(number) => number.to_string(),
        };
        Some(ResourceAttribute { key: key.into(), value: value.into() })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of a message with this number that has bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn attribute(key: &str, value: &[u8]) -> Vec<u8> {
        field(1, &[field(1, key.as_bytes()), field(2, value)].concat())
    }

    fn texts(payload: &[u8]) -> Vec<String> {
        decode(payload).iter().map(|of| format!("{}={}", of.key, of.value)).collect()
    }

    #[test]
    fn values_of_each_scalar_type_are_read() {
        let list = [
            attribute("service.name", &field(1, b"shop")),
            attribute("flag", &[2 << 3, 1]),
            attribute("number", &[3 << 3, 42]),
            attribute("ratio", &[&[4 << 3 | 1][..], &0.5f64.to_le_bytes()].concat()),
            attribute("list", &field(5, &field(1, &field(1, b"x")))),
            attribute("nothing", &[]),
        ];
        // The field after the resource has the keys of OTEP 4947, which are no attributes of the resource.
        let threads = field(2, &field(1, b"threadlocal.schema_version"));
        let payload = [field(1, &list.concat()), threads.clone()].concat();
        assert_eq!(texts(&payload), ["flag=true", "number=42", "ratio=0.5", "service.name=shop"]);
        let resource = payload.len() - threads.len();
        for end in (0..payload.len()).filter(|end| *end != resource) {
            assert!(texts(&payload[..end]).is_empty(), "a part of {end} bytes");
        }
        assert!(texts(&[field(1, &[0xff; 20]), vec![0xff; 20]].concat()).is_empty());
    }
}
