//! The published schema of the report, `docs/report.schema.json`, and a check of reports against it.
//!
//! The check knows the keywords of JSON Schema that this schema uses, and refuses others. It is stricter than the
//! schema: a field that the schema does not describe is a problem, too.

use serde_json::Value;

use crate::repository;

/// Keywords that describe and do not constrain.
const NOTES: [&str; 4] = ["$schema", "title", "description", "$defs"];

/// The problems of a report, each with its place; none if it follows the schema.
#[must_use]
pub fn report_problems(report: &Value) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs/report.schema.json")).unwrap();
    let root = serde_json::from_str(&text).unwrap();
    let mut problems = Vec::new();
    Schema { root: &root }.check(&root, report, "", &mut problems);
    problems
}

struct Schema<'s> {
    root: &'s Value,
}

impl Schema<'_> {
    fn check(&self, schema: &Value, value: &Value, place: &str, problems: &mut Vec<String>) {
        for (keyword, rule) in schema.as_object().unwrap() {
            if !NOTES.contains(&keyword.as_str()) {
                self.check_keyword(keyword, rule, value, place, problems);
            }
        }
    }

    fn check_keyword(
        &self,
        keyword: &str,
        rule: &Value,
        value: &Value,
        place: &str,
        problems: &mut Vec<String>,
    ) {
        let mut ensure = |holds: bool| {
            if !holds {
                problems.push(format!("{place}: {keyword} {rule}, and it is {value}"));
            }
        };
        match keyword {
            "type" => {
                let of = value_type(value);
                ensure(rule == of || list(rule).iter().any(|one| one == of));
            }
            "const" => ensure(rule == value),
            "enum" => ensure(list(rule).contains(value)),
            "minimum" => ensure(value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap())),
            "minItems" => ensure(list(value).len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => ensure(list(value).len() as u64 <= rule.as_u64().unwrap()),
            "required" => ensure(list(rule).iter().all(|name| value.get(name.as_str().unwrap()).is_some())),
            "anyOf" => {
                let fits = |one: &Value| {
                    let mut problems = Vec::new();
                    self.check(one, value, place, &mut problems);
                    problems.is_empty()
                };
                ensure(list(rule).iter().any(fits));
            }
            "$ref" => {
                let target = self.root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap());
                self.check(target.expect("a reference leads to a schema"), value, place, problems);
            }
            "items" => {
                for (at, item) in list(value).iter().enumerate() {
                    self.check(rule, item, &format!("{place}/{at}"), problems);
                }
            }
            "prefixItems" => {
                for (at, (rule, item)) in list(rule).iter().zip(list(value)).enumerate() {
                    self.check(rule, item, &format!("{place}/{at}"), problems);
                }
            }
            "additionalProperties" => {
                for (name, field) in value.as_object().into_iter().flatten() {
                    self.check(rule, field, &format!("{place}/{name}"), problems);
                }
            }
            "properties" => {
                for (name, field) in value.as_object().into_iter().flatten() {
                    let place = format!("{place}/{name}");
                    match rule.get(name) {
                        Some(rule) => self.check(rule, field, &place, problems),
                        None => problems.push(format!("{place}: the schema does not describe it")),
                    }
                }
            }
            _ => panic!("{place}: the check does not know {keyword}"),
        }
    }
}

/// The type of a value as the schema names it. Where the schema has `number`, the report always writes a fraction.
fn value_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
