//! The query part of a request.

use std::time::Duration;

use jiff::Timestamp;

use crate::output::{Format, page, pprof};
use crate::profile::filter::Glob;
use crate::profile::labels::ContainerLabels;
use crate::profile::{Labels, Profile};
use crate::sample::EventName;
use crate::waits::WaitFilter;
use crate::waits::filter::UnknownName;

/// The longest time span of one response.
pub(super) const MAX_SPAN: Duration = Duration::from_secs(3600);
/// The longest time that a request may wait, in seconds.
const MAX_WAIT_S: u64 = 300;

/// Names and decoded values.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `a=b&c=d`; a name that is not in `known` is an error.
    pub(super) fn parse(text: Option<&str>, known: &[&str]) -> Result<Query, String> {
        let mut pairs = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if !known.contains(&name.as_str()) {
                return Err(format!("unknown parameter {name:?}; known parameters are {}", known.join(", ")));
            }
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The values of a parameter, separated by commas.
    fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.get(name).into_iter().flat_map(|values| values.split(','))
    }

    /// Whole seconds to sample; 10 by default.
    pub(super) fn seconds(&self) -> Result<u64, String> {
        let text = self.get("seconds").unwrap_or("10");
        match text.parse() {
            Ok(seconds @ 1..=MAX_WAIT_S) => Ok(seconds),
            _ => Err(format!("seconds={text}: use 1 to {MAX_WAIT_S}")),
        }
    }

    /// Whole seconds back from now, for the live page; 5 minutes by default.
    pub(super) fn past_seconds(&self) -> Result<u64, String> {
        let text = self.get("seconds").unwrap_or("300");
        match text.parse() {
            Ok(seconds) if (1..=MAX_SPAN.as_secs()).contains(&seconds) => Ok(seconds),
            _ => Err(format!("seconds={text}: use 1 to {}", MAX_SPAN.as_secs())),
        }
    }

    /// The format, by the extension of its files; pprof by default.
    pub(super) fn format(&self) -> Result<&'static Format, String> {
        let Some(name) = self.get("format") else { return Ok(&pprof::FORMAT) };
        if page::DOCUMENT.names.contains(&name) {
            return Ok(&page::DOCUMENT);
        }
        Format::named(name).map_err(|error| format!("format={error}"))
    }

    /// A time in milliseconds since 1970, parsed from seconds since 1970 or from RFC 3339.
    pub(super) fn time_ms(&self, name: &str) -> Result<Option<u64>, String> {
        // A `+` of a time zone that is not percent-encoded arrives as a space.
        let Some(text) = self.get(name).map(|text| text.replace(' ', "+")) else { return Ok(None) };
        let seconds =
            text.parse::<f64>().ok().filter(|s| (0.0..1e11).contains(s)).map(|s| (s * 1000.0) as u64);
        let stamp = || text.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_millisecond()).ok());
        let bad = || format!("{name}={text}: expected a time: seconds since 1970, or 2026-11-22T10:00:00Z");
        seconds.or_else(stamp).map(Some).ok_or_else(bad)
    }

    /// The samples that the query asks for.
    pub(super) fn sample_query(&self) -> Result<SampleQuery, String> {
        let pattern = |name: &str| self.get(name).map(Glob::new);
        let event = self.get("event").map(|name| match EventName::parse(name) {
            // Two events: a response has one or all of them.
            Err(_) if name == "wall" => Err("event=wall: use cpu or wait, or no event for all".to_owned()),
            name_of => name_of.map_err(|error| format!("event={name}: {error}")),
        });
        let mut waits = WaitFilter::default();
        let refused = |name: &str, why: UnknownName| format!("{}={name}: {why}", why.what);
        for name in self.list("state") {
            waits.add_state(name).map_err(|why| refused(name, why))?;
        }
        for name in self.list("reason") {
            waits.add_reason(name).map_err(|why| refused(name, why))?;
        }
        Ok(SampleQuery {
            event: event.transpose()?,
            waits,
            process: pattern("process"),
            namespace: pattern("namespace"),
            pod: pattern("pod"),
            container: pattern("container"),
        })
    }
}

/// An event, states and reasons, and patterns for the labels of samples; matches every sample by default.
#[derive(Debug, Default)]
pub(super) struct SampleQuery {
    /// Only samples of this event; `None`: of all.
    pub(super) event: Option<EventName>,
    /// Only samples with these states and reasons.
    waits: WaitFilter,
    process: Option<Glob>,
    namespace: Option<Glob>,
    pod: Option<Glob>,
    /// Matches the container's name or id.
    container: Option<Glob>,
}

impl SampleQuery {
    /// The names of the patterns in a query.
    pub(super) const NAMES: [&str; 7] =
        ["event", "state", "reason", "process", "namespace", "pod", "container"];

    pub(super) fn is_all(&self) -> bool {
        let SampleQuery { event, waits, process, namespace, pod, container } = self;
        event.is_none()
            && waits.is_all()
            && [process, namespace, pod, container].iter().all(|pattern| pattern.is_none())
    }

