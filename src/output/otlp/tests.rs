//! OTLP requests say what profiles say, and conform to the rules of OpenTelemetry.

use std::sync::Arc;

use testkit::otlp::broken_rules;

use super::super::arbitrary;
use super::*;
use crate::profile::frame::Module;
use crate::profile::{Accounts, Frame, Kind, Labels, Profile};
use crate::sample::{Event, SpanContext, SpanId, TraceId};
use opentelemetry_proto::tonic::common::v1::any_value::Value;

const MAX_BYTES: usize = 4 << 20;

fn resources(profile: &Profile) -> Vec<ResourceView<'_>> {
    let attributes = vec![("service.name".to_owned(), "java".to_owned())];
    let of = |view| ResourceView { attributes: attributes.clone(), view };
    profile.views().into_iter().map(of).collect()
}

fn decoded(requests: &Requests) -> Vec<ExportProfilesServiceRequest> {
    let decode = |body: &Vec<u8>| ExportProfilesServiceRequest::decode(body.as_slice()).unwrap();
    requests.bodies.iter().map(decode).collect()
}

/// The samples of a request: their stacks as names, the leaf first, and their values.
fn samples_of(request: &ExportProfilesServiceRequest) -> Vec<(Vec<String>, i64)> {
    let dictionary = request.dictionary.as_ref().unwrap();
    let name = |&at: &i32| {
        let line = &dictionary.location_table[at as usize].lines[0];
        let name = dictionary.function_table[line.function_index as usize].name_strindex;
        dictionary.string_table[name as usize].clone()
    };
    let scopes = request.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
    let samples = scopes.flat_map(|scope| &scope.profiles).flat_map(|profile| &profile.samples);
    samples
        .map(|sample| {
            let stack = &dictionary.stack_table[sample.stack_index as usize].location_indices;
            (stack.iter().map(name).collect(), sample.values[0])
        })
        .collect()
}

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
    *profile.accounts_mut(Event::Cpu) = Accounts { taken: 9, kept: 8, period_ns: 10, ..Accounts::default() };
    profile.accounts_mut(Event::Cpu).lose("ring full", 1);
    profile.check().unwrap();
    let read = decoded(&requests(&resources(&profile), MAX_BYTES)).remove(0);
    let stacks = samples_of(&read);
    let dictionary = read.dictionary.as_ref().unwrap();
    let said = &read.resource_profiles[0].scope_profiles[0].profiles[0];
    let text = |at: i32| dictionary.string_table[at as usize].as_str();
    let expected = [
        (vec!["[no frames]"], 1),
        (vec!["a.B.run", "java"], 2),
        (vec!["a.B.get", "a.B.run", "java"], 5),
        (vec!["[ring full]", "[lost]"], 1),
    ];
    let expected = expected.map(|(names, value)| (names.into_iter().map(str::to_owned).collect(), value));
    assert_eq!(stacks, expected);
    assert_eq!(broken_rules(&read), Vec::<String>::new());
    assert_eq!(said.period, 10);
    let types = said.sample_type.unwrap();
    assert_eq!((text(types.type_strindex), text(types.unit_strindex)), ("samples", "count"));
    assert!(dictionary.string_table[0].is_empty() && dictionary.location_table[0].lines.is_empty());
    assert_eq!(said.profile_id.len(), 16);
}

#[test]
fn samples_link_to_their_spans() {
    let mut profile = Profile::new();
    let stack = [Arc::new(Frame::named(Kind::Process, "shop"))];
    let spans = [None, Some(1), Some(2)]
        .map(|id| id.map(|id: u8| SpanContext { trace: TraceId([7; 16]), span: SpanId([id; 8]) }));
    for (span, count) in spans.into_iter().zip([5, 3, 2]) {
        profile.add(&Labels { process: "shop".into(), span, ..Labels::default() }, &stack, count, 0);
    }
    let read = decoded(&requests(&resources(&profile), MAX_BYTES)).remove(0);
    assert_eq!(broken_rules(&read), Vec::<String>::new());
    let links = &read.dictionary.as_ref().unwrap().link_table;
    let samples = &read.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    let linked = |sample: &otlp::Sample| {
        let link = &links[sample.link_index as usize];
        (link.trace_id.clone(), link.span_id.clone(), sample.values[0])
    };
    let linked: Vec<_> = samples.iter().map(linked).collect();
    let expected = [(vec![], vec![], 5), (vec![7; 16], vec![1; 8], 3), (vec![7; 16], vec![2; 8], 2)];
    assert_eq!(linked, expected);
}

#[test]
fn requests_of_any_profile_conform() {
    let mut samples = 0;
    for seed in 0..24 {
        let profile = arbitrary::profile(seed, seed % 2 == 1);
        for request in decoded(&requests(&resources(&profile), MAX_BYTES)) {
            assert_eq!(broken_rules(&request), Vec::<String>::new(), "seed {seed}");
            samples += samples_of(&request).len();
        }
    }
    assert!(samples > 1000, "{samples}");
}

