//! OTLP profiles for an OpenTelemetry Collector: `opentelemetry.proto.profiles.v1development` of proto 1.11.0, which has
//! the messages of 1.10.0, with the names of semantic conventions 1.44.0.
//!
//! Each service is a resource with one profile. Its values are `samples/count` with a period in nanoseconds for the
//! `cpu` event, and numbers of events for other events. Frame kinds are the attribute `profile.frame.type`;
//! `jbpf_prof.frame.kind` has the exact kind, even where OpenTelemetry has no name for it. Lost samples have
//! the stack `[lost]` and the reason, as in every other format.

mod dictionary;
mod frame_type;
mod rejection;

use std::collections::HashMap;
use std::ops::Range;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use rustix::rand::{GetRandomFlags, getrandom};

use super::{folded, name};
use crate::profile::{Accounts, ProfileView};
use crate::sample::unit::Unit;
use dictionary::{Dictionary, text};

pub use rejection::Rejection;

/// The version of the semantic conventions that names the attributes of resources, samples and frames.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// A resource: its attributes and its samples.
pub struct ResourceView<'p> {
    /// Attributes of the resource: name and value, by the semantic conventions.
    pub attributes: Vec<(String, String)>,
    /// The samples of one event.
    pub view: ProfileView<'p>,
}

/// Export requests, and what no request has room for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `ExportProfilesServiceRequest` messages, encoded and not compressed.
    pub bodies: Vec<Vec<u8>>,
    /// Stacks that were left out, because each alone makes a request that is too large.
    pub oversized: u64,
}

