//! The metadata of a chunk: the types of its events and constants, which readers need to parse it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::encode::{put_event, put_number, put_text};
use crate::sample::Event;
use crate::sample::unit::Unit;

/// The types of the file. Their numbers are ours: readers know types by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JfrType {
    Metadata = 0,
    Checkpoint = 1,
    Boolean = 4,
    Int,
    Long,
    Text,
    Class,
    Thread,
    ClassLoader,
    FrameType,
    ThreadState,
    StackTrace,
    StackFrame,
    Method,
    Package,
    Symbol,
    Label,
    Category,
    Description,
    Timestamp,
    Timespan,
    ActiveRecording,
    ActiveSetting,
    Accounts,
    Lost,
    /// The type of the first event of the file's [`JfrEvents`]; the types of the others follow.
    Samples,
}

/// The events of a file.
#[derive(Debug)]
pub(super) struct JfrEvents(pub(super) Vec<Event>);

impl JfrEvents {
    /// The number of the type that the samples of an event have.
    pub(super) fn type_of(&self, event: Event) -> u64 {
        let place = self.0.iter().position(|one| *one == event);
        JfrType::Samples as u64 + place.unwrap_or(self.0.len()) as u64
    }
}

/// The name of the type that the samples of an event have. A sample of the CPU is what JFR calls an execution sample.
/// JFR's own events of waits have the true begin and end of each wait, which a sample does not know.
pub(super) fn name_of(event: Event) -> Cow<'static, str> {
    if event == Event::Cpu {
        return "jdk.ExecutionSample".into();
    }
    // A type is named as a class is: the names of probes and those of other tools' files can have any text.
    let words = event.name().split(|c: char| !c.is_ascii_alphanumeric()).map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    });
    format!("jbpf.{}", words.collect::<String>()).into()
}

/// The encoded metadata event, which describes all types of the chunk.
pub(super) fn metadata_event(events: &JfrEvents) -> Vec<u8> {
    let root = Element::new("root")
        .child(types(events).into_iter().fold(Element::new("metadata"), Element::child))
        .child(Element::new("region").with("locale", "en_US").with("gmtOffset", "0"));
    let mut strings = MetadataStrings::default();
    let mut tree = Vec::new();
    strings.put(&mut tree, &root);
    let mut body = Vec::new();
    // Type, start, duration, and an id: the same in all chunks, since their types are the same. The id differs from
    // those of a JVM, whose chunks may stand in the same file.
    for number in [JfrType::Metadata as u64, 0, 0, 0x6a62_7066, strings.list.len() as u64] {
        put_number(&mut body, number);
    }
    strings.list.iter().for_each(|text| put_text(&mut body, text));
    body.extend(tree);
    let mut out = Vec::new();
    put_event(&mut out, &body);
    out
}

/// An element of the tree.
struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, Cow<'static, str>)>,
    children: Vec<Element>,
}

impl Element {
    fn new(name: &'static str) -> Element {
        Element { name, attributes: Vec::new(), children: Vec::new() }
    }

    fn with(mut self, key: &'static str, value: impl Into<Cow<'static, str>>) -> Element {
        self.attributes.push((key, value.into()));
        self
    }

    fn child(mut self, child: Element) -> Element {
        self.children.push(child);
        self
    }

    fn class(name: impl Into<Cow<'static, str>>, id: u64) -> Element {
        Element::new("class").with("name", name).with("id", id.to_string())
    }

    fn event(name: impl Into<Cow<'static, str>>, id: u64) -> Element {
        let start = Element::typed("startTime", JfrType::Long).noted(JfrType::Timestamp, "TICKS");
        Element::class(name, id).with("superType", "jdk.jfr.Event").field(start.labelled("Start Time"))
    }

    fn typed(name: &'static str, of: JfrType) -> Element {
        Element::new("field").with("name", name).with("class", (of as u64).to_string())
    }

    fn field(self, field: Element) -> Element {
        self.child(field)
    }

    /// A field that holds a value.
    fn value(self, name: &'static str, label: &'static str, of: JfrType) -> Element {
        self.field(Element::typed(name, of).labelled(label))
    }

    /// A field that holds the id of a constant.
    fn constant(self, name: &'static str, label: &'static str, of: JfrType) -> Element {
        self.field(Element::typed(name, of).with("constantPool", "true").labelled(label))
    }