    /// Removes the samples of a profile that do not match, of all events.
    pub(super) fn apply(&self, profile: &mut Profile) {
        if !self.is_all() {
            profile.retain_labels(|labels| self.matches(labels));
            self.waits.apply(profile);
        }
    }

    fn matches(&self, labels: &Labels) -> bool {
        let none = ContainerLabels::default();
        let of = labels.container.as_deref().unwrap_or(&none);
        let any = |pattern: &Option<Glob>, texts: &[&str]| {
            pattern
                .as_ref()
                .is_none_or(|like| texts.iter().any(|text| !text.is_empty() && like.matches(text)))
        };
        any(&self.process, &[&labels.process])
            && any(&self.namespace, &[&of.namespace])
            && any(&self.pod, &[&of.pod, &of.pod_uid])
            && any(&self.container, &[&of.container, &of.name, &of.id, of.short_id()])
    }
}

fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(format!("{text:?} is not valid URL encoding"));
                };
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ContainerLabels, EventName, Labels, Query, SampleQuery, pprof};
    use crate::output::svg;
    use crate::sample::Event;

    const KNOWN: [&str; 5] = ["seconds", "format", "from", "to", "process"];

    fn ask(text: &str) -> Query {
        Query::parse(Some(text), &KNOWN).unwrap()
    }

    #[test]
    fn queries_are_read() {
        let query = ask("seconds=30&format=svg&process=my%20app*&from=1763769600.5&to=2025-11-22T00:00:10Z");
        assert_eq!(query.seconds(), Ok(30));
        assert_eq!(query.format(), Ok(&svg::FORMAT));
        assert_eq!(query.time_ms("from"), Ok(Some(1_763_769_600_500)));
        assert_eq!(query.time_ms("to"), Ok(Some(1_763_769_610_000)));
        for written in ["2025-11-22T01:00:10+01:00", "2025-11-22T01:00:10%2B01:00"] {
            assert_eq!(ask(&format!("to={written}")).time_ms("to"), Ok(Some(1_763_769_610_000)), "{written}");
        }
        let labels = |process: &str| crate::profile::Labels { process: process.into(), ..Default::default() };
        assert!(
            query.sample_query().unwrap().matches(&labels("my app 2"))
                && !query.sample_query().unwrap().matches(&labels("other"))
        );
        let of = |text: &str| Query::parse(Some(text), &SampleQuery::NAMES).unwrap().sample_query();
        assert_eq!(of("event=wait").unwrap().event, Some(EventName::Fixed(Event::Wait)));
        assert!(
            !of("event=wait").unwrap().is_all()
                && of("event=x").unwrap_err().contains("known events are cpu")
        );
        for (text, said) in [
            ("state=sleping", "state=sleping: unknown state; did you mean sleeping?"),
            ("reason=monitor,dsk+sync", "reason=dsk sync: unknown reason; did you mean disk sync?"),
        ] {
            assert_eq!(of(text).unwrap_err(), said);
        }
        assert!(!of("state=sleeping,blocked&reason=disk+*").unwrap().is_all());
        let nothing = Query::parse(None, &KNOWN).unwrap();
        assert_eq!((nothing.seconds(), nothing.time_ms("from")), (Ok(10), Ok(None)));
        assert_eq!(nothing.format(), Ok(&pprof::FORMAT));
        assert!(nothing.sample_query().unwrap().is_all());
    }

    #[test]
    fn containers_are_chosen_by_their_names_or_ids() {
        let container = ContainerLabels {
            namespace: "prod".into(),
            pod: "shop-0".into(),
            container: "app".into(),
            id: "3f2a9c0b".repeat(8).into(),
            ..ContainerLabels::default()
        };
        let labels = Labels { container: Some(Arc::new(container)), ..Labels::default() };
        let chosen = |text: &str| {
            let wanted = Query::parse(Some(text), &SampleQuery::NAMES).unwrap().sample_query().unwrap();
            assert!(
                !wanted.is_all() && !wanted.matches(&Labels::default()),
                "{text}: what is in none is not"
            );
            wanted.matches(&labels)
        };
        for text in [
            "namespace=prod&pod=shop-*",
            "container=app",
            "container=3f2a9c0b3f2a",
            "container=3f2a*",
            "pod=*",
        ] {
            assert!(chosen(text), "{text}");
        }
        for text in ["namespace=test&pod=shop-0", "pod=shop", "container=shop-0", "process=x&container=app"] {
            assert!(!chosen(text), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        assert!(
            Query::parse(Some("secs=3"), &KNOWN)
                .err()
                .unwrap()
                .contains("known parameters are seconds, format")
        );
        assert!(Query::parse(Some("process=%zz"), &KNOWN).is_err());
        assert!(Query::parse(Some("process=%ff"), &KNOWN).is_err());
        for bad in ["seconds=0", "seconds=x", "seconds=301"] {
            assert!(ask(bad).seconds().is_err(), "{bad}");
        }
        assert!(ask("format=png").format().is_err());
        assert!(ask("from=yesterday").time_ms("from").is_err() && ask("from=-1").time_ms("from").is_err());
    }
}
