//! OTLP profiles for an OpenTelemetry Collector: `opentelemetry.proto.profiles.v1development` of proto 1.10.0.
//!
//! Each service is a resource with one profile. Its values are `samples/count` with a period in nanoseconds for the
//! `cpu` event, and numbers of events for other events. Frame kinds are the attribute `profile.frame.type`;
//! `jbpf_prof.frame.kind` has the exact kind, even where OpenTelemetry has no name for it. Lost ticks are samples with
//! the stack `[lost]` and the reason, as in every other format.

use std::collections::HashMap;
use std::hash::Hash;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use rustix::rand::{GetRandomFlags, getrandom};

use super::pprof::{LABEL_PID, LABEL_PROCESS, LABEL_STATE, LABEL_THREAD};
use super::{folded, name};
use crate::profile::{Accounts, Frame, Kind, Labels, ProfileView};
use crate::sample::ThreadState;
use crate::sample::event::Unit;

/// The version of opentelemetry-proto that defines these messages.
pub const PROTO_VERSION: &str = "1.10.0";

/// A resource: its attributes and its samples.
pub struct ResourceView<'p> {
    /// Names and values.
    pub attributes: Vec<(String, String)>,
    /// The samples of one event.
    pub view: ProfileView<'p>,
}

/// Encodes an export request as a protobuf message.
#[must_use]
pub fn request(parts: &[ResourceView<'_>]) -> Vec<u8> {
    let mut dictionary = Dictionary::default();
    let resource_profiles = parts.iter().map(|part| resource(part, &mut dictionary)).collect();
    let request = ExportProfilesServiceRequest { resource_profiles, dictionary: Some(dictionary.finish()) };
    request.encode_to_vec()
}

fn resource(part: &ResourceView<'_>, dictionary: &mut Dictionary) -> otlp::ResourceProfiles {
    let ResourceView { attributes, view } = part;
    let attributes = attributes.iter().map(|(key, value)| KeyValue {
        key: key.clone(),
        value: Some(text(value)),
        ..KeyValue::default()
    });
    let scope = InstrumentationScope {
        name: "jbpf-prof".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_profiles = vec![otlp::ScopeProfiles {
        scope: Some(scope),
        profiles: vec![encode(view, dictionary)],
        ..otlp::ScopeProfiles::default()
    }];
    let resource = Resource { attributes: attributes.collect(), ..Resource::default() };
    otlp::ResourceProfiles { resource: Some(resource), scope_profiles, ..otlp::ResourceProfiles::default() }
}

fn encode(view: &ProfileView<'_>, dictionary: &mut Dictionary) -> otlp::Profile {
    let event = view.event();
    // For the `cpu` event the values are numbers of samples, and the period is the time that one sample stands for. For
    // other events the values are numbers of events.
    let counts_samples = event.unit() == Unit::Nanoseconds;
    let Accounts { period_ns, one_in, .. } = *view.accounts();
    let (kind, period, each) =
        if counts_samples { ("samples", period_ns, 1) } else { (event.name(), one_in, one_in.max(1)) };
    let mut samples = Vec::new();
    // Locations of the view's frames, by frame number.
    let mut known: HashMap<u32, i32> = HashMap::new();
    for sample in view.samples() {
        let mut locations = Vec::new();
        for node in view.trie().up(sample.leaf) {
            let id = view.frame_of(node);
            let frame = view.frames().get(id);
            let location = *known.entry(view.trie().item(node)).or_insert_with(|| {
                let symbol = view.frames().symbols()[view.frames().symbol_of(id) as usize];
                dictionary.location(&frame, &name::plain(view.frames(), &symbol))
            });
            locations.push(location);
        }
        if locations.is_empty() {
            locations.push(dictionary.marker(folded::NO_FRAMES));
        }
        let attributes = dictionary.labels(view.labels(sample.labels));
        let value = if counts_samples { sample.weight.count } else { sample.weight.value };
        samples.push(dictionary.sample(locations, attributes, value));
    }
    for (reason, lost) in &view.accounts().lost {
        let stack = vec![dictionary.marker(&folded::reason(reason)), dictionary.marker(name::LOST)];
        samples.push(dictionary.sample(stack, Vec::new(), lost.saturating_mul(each)));
    }
    let mut profile_id = vec![0; 16];
    // Without random numbers the profile has no id, which the format allows.
    if getrandom(&mut profile_id, GetRandomFlags::empty()).is_err() {
        profile_id.clear();
    }
    otlp::Profile {
        sample_type: Some(dictionary.value_type(kind, "count")),
        samples,
        time_unix_nano: view.span().start_unix_ns,
        duration_nano: view.span().duration_ns,
        period_type: Some(dictionary.value_type(event.name(), event.unit().name())),
        period: i64::try_from(period).unwrap_or(0),
        profile_id,
        ..otlp::Profile::default()
    }
}

fn text(value: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(value.to_owned())) }
}

