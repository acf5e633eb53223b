//! The rules of OpenTelemetry for profiles: those that the comments of profiles.proto 1.11.0, the specification
//! (profiles/mappings.md) and the semantic conventions 1.44.0 state. `profcheck`, OpenTelemetry's own checker, has no
//! module that the Go module proxy serves.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;

/// The well-known values of `profile.frame.type`.
const FRAME_TYPES: [&str; 13] = [
    "beam", "cpython", "dotnet", "go", "jvm", "kernel", "luajit", "native", "perl", "php", "ruby", "rust",
    "v8js",
];
const BUILD_ID: &str = "process.executable.build_id.";

/// The rules that a request breaks, a sentence each; none if it conforms.
pub fn broken_rules(request: &ExportProfilesServiceRequest) -> Vec<String> {
    let Some(dictionary) = &request.dictionary else { return vec!["there is no dictionary".to_owned()] };
    let mut check = Check { dictionary, used: Used::default(), broken: Vec::new() };
    check.require(!request.resource_profiles.is_empty(), "there is no resource");
    for resource in &request.resource_profiles {
        let attributes = resource.resource.iter().flat_map(|resource| &resource.attributes);
        let keys: Vec<&str> = attributes.map(|attribute| attribute.key.as_str()).collect();
        check.require(keys.contains(&"service.name"), "a resource has no service.name");
        check.require(!keys.contains(&""), "an attribute of a resource has no key");
        check.distinct("keys of a resource", &keys);
        check.require(!resource.scope_profiles.is_empty(), "a resource has no scope");
        for scope in &resource.scope_profiles {
            check.require(scope.scope.as_ref().is_some_and(|of| !of.name.is_empty()), "a scope has no name");
            check.require(scope.schema_url.starts_with("https://"), "a scope has no schema");
            check.require(!scope.profiles.is_empty(), "a scope has no profile");
            scope.profiles.iter().for_each(|profile| check.profile(profile));
        }
    }
    check.tables();
    check.broken
}

/// The entries of each table to which something refers.
#[derive(Default)]
struct Used {
    strings: HashSet<i32>,
    functions: HashSet<i32>,
    mappings: HashSet<i32>,
    locations: HashSet<i32>,
    stacks: HashSet<i32>,
    attributes: HashSet<i32>,
    links: HashSet<i32>,
}

struct Check<'a> {
    dictionary: &'a otlp::ProfilesDictionary,
    used: Used,
    broken: Vec<String>,
}