    fn noted(self, annotation: JfrType, value: impl Into<Cow<'static, str>>) -> Element {
        let note = Element::new("annotation").with("class", (annotation as u64).to_string());
        self.child(note.with("value", value))
    }

    fn labelled(self, label: &'static str) -> Element {
        self.noted(JfrType::Label, label)
    }

    fn in_category(self, path: &[&'static str]) -> Element {
        const PLACES: [&str; 2] = ["value-0", "value-1"];
        let note = Element::new("annotation").with("class", (JfrType::Category as u64).to_string());
        self.child(PLACES.iter().zip(path).fold(note, |note, (place, part)| note.with(place, *part)))
    }
}

/// The texts of the tree, each once.
#[derive(Default)]
struct MetadataStrings {
    list: Vec<String>,
    ids: HashMap<String, u64>,
}

impl MetadataStrings {
    fn id(&mut self, text: &str) -> u64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }

    fn put(&mut self, out: &mut Vec<u8>, element: &Element) {
        put_number(out, self.id(element.name));
        put_number(out, element.attributes.len() as u64);
        for (key, value) in &element.attributes {
            put_number(out, self.id(key));
            put_number(out, self.id(value));
        }
        put_number(out, element.children.len() as u64);
        element.children.iter().for_each(|child| self.put(out, child));
    }
}

fn types(events: &JfrEvents) -> Vec<Element> {
    let mut all = constants();
    all.extend(annotations());
    all.extend(recording());
    all.extend(events.0.iter().map(|event| samples(*event, events.type_of(*event))));
    all
}

/// Primitive types, and the types of constants as a JVM has them.
fn constants() -> Vec<Element> {
    let class = |name: &'static str, of: JfrType| Element::class(name, of as u64);
    let simple = |name, of| class(name, of).with("simpleType", "true");
    let frames =
        Element::typed("frames", JfrType::StackFrame).with("dimension", "1").labelled("Stack Frames");
    vec![
        class("boolean", JfrType::Boolean),
        class("int", JfrType::Int),
        class("long", JfrType::Long),
        class("java.lang.String", JfrType::Text),
        class("java.lang.Class", JfrType::Class)
            .constant("classLoader", "Class Loader", JfrType::ClassLoader)
            .constant("name", "Name", JfrType::Symbol)
            .constant("package", "Package", JfrType::Package)
            .value("modifiers", "Access Modifiers", JfrType::Int),
        class("java.lang.Thread", JfrType::Thread)
            .value("osName", "OS Thread Name", JfrType::Text)
            .value("osThreadId", "OS Thread Id", JfrType::Long)
            .value("javaName", "Java Thread Name", JfrType::Text)
            .value("javaThreadId", "Java Thread Id", JfrType::Long),
        class("jdk.types.ClassLoader", JfrType::ClassLoader)
            .constant("type", "Type", JfrType::Class)
            .constant("name", "Name", JfrType::Symbol),
        simple("jdk.types.FrameType", JfrType::FrameType).value("description", "Description", JfrType::Text),
        simple("jdk.types.ThreadState", JfrType::ThreadState).value("name", "Name", JfrType::Text),
        class("jdk.types.StackTrace", JfrType::StackTrace)
            .value("truncated", "Truncated", JfrType::Boolean)
            .field(frames),
        class("jdk.types.StackFrame", JfrType::StackFrame)
            .constant("method", "Java Method", JfrType::Method)
            .value("lineNumber", "Line Number", JfrType::Int)
            .value("bytecodeIndex", "Bytecode Index", JfrType::Int)
            .constant("type", "Frame Type", JfrType::FrameType),
        class("jdk.types.Method", JfrType::Method)
            .constant("type", "Type", JfrType::Class)
            .constant("name", "Name", JfrType::Symbol)
            .constant("descriptor", "Descriptor", JfrType::Symbol)
            .value("modifiers", "Access Modifiers", JfrType::Int)
            .value("hidden", "Hidden", JfrType::Boolean),
        class("jdk.types.Package", JfrType::Package).constant("name", "Name", JfrType::Symbol),
        simple("jdk.types.Symbol", JfrType::Symbol).value("string", "String", JfrType::Text),
    ]
}