/// Interned items; number 0 is the empty item, as the format requires.
#[derive(Debug)]
struct Table<T> {
    list: Vec<T>,
    ids: HashMap<T, i32>,
}

impl<T: Clone + Eq + Hash + Default> Default for Table<T> {
    fn default() -> Table<T> {
        Table { list: vec![T::default()], ids: HashMap::from([(T::default(), 0)]) }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
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

/// An attribute: key, text and number; text or number is empty.
type Attribute = (i32, String, i64);
/// A location: mapping, address, function, line, attributes.
type Location = (i32, u64, i32, i64, Vec<i32>);

/// The tables that all profiles of a request share.
#[derive(Debug, Default)]
struct Dictionary {
    strings: Table<String>,
    functions: Table<otlp::Function>,
    mappings: Table<otlp::Mapping>,
    locations: Table<Location>,
    stacks: Table<otlp::Stack>,
    attributes: Table<Attribute>,
}

impl Dictionary {
    fn string(&mut self, text: &str) -> i32 {
        self.strings.id(text.to_owned())
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> otlp::ValueType {
        otlp::ValueType { type_strindex: self.string(kind), unit_strindex: self.string(unit) }
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let key = self.string(key);
        self.attributes.id((key, value.to_owned(), 0))
    }

    fn labels(&mut self, labels: &Labels) -> Vec<i32> {
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
            list.push(self.attributes.id((key, String::new(), i64::from(labels.pid))));
        }
        list
    }

    fn sample(&mut self, locations: Vec<i32>, attribute_indices: Vec<i32>, ticks: u64) -> otlp::Sample {
        let stack_index = self.stacks.id(otlp::Stack { location_indices: locations });
        let values = vec![i64::try_from(ticks).unwrap_or(i64::MAX)];
        otlp::Sample { stack_index, attribute_indices, values, ..otlp::Sample::default() }
    }

    fn marker(&mut self, text: &str) -> i32 {
        self.location(&Frame::named(Kind::Marker, text), text)
    }

    fn location(&mut self, frame: &Frame, name: &str) -> i32 {
        let mut attributes = vec![self.attribute("jbpf_prof.frame.kind", frame.kind.facts().label)];
        if let Some(kind) = frame.kind.facts().otel {
            attributes.push(self.attribute("profile.frame.type", kind));
        }
        let mapping = frame.module.as_ref().map_or(0, |module| {
            let filename_strindex = self.string(&module.path);
            let build_id = module.build_id_text();
            let attribute_indices = if build_id.is_empty() {
                Vec::new()
            } else {
                vec![self.attribute("process.executable.build_id.gnu", &build_id)]
            };
            self.mappings.id(otlp::Mapping {
                filename_strindex,
                attribute_indices,
                ..otlp::Mapping::default()
            })
        });
        let function = otlp::Function {
            name_strindex: self.string(name),
            filename_strindex: frame.file.as_ref().map_or(0, |file| self.string(file)),
            ..otlp::Function::default()
        };
        let function = self.functions.id(function);
        self.locations.id((mapping, frame.address, function, i64::from(frame.line), attributes))
    }

    fn finish(self) -> otlp::ProfilesDictionary {
        let locations = self.locations.list.into_iter().enumerate();
        let location_table =
            locations.map(|(at, (mapping_index, address, function_index, line, attributes))| {
                let lines = vec![otlp::Line { function_index, line, column: 0 }];
                let lines = if at == 0 { Vec::new() } else { lines };
                otlp::Location { mapping_index, address, lines, attribute_indices: attributes }
            });
        let attributes = self.attributes.list.into_iter().enumerate();
        let attribute_table = attributes.map(|(at, (key_strindex, value, number))| {
            let value = match number {
                _ if at == 0 => None,
                0 => Some(text(&value)),
                number => Some(AnyValue { value: Some(Value::IntValue(number)) }),
            };
            otlp::KeyValueAndUnit { key_strindex, value, unit_strindex: 0 }
        });
        otlp::ProfilesDictionary {
            mapping_table: self.mappings.list,
            location_table: location_table.collect(),
            function_table: self.functions.list,
            link_table: vec![otlp::Link::default()],
            string_table: self.strings.list,
            attribute_table: attribute_table.collect(),
            stack_table: self.stacks.list,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::profile::Profile;
    use crate::sample::Event;

    #[test]
    fn a_request_says_what_the_profile_says() {
        let mut profile = Profile::new();
        let frame = |kind, name: &str| Arc::new(Frame::named(kind, name));
        let labels = Labels { pid: 7, process: "java".into(), ..Labels::default() };
        let stack =
            [frame(Kind::Process, "java"), frame(Kind::Java, "a.B.run"), frame(Kind::JavaInlined, "a.B.get")];
        profile.add(&labels, &stack, 5, 50);
        profile.add(&labels, &stack[..2], 2, 20);
        profile.add(&labels, &[], 1, 10);
        *profile.accounts_mut(Event::Cpu) =
            Accounts { ticks: 9, kept: 8, period_ns: 10, ..Accounts::default() };
        profile.accounts_mut(Event::Cpu).lose("ring full", 1);
        profile.check().unwrap();
        let bytes = request(&[ResourceView {
            attributes: vec![("service.name".to_owned(), "java".to_owned())],
            view: profile.of_event(Event::Cpu),
        }]);
        let read = ExportProfilesServiceRequest::decode(bytes.as_slice()).unwrap();
        let dictionary = read.dictionary.unwrap();
        let said = &read.resource_profiles[0].scope_profiles[0].profiles[0];
        let text = |at: i32| dictionary.string_table[at as usize].as_str();
        let stacks: Vec<(Vec<&str>, i64)> = said
            .samples
            .iter()
            .map(|sample| {
                let stack = &dictionary.stack_table[sample.stack_index as usize].location_indices;
                let names = stack.iter().map(|&at| {
                    let line = &dictionary.location_table[at as usize].lines[0];
                    text(dictionary.function_table[line.function_index as usize].name_strindex)
                });
                (names.collect(), sample.values[0])
            })
            .collect();
        let expected = [
            (vec!["[no frames]"], 1),
            (vec!["a.B.run", "java"], 2),
            (vec!["a.B.get", "a.B.run", "java"], 5),
            (vec!["[ring full]", "[lost]"], 1),
        ];
        assert_eq!(stacks, expected);
        assert_eq!(said.period, 10);
        let types = said.sample_type.unwrap();
        assert_eq!((text(types.type_strindex), text(types.unit_strindex)), ("samples", "count"));
        assert!(dictionary.string_table[0].is_empty() && dictionary.location_table[0].lines.is_empty());
        assert_eq!(said.profile_id.len(), 16);
    }
}
