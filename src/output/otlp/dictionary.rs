//! The tables of an OTLP request. All its profiles refer to the entries by number.

use std::collections::HashMap;
use std::hash::Hash;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;

use super::super::pprof::{LABEL_PID, LABEL_PROCESS, LABEL_STATE, LABEL_THREAD};
use super::frame_type;
use crate::profile::frame::{Module, hex};
use crate::profile::{Frame, Kind, Labels};
use crate::sample::{SpanContext, ThreadState};

/// The value of a text.
pub(super) fn text(value: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(value.to_owned())) }
}

/// Interned items; number 0 is the empty item, as the format requires.
#[derive(Debug)]
struct DictionaryTable<T> {
    list: Vec<T>,
    ids: HashMap<T, i32>,
}

impl<T: Clone + Eq + Hash + Default> Default for DictionaryTable<T> {
    fn default() -> DictionaryTable<T> {
        DictionaryTable { list: vec![T::default()], ids: HashMap::from([(T::default(), 0)]) }
    }
}

impl<T: Clone + Eq + Hash> DictionaryTable<T> {
    fn id(&mut self, item: T) -> i32 {
        if let Some(&id) = self.ids.get(&item) {
            return id;
        }
        let id = i32::try_from(self.list.len()).unwrap_or(i32::MAX);
        self.list.push(item.clone());
        self.ids.insert(item, id);
        id
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct AttributeEntry {
    key: i32,
    value: AttributeValue,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum AttributeValue {
    #[default]
    None,
    Text(String),
    Number(i64),
}

/// The numbers are indices into the other tables; 0: there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct LocationEntry {
    mapping: i32,
    address: u64,
    function: i32,
    line: i64,
    attributes: Vec<i32>,
}

/// The tables that all profiles of a request share.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    strings: DictionaryTable<String>,
    functions: DictionaryTable<otlp::Function>,
    mappings: DictionaryTable<otlp::Mapping>,
    locations: DictionaryTable<LocationEntry>,
    stacks: DictionaryTable<otlp::Stack>,
    attributes: DictionaryTable<AttributeEntry>,
    links: DictionaryTable<otlp::Link>,
}

impl Dictionary {
    fn string(&mut self, text: &str) -> i32 {
        self.strings.id(text.to_owned())
    }

    pub(super) fn value_type(&mut self, kind: &str, unit: &str) -> otlp::ValueType {
        otlp::ValueType { type_strindex: self.string(kind), unit_strindex: self.string(unit) }
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let key = self.string(key);
        self.attributes.id(AttributeEntry { key, value: AttributeValue::Text(value.to_owned()) })
    }

    pub(super) fn labels(&mut self, labels: &Labels) -> Vec<i32> {
        let mut list = Vec::new();
        if !labels.process.is_empty() {
            list.push(self.attribute(LABEL_PROCESS, &labels.process));
        }
        if !labels.thread.is_empty() {
            list.push(self.attribute(LABEL_THREAD, &labels.thread));
        }
        if labels.state != ThreadState::Running {
            list.push(self.attribute(LABEL_STATE, labels.state.name()));
        }
        if labels.pid != 0 {
            let key = self.string(LABEL_PID);
            let value = AttributeValue::Number(labels.pid.into());
            list.push(self.attributes.id(AttributeEntry { key, value }));
        }
        list
    }

    /// The link to the span of a sample; 0 without one.
    pub(super) fn link(&mut self, span: Option<SpanContext>) -> i32 {
        let link =
            |SpanContext { trace, span }| otlp::Link { trace_id: trace.0.to_vec(), span_id: span.0.to_vec() };
        self.links.id(span.map(link).unwrap_or_default())
    }

    pub(super) fn stack(&mut self, location_indices: Vec<i32>) -> i32 {
        self.stacks.id(otlp::Stack { location_indices })
    }

    pub(super) fn marker(&mut self, text: &str) -> i32 {
        self.location(&Frame::named(Kind::Marker, text), text)
    }

    pub(super) fn location(&mut self, frame: &Frame, name: &str) -> i32 {
        let mut attributes = vec![self.attribute("jbpf_prof.frame.kind", frame.kind.facts().label)];
        if let Some(kind) = frame_type::of(frame) {
            attributes.push(self.attribute("profile.frame.type", kind));
        }
        let mut mapping = 0;
        if let Some(module) = &frame.module {
            match self.build_ids(module) {
                // A mapping must have a build id, and the path is known all the same.
                ids if ids.is_empty() => {
                    attributes.push(self.attribute("jbpf_prof.mapping.path", &module.path));
                }
                attribute_indices => {
                    let filename_strindex = self.string(&module.path);
                    mapping = self.mappings.id(otlp::Mapping {
                        filename_strindex,
                        attribute_indices,
                        ..otlp::Mapping::default()
                    });
                }
            }
        }
        let function = otlp::Function {
            name_strindex: self.string(name),
            filename_strindex: frame.file.as_ref().map_or(0, |file| self.string(file)),
            ..otlp::Function::default()
        };
        let function = self.functions.id(function);
        self.locations.id(LocationEntry {
            mapping,
            address: frame.address,
            function,
            line: i64::from(frame.line),
            attributes,
        })
    }

    /// The attributes that identify a file.
    fn build_ids(&mut self, module: &Module) -> Vec<i32> {
        let gnu =
            module.build_id.as_deref().map(|id| self.attribute("process.executable.build_id.gnu", &hex(id)));
        let htlhash =
            module.htlhash.map(|hash| self.attribute("process.executable.build_id.htlhash", &hex(&hash)));
        gnu.into_iter().chain(htlhash).collect()
    }

    pub(super) fn finish(self) -> otlp::ProfilesDictionary {
        let locations = self.locations.list.into_iter().enumerate();
        let location_table =
            locations.map(|(at, LocationEntry { mapping, address, function, line, attributes })| {
                let lines = vec![otlp::Line { function_index: function, line, column: 0 }];
                let lines = if at == 0 { Vec::new() } else { lines };
                otlp::Location { mapping_index: mapping, address, lines, attribute_indices: attributes }
            });
        let attributes = self.attributes.list.into_iter();
        let attribute_table = attributes.map(|AttributeEntry { key, value }| {
            let value = match value {
                AttributeValue::None => None,
                AttributeValue::Text(value) => Some(text(&value)),
                AttributeValue::Number(number) => Some(AnyValue { value: Some(Value::IntValue(number)) }),
            };
            otlp::KeyValueAndUnit { key_strindex: key, value, unit_strindex: 0 }
        });
        otlp::ProfilesDictionary {
            mapping_table: self.mappings.list,
            location_table: location_table.collect(),
            function_table: self.functions.list,
            link_table: self.links.list,
            string_table: self.strings.list,
            attribute_table: attribute_table.collect(),
            stack_table: self.stacks.list,
        }
    }
}