impl Check<'_> {
    fn require(&mut self, holds: bool, sentence: &str) {
        if !holds {
            self.broken.push(sentence.to_owned());
        }
    }

    fn distinct<T: Eq + Hash + Debug>(&mut self, what: &str, items: &[T]) {
        let mut seen = HashSet::new();
        if let Some(twice) = items.iter().find(|item| !seen.insert(*item)) {
            self.broken.push(format!("{what}: {twice:?} is there twice"));
        }
    }

    fn text(&self, at: i32) -> &str {
        usize::try_from(at)
            .ok()
            .and_then(|at| self.dictionary.string_table.get(at))
            .map_or("", String::as_str)
    }

    fn profile(&mut self, profile: &otlp::Profile) {
        for of in [&profile.sample_type, &profile.period_type] {
            let of = of.unwrap_or_default();
            self.used.strings.extend([of.type_strindex, of.unit_strindex]);
            let named = !self.text(of.type_strindex).is_empty() && !self.text(of.unit_strindex).is_empty();
            self.require(named, "a type of values has no name or no unit");
        }
        let id = &profile.profile_id;
        self.require(
            id.is_empty() || id.len() == 16 && id.iter().any(|byte| *byte != 0),
            "a profile id is invalid",
        );
        self.require(
            profile.original_payload.is_empty() == profile.original_payload_format.is_empty(),
            "a payload has no format, or a format no payload",
        );
        self.attributes(&profile.attribute_indices);
        for sample in &profile.samples {
            self.used.stacks.insert(sample.stack_index);
            self.used.links.insert(sample.link_index);
            self.attributes(&sample.attribute_indices);
            let shape = (sample.values.len(), sample.timestamps_unix_nano.len());
            self.require(shape == (1, 0), "a sample has not exactly one value");
        }
        let identity = |sample: &otlp::Sample| {
            let mut attributes = sample.attribute_indices.clone();
            attributes.sort_unstable();
            (sample.stack_index, attributes, sample.link_index)
        };
        self.distinct("samples", &profile.samples.iter().map(identity).collect::<Vec<_>>());
    }

    /// Attributes of one item: their keys and, of those that matter here, their values.
    fn attributes(&mut self, indices: &[i32]) -> Vec<(String, String)> {
        self.used.attributes.extend(indices);
        let table = &self.dictionary.attribute_table;
        let known = indices.iter().filter_map(|&at| table.get(usize::try_from(at).ok()?));
        let pairs: Vec<(String, String)> = known
            .map(|attribute| {
                let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
                    Some(Value::StringValue(text)) => text.clone(),
                    _ => String::new(),
                };
                (self.text(attribute.key_strindex).to_owned(), value)
            })
            .collect();
        self.distinct("keys of attributes", &pairs.iter().map(|(key, _)| key).collect::<Vec<_>>());
        pairs
    }

    fn tables(&mut self) {
        let dictionary = self.dictionary;
        dictionary.stack_table.iter().for_each(|stack| self.used.locations.extend(&stack.location_indices));
        dictionary.location_table.iter().for_each(|location| self.location(location));
        dictionary.function_table.iter().skip(1).for_each(|function| self.function(function));
        dictionary.mapping_table.iter().skip(1).for_each(|mapping| self.mapping(mapping));
        for attribute in &dictionary.attribute_table {
            self.used.strings.extend([attribute.key_strindex, attribute.unit_strindex]);
        }
        let keyless =
            dictionary.attribute_table.iter().skip(1).any(|of| self.text(of.key_strindex).is_empty());
        self.require(!keyless, "an attribute has no key");
        let used = std::mem::take(&mut self.used);
        self.table("strings", &dictionary.string_table, &used.strings);
        self.table("functions", &dictionary.function_table, &used.functions);
        self.table("mappings", &dictionary.mapping_table, &used.mappings);
        self.table("locations", &dictionary.location_table, &used.locations);
        self.table("stacks", &dictionary.stack_table, &used.stacks);
        self.table("attributes", &dictionary.attribute_table, &used.attributes);
        self.table("links", &dictionary.link_table, &used.links);
    }

    /// Entry 0 is empty, each entry is there once, something refers to each of them, and to no other number.
    fn table<T: Debug + Default + PartialEq>(&mut self, name: &str, table: &[T], used: &HashSet<i32>) {
        self.require(table.first() == Some(&T::default()), &format!("{name}: entry 0 is not empty"));
        self.distinct(name, &table.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>());
        let count = i32::try_from(table.len()).unwrap();
        if let Some(at) = (1..count).find(|at| !used.contains(at)) {
            self.broken.push(format!("{name}: nothing refers to {:?}", table[at as usize]));
        }
        if let Some(at) = used.iter().find(|at| !(0..count).contains(*at)) {
            self.broken.push(format!("{name}: there is no entry {at}"));
        }
    }

    fn location(&mut self, location: &otlp::Location) {
        self.used.mappings.insert(location.mapping_index);
        let types = self.attributes(&location.attribute_indices);
        let known = |(key, value): &(String, String)| {
            key != "profile.frame.type" || FRAME_TYPES.contains(&value.as_str())
        };
        self.require(types.iter().all(known), "a frame type is not well known");
        for line in &location.lines {
            self.used.functions.insert(line.function_index);
            self.require(line.line >= 0 && line.column >= 0, "a line has a negative number");
        }
    }

    fn function(&mut self, function: &otlp::Function) {
        let names = [function.name_strindex, function.system_name_strindex, function.filename_strindex];
        self.used.strings.extend(names);
        self.require(names.iter().any(|at| *at != 0), "a function has no name");
        self.require(function.start_line >= 0, "a function has a negative line");
    }

    fn mapping(&mut self, mapping: &otlp::Mapping) {
        self.used.strings.insert(mapping.filename_strindex);
        let unset = mapping.memory_start == 0 && mapping.memory_limit == 0;
        self.require(unset || mapping.memory_start < mapping.memory_limit, "a mapping has no bytes");
        let attributes = self.attributes(&mapping.attribute_indices);
        let ids = attributes.iter().filter_map(|(key, id)| Some((key.strip_prefix(BUILD_ID)?, id)));
        let ids: Vec<(&str, &String)> = ids.collect();
        self.require(!ids.is_empty(), "a mapping has no build id");
        for (kind, id) in ids {
            let is_hex =
                !id.is_empty() && id.len() % 2 == 0 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let valid = is_hex && (kind != "htlhash" || id.len() == 32);
            self.require(valid, &format!("the build id {kind} is invalid"));
        }
    }
}