/// A check that finds nothing in a broken request would prove nothing.
#[test]
fn a_broken_request_does_not_conform() {
    let profile = arbitrary::profile(3, false);
    let good = decoded(&requests(&resources(&profile), MAX_BYTES)).remove(0);
    let broken = |breaks: &dyn Fn(&mut otlp::ProfilesDictionary, &mut otlp::Profile)| {
        let mut request = good.clone();
        let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
        breaks(request.dictionary.as_mut().unwrap(), profile);
        broken_rules(&request)
    };
    assert_eq!(broken(&|_, _| {}), Vec::<String>::new());
    type Breaks = fn(&mut otlp::ProfilesDictionary, &mut otlp::Profile);
    let cases: [(&str, Breaks); 14] = [
        ("mappings: entry 0", |of, _| of.mapping_table[0].memory_limit = 1),
        ("links: entry 0", |of, _| of.link_table.clear()),
        ("strings: \"\\\"x\\\"\" is there twice", |of, _| of.string_table.extend(["x".into(), "x".into()])),
        ("strings: nothing refers", |of, _| of.string_table.push("x".into())),
        ("stacks: nothing refers", |of, _| {
            of.stack_table.push(otlp::Stack { location_indices: vec![1, 1, 1] });
        }),
        ("locations: there is no entry", |of, _| of.stack_table[1].location_indices.push(1 << 20)),
        ("a sample has not exactly one value", |_, of| of.samples[0].values.push(1)),
        ("samples: ", |_, of| of.samples.push(of.samples[0].clone())),
        ("keys of attributes", |_, of| of.samples[0].attribute_indices.extend([1, 1])),
        ("a mapping has no build id", |of, _| of.mapping_table[1].attribute_indices.clear()),
        ("a mapping has no bytes", |of, _| of.mapping_table[1].memory_start = 1),
        ("a function has no name", |of, _| {
            of.function_table.push(otlp::Function { start_line: 1, ..Default::default() });
        }),
        ("a profile id is invalid", |_, of| of.profile_id = vec![0; 16]),
        ("a type of values has no name", |_, of| of.sample_type = None),
    ];
    for (rule, breaks) in cases {
        let found = broken(&breaks);
        assert!(found.iter().any(|sentence| sentence.starts_with(rule)), "{rule}: {found:?}");
    }
}

#[test]
fn a_mapping_has_the_build_ids_of_its_file_and_is_left_out_without_any() {
    let ids = |build_id: Option<&[u8]>, htlhash| {
        let module = Module { build_id: build_id.map(Into::into), htlhash, ..Module::at("/srv/x") };
        let frame = Frame { module: Some(Arc::new(module)), ..Frame::named(Kind::Native, "main") };
        let mut profile = Profile::new();
        profile.add(&Labels::default(), &[Arc::new(frame)], 1, 1);
        let request = decoded(&requests(&resources(&profile), MAX_BYTES)).remove(0);
        let dictionary = request.dictionary.unwrap();
        let attribute = |&at: &i32| {
            let attribute = &dictionary.attribute_table[at as usize];
            let Some(Value::StringValue(value)) = attribute.value.clone().unwrap().value else { panic!() };
            format!("{}={value}", dictionary.string_table[attribute.key_strindex as usize])
        };
        let of = |indices: &[i32]| indices.iter().map(attribute).collect::<Vec<_>>().join(" ");
        let mappings: Vec<_> = dictionary.mapping_table[1..].iter().map(|of| &of.attribute_indices).collect();
        (
            mappings.into_iter().map(|indices| of(indices)).collect::<Vec<_>>(),
            of(&dictionary.location_table[1].attribute_indices),
        )
    };
    let frame = "jbpf_prof.frame.kind=native profile.frame.type=native";
    let (gnu, htlhash) = (
        "process.executable.build_id.gnu=07ff",
        format!("process.executable.build_id.htlhash={}", "0a".repeat(16)),
    );
    assert_eq!(ids(Some(&[7, 255]), Some([10; 16])), (vec![format!("{gnu} {htlhash}")], frame.to_owned()));
    assert_eq!(ids(None, Some([10; 16])), (vec![htlhash], frame.to_owned()));
    assert_eq!(ids(None, None), (vec![], format!("{frame} jbpf_prof.mapping.path=/srv/x")));
}

#[test]
fn what_is_too_large_is_divided_and_nothing_is_lost_silently() {
    let mut profile = Profile::new();
    let labels = Labels { process: "java".into(), ..Labels::default() };
    for n in 0..100 {
        let stack = [Arc::new(Frame::named(Kind::Native, format!("{n:0>1000}")))];
        profile.add(&labels, &stack, n + 1, 1);
    }
    let deep: Vec<_> =
        (0..30).map(|n| Arc::new(Frame::named(Kind::Native, format!("x{n:0>1000}")))).collect();
    profile.add(&labels, &deep, 7, 1);
    let accounts = profile.accounts_mut(Event::Cpu);
    (accounts.taken, accounts.kept) = (5060, 5057);
    accounts.lose("ring full", 3);
    profile.check().unwrap();
    let whole = requests(&resources(&profile), MAX_BYTES);
    assert_eq!((whole.bodies.len(), whole.oversized), (1, 0));
    let divided = requests(&resources(&profile), 20_000);
    assert!(divided.bodies.len() > 5 && divided.bodies.iter().all(|body| body.len() <= 20_000));
    assert_eq!(divided.oversized, 1);
    let mut left: Vec<_> = samples_of(&decoded(&whole)[0]);
    left.retain(|(stack, _)| !stack[0].starts_with('x'));
    let parts: Vec<_> = decoded(&divided).iter().flat_map(samples_of).collect();
    assert_eq!(parts, left);
    for request in decoded(&divided) {
        assert_eq!(broken_rules(&request), Vec::<String>::new());
    }
    assert_eq!(requests(&[], MAX_BYTES), Requests::default());
}