/// Encodes resources into export requests of at most `most_bytes` each. No resources make no request.
#[must_use]
pub fn requests(resources: &[ResourceView<'_>], most_bytes: usize) -> Requests {
    let mut requests = Requests::default();
    let parts: Vec<RequestPart<'_, '_>> = resources.iter().map(RequestPart::whole).collect();
    divide(&parts, most_bytes, &mut requests);
    requests
}

/// Some rows of a resource: its samples, then the reasons for lost samples.
#[derive(Clone)]
struct RequestPart<'a, 'p> {
    resource: &'a ResourceView<'p>,
    rows: Range<usize>,
}

impl<'a, 'p> RequestPart<'a, 'p> {
    fn whole(resource: &'a ResourceView<'p>) -> RequestPart<'a, 'p> {
        let rows = resource.view.samples().len() + resource.view.accounts().lost.len();
        RequestPart { resource, rows: 0..rows }
    }

    /// Two parts with half of the rows each; `None` for one row.
    fn halves(&self) -> Option<[RequestPart<'a, 'p>; 2]> {
        let Range { start, end } = self.rows;
        let middle = start + self.rows.len() / 2;
        let of = |rows| RequestPart { resource: self.resource, rows };
        (middle > start).then(|| [of(start..middle), of(middle..end)])
    }
}

/// A request that is too large is divided: first between its resources, then within the last resource.
fn divide(parts: &[RequestPart<'_, '_>], most_bytes: usize, requests: &mut Requests) {
    if parts.is_empty() {
        return;
    }
    let request = request(parts);
    if request.len() <= most_bytes {
        requests.bodies.push(request);
        return;
    }
    match parts {
        [part] => match part.halves() {
            Some(halves) => halves.into_iter().for_each(|half| divide(&[half], most_bytes, requests)),
            None => requests.oversized += 1,
        },
        _ => {
            let (these, others) = parts.split_at(parts.len() / 2);
            divide(these, most_bytes, requests);
            divide(others, most_bytes, requests);
        }
    }
}

fn request(parts: &[RequestPart<'_, '_>]) -> Vec<u8> {
    let mut dictionary = Dictionary::default();
    let resource_profiles = parts.iter().map(|part| resource(part, &mut dictionary)).collect();
    let request = ExportProfilesServiceRequest { resource_profiles, dictionary: Some(dictionary.finish()) };
    request.encode_to_vec()
}

fn resource(part: &RequestPart<'_, '_>, dictionary: &mut Dictionary) -> otlp::ResourceProfiles {
    let attributes = part.resource.attributes.iter().map(|(key, value)| KeyValue {
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
        profiles: vec![profile(part, dictionary)],
        schema_url: SCHEMA_URL.to_owned(),
    }];
    let resource = Resource { attributes: attributes.collect(), ..Resource::default() };
    otlp::ResourceProfiles { resource: Some(resource), scope_profiles, schema_url: SCHEMA_URL.to_owned() }
}

fn profile(part: &RequestPart<'_, '_>, dictionary: &mut Dictionary) -> otlp::Profile {
    let view = &part.resource.view;
    let event = view.event();
    // For the `cpu` event the values are numbers of samples, and the period is the time that one sample stands for. For
    // other events the values are numbers of events.
    let counts_samples = event.unit() == Unit::Nanoseconds;
    let Accounts { period_ns, one_in, .. } = *view.accounts();
    let (kind, period) = if counts_samples { ("samples", period_ns) } else { (event.name(), one_in) };
    let mut profile_id = vec![0; 16];
    // Without random numbers the profile has no id, which the format allows.
    if getrandom(&mut profile_id, GetRandomFlags::empty()).is_err() {
        profile_id.clear();
    }
    otlp::Profile {
        sample_type: Some(dictionary.value_type(kind, "count")),
        samples: samples(part, counts_samples, dictionary),
        time_unix_nano: view.span().start_unix_ns,
        duration_nano: view.span().duration_ns,
        period_type: Some(dictionary.value_type(event.name(), event.unit().name())),
        period: i64::try_from(period).unwrap_or(0),
        profile_id,
        ..otlp::Profile::default()
    }
}

fn samples(
    part: &RequestPart<'_, '_>,
    counts_samples: bool,
    dictionary: &mut Dictionary,
) -> Vec<otlp::Sample> {
    let RequestPart { resource: ResourceView { view, .. }, rows } = part;
    let (stacks, lost) = (view.samples(), &view.accounts().lost);
    let mut series = Series::default();
    // Locations of the view's frames, by frame number.
    let mut known: HashMap<u32, i32> = HashMap::new();
    for sample in &stacks[rows.start.min(stacks.len())..rows.end.min(stacks.len())] {
        let mut locations = Vec::new();
        for node in view.trie().path_to_root(sample.leaf) {
            let id = view.frame_of(node);
            let frame = view.frames().get(id);
            let location = *known.entry(view.trie().item(node)).or_insert_with(|| {
                let symbol = view.frames().symbols()[view.frames().symbol_of(id) as usize];
                dictionary.location(&frame, &name::display_name(view.frames(), &symbol))
            });
            locations.push(location);
        }
        if locations.is_empty() {
            locations.push(dictionary.marker(folded::NO_FRAMES));
        }
        let labels = view.labels(sample.labels);
        let (attributes, link) = (dictionary.labels(labels), dictionary.link(labels.span));
        let value = if counts_samples { sample.weight.count } else { sample.weight.value };
        series.add(SampleIdentity { stack: dictionary.stack(locations), attributes, link }, value);
    }
    let each = if counts_samples { 1 } else { view.accounts().one_in.max(1) };
    let before = rows.start.saturating_sub(stacks.len());
    let after = rows.end.saturating_sub(stacks.len());
    for (reason, samples) in lost.iter().take(after).skip(before) {
        let stack = vec![dictionary.marker(&folded::reason(reason)), dictionary.marker(name::LOST)];
        let identity = SampleIdentity { stack: dictionary.stack(stack), attributes: Vec::new(), link: 0 };
        series.add(identity, samples.saturating_mul(each));
    }
    series.samples
}

/// What distinguishes a sample from others: numbers in the dictionary's tables.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SampleIdentity {
    stack: i32,
    attributes: Vec<i32>,
    link: i32,
}

/// Samples with distinct identities, as the format asks for.
#[derive(Default)]
struct Series {
    samples: Vec<otlp::Sample>,
    known: HashMap<SampleIdentity, usize>,
}

impl Series {
    fn add(&mut self, identity: SampleIdentity, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let at = *self.known.entry(identity.clone()).or_insert(self.samples.len());
        match self.samples.get_mut(at) {
            Some(sample) => sample.values[0] = sample.values[0].saturating_add(value),
            None => self.samples.push(otlp::Sample {
                stack_index: identity.stack,
                attribute_indices: identity.attributes,
                link_index: identity.link,
                values: vec![value],
                ..otlp::Sample::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests;