/// The types of notes on types and fields.
fn annotations() -> Vec<Element> {
    let note = |name: &'static str, of: JfrType, dimension| {
        let value = Element::typed("value", JfrType::Text);
        let value = if dimension { value.with("dimension", "1") } else { value };
        Element::class(name, of as u64).with("superType", "java.lang.annotation.Annotation").field(value)
    };
    vec![
        note("jdk.jfr.Label", JfrType::Label, false),
        note("jdk.jfr.Category", JfrType::Category, true),
        note("jdk.jfr.Description", JfrType::Description, false),
        note("jdk.jfr.Timestamp", JfrType::Timestamp, false),
        note("jdk.jfr.Timespan", JfrType::Timespan, false),
    ]
}

/// The types of events on the recording itself.
fn recording() -> Vec<Element> {
    let event = |name: &'static str, of: JfrType| Element::event(name, of as u64);
    let time =
        |name, label, note, value| Element::typed(name, JfrType::Long).noted(note, value).labelled(label);
    vec![
        event("jdk.ActiveRecording", JfrType::ActiveRecording)
            .labelled("Flight Recording")
            .in_category(&["Flight Recorder"])
            .value("id", "Id", JfrType::Long)
            .value("name", "Name", JfrType::Text)
            .field(time("recordingStart", "Start Time", JfrType::Timestamp, "MILLISECONDS_SINCE_EPOCH"))
            .field(time("recordingDuration", "Recording Duration", JfrType::Timespan, "MILLISECONDS")),
        event("jdk.ActiveSetting", JfrType::ActiveSetting)
            .labelled("Recording Setting")
            .in_category(&["Flight Recorder"])
            .value("id", "Event Id", JfrType::Long)
            .value("name", "Setting Name", JfrType::Text)
            .value("value", "Setting Value", JfrType::Text),
        event("jbpf.Accounts", JfrType::Accounts)
            .labelled("Accounts")
            .noted(JfrType::Description, "Where the samples of an event went: ticks = filtered + kept + lost")
            .in_category(&["jbpf-prof"])
            .value("event", "Event", JfrType::Text)
            .value("ticks", "Ticks", JfrType::Long)
            .value("filtered", "Filtered", JfrType::Long)
            .value("kept", "Kept", JfrType::Long)
            .value("lost", "Lost", JfrType::Long)
            .value("missed", "Missed", JfrType::Long)
            .value("expected", "Expected", JfrType::Long),
        event("jbpf.Lost", JfrType::Lost)
            .labelled("Lost Samples")
            .in_category(&["jbpf-prof"])
            .value("event", "Event", JfrType::Text)
            .value("reason", "Reason", JfrType::Text)
            .value("samples", "Samples", JfrType::Long),
    ]
}

/// The type of an event's samples.
fn samples(event: Event, number: u64) -> Element {
    let kind = Element::event(name_of(event), number);
    let duration = || Element::typed("duration", JfrType::Long).noted(JfrType::Timespan, "TICKS");
    match event {
        Event::Cpu => kind
            .labelled("Method Profiling Sample")
            .in_category(&["Java Virtual Machine", "Profiling"])
            .constant("sampledThread", "Thread", JfrType::Thread)
            .constant("stackTrace", "Stack Trace", JfrType::StackTrace)
            .constant("state", "Thread State", JfrType::ThreadState),
        Event::Wait => kind
            .labelled("Waiting Time")
            .noted(JfrType::Description, "A sample of the time in which a thread had no CPU")
            .in_category(&["jbpf-prof"])
            .field(duration().labelled("Duration"))
            .constant("eventThread", "Thread", JfrType::Thread)
            .constant("stackTrace", "Stack Trace", JfrType::StackTrace)
            .constant("state", "State", JfrType::Symbol)
            .constant("reason", "Reason", JfrType::Symbol)
            .constant("wakerStackTrace", "Waker's Stack Trace", JfrType::StackTrace),
        _ => kind
            .noted(JfrType::Label, event.title())
            .in_category(&["jbpf-prof"])
            .constant("eventThread", "Thread", JfrType::Thread)
            .constant("stackTrace", "Stack Trace", JfrType::StackTrace)
            .value("amount", if event.unit() == Unit::Bytes { "Bytes" } else { "Events" }, JfrType::Long),
    }
}
