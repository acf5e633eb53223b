//! A parser of JFR files for tests. It knows no type in advance: it reads events by the metadata of their chunk.

use std::collections::BTreeMap;

/// An event or a constant with its fields by name.
pub(in crate::output) type JfrFields = BTreeMap<String, JfrValue>;

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::output) enum JfrValue {
    Null,
    Number(i64),
    Text(String),
    List(Vec<JfrValue>),
    Object(JfrFields),
    /// A constant of a type, by its id.
    Constant(i64, i64),
}

impl JfrValue {
    pub(in crate::output) fn text(&self) -> &str {
        let JfrValue::Text(text) = self else { panic!("{self:?} is not a text") };
        text
    }

    pub(in crate::output) fn number(&self) -> i64 {
        let JfrValue::Number(number) = self else { panic!("{self:?} is not a number") };
        *number
    }

    pub(in crate::output) fn list(&self) -> &[JfrValue] {
        let JfrValue::List(list) = self else { panic!("{self:?} is not a list") };
        list
    }

    pub(in crate::output) fn at(&self, field: &str) -> &JfrValue {
        let JfrValue::Object(fields) = self else { panic!("{self:?} has no fields") };
        &fields[field]
    }
}

/// An event of a file.
#[derive(Debug, PartialEq)]
pub(in crate::output) struct ParsedEvent {
    type_name: String,
    fields: JfrFields,
}

/// The time of a chunk.
#[derive(Debug, PartialEq)]
pub(in crate::output) struct ChunkTime {
    /// Since 1970, ns.
    pub(in crate::output) begin: u64,
    /// In ns.
    pub(in crate::output) duration: u64,
}

/// A file: the events of all chunks, with their constants resolved.
#[derive(Debug, Default)]
pub(in crate::output) struct Parsed {
    pub(in crate::output) events: Vec<ParsedEvent>,
    pub(in crate::output) chunks: Vec<ChunkTime>,
    /// The constants of all chunks, by type and id.
    pub(in crate::output) constants: BTreeMap<(i64, i64), JfrValue>,
}

impl Parsed {
    pub(in crate::output) fn of(mut file: &[u8]) -> Parsed {
        let mut parsed = Parsed::default();
        while !file.is_empty() {
            let size = u64::from_be_bytes(file[8..16].try_into().unwrap()) as usize;
            parsed.add_chunk(&file[..size]);
            file = &file[size..];
        }
        parsed
    }

    /// Events of a type.
    pub(in crate::output) fn of_type(&self, name: &str) -> impl Iterator<Item = &JfrFields> {
        self.events.iter().filter(move |event| event.type_name == name).map(|event| &event.fields)
    }

    fn add_chunk(&mut self, chunk: &[u8]) {
        assert_eq!(&chunk[..8], b"FLR\0\0\x02\0\x01");
        let word = |at: usize| u64::from_be_bytes(chunk[at..at + 8].try_into().unwrap());
        let (constants, metadata) = (word(16) as usize, word(24) as usize);
        self.chunks.push(ChunkTime { begin: word(32), duration: word(40) });
        assert_eq!((word(56), &chunk[64..68]), (1_000_000_000, &[0, 0, 0, 1][..]));
        let types = Types::of(JfrBytes(&chunk[metadata..]).event());
        let pools = types.constants(JfrBytes(&chunk[constants..]).event());
        for (id, value) in &pools {
            let same = self.constants.entry(*id).or_insert_with(|| value.clone());
            assert_eq!(same, value, "a parser may keep constants of earlier chunks by their ids");
        }
        let mut rest = JfrBytes(&chunk[68..constants]);
        while !rest.0.is_empty() {
            let mut event = rest.event();
            let of = event.number();
            if of == 0 {
                continue;
            }
            let JfrValue::Object(fields) = types.value(of, &mut event) else { panic!("{of} has no fields") };
            assert!(event.0.is_empty(), "{fields:?}");
            let fields = fields.into_iter().map(|(name, value)| (name, resolved(&value, &pools))).collect();
            self.events.push(ParsedEvent { type_name: types.0[&of].name.clone(), fields });
        }
    }
}

fn resolved(value: &JfrValue, pools: &BTreeMap<(i64, i64), JfrValue>) -> JfrValue {
    match value {
        JfrValue::Constant(_, 0) => JfrValue::Null,
        JfrValue::Constant(of, id) => {
            resolved(pools.get(&(*of, *id)).unwrap_or_else(|| panic!("no constant {of} {id}")), pools)
        }
        JfrValue::List(list) => JfrValue::List(list.iter().map(|value| resolved(value, pools)).collect()),
        JfrValue::Object(fields) => {
            JfrValue::Object(fields.iter().map(|(k, v)| (k.clone(), resolved(v, pools))).collect())
        }
        value => value.clone(),
    }
}

struct JfrBytes<'b>(&'b [u8]);

impl<'b> JfrBytes<'b> {
    fn number(&mut self) -> i64 {
        let mut number = 0;
        for at in 0..9 {
            let byte = u64::from(self.0[0]);
            self.0 = &self.0[1..];
            if at == 8 {
                return (number | byte << 56) as i64;
            }
            number |= (byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                break;
            }
        }
        number as i64
    }

    fn text(&mut self) -> JfrValue {
        let (encoding, rest) = self.0.split_first().unwrap();
        self.0 = rest;
        match encoding {
            0 => JfrValue::Null,
            1 => JfrValue::Text(String::new()),
            3 => {
                let length = self.number() as usize;
                let (text, rest) = self.0.split_at(length);
                self.0 = rest;
                JfrValue::Text(std::str::from_utf8(text).unwrap().to_owned())
            }
            other => panic!("encoding {other}"),
        }
    }

    /// The next event without its size.
    fn event(&mut self) -> JfrBytes<'b> {
        let all = self.0;
        let size = self.number() as usize;
        let begin = all.len() - self.0.len();
        self.0 = &all[size..];
        JfrBytes(&all[begin..size])
    }
}

struct JfrField {
    name: String,
    of: i64,
    is_constant: bool,
    is_list: bool,
}

struct TypeOf {
    name: String,
    is_simple: bool,
    fields: Vec<JfrField>,
}

/// Types by their numbers.
struct Types(BTreeMap<i64, TypeOf>);

/// An element of the metadata.
struct XmlNode {
    name: String,
    attributes: BTreeMap<String, String>,
    children: Vec<XmlNode>,
}

impl XmlNode {
    fn of(bytes: &mut JfrBytes<'_>, texts: &[String]) -> XmlNode {
        let text = |bytes: &mut JfrBytes<'_>| texts[bytes.number() as usize].clone();
        let name = text(bytes);
        let attributes = (0..bytes.number()).map(|_| (text(bytes), text(bytes))).collect();
        let children = (0..bytes.number()).map(|_| XmlNode::of(bytes, texts)).collect();
        XmlNode { name, attributes, children }
    }
}

impl Types {
    fn of(mut bytes: JfrBytes<'_>) -> Types {
        assert_eq!(bytes.number(), 0, "metadata");
        let [_start, _duration, _id] = [bytes.number(), bytes.number(), bytes.number()];
        let texts: Vec<String> = (0..bytes.number()).map(|_| bytes.text().text().to_owned()).collect();
        let root = XmlNode::of(&mut bytes, &texts);
        assert!(bytes.0.is_empty());
        let number = |node: &XmlNode, key: &str| node.attributes[key].parse::<i64>().unwrap();
        let types = root.children[0].children.iter().map(|node| {
            let fields = node.children.iter().filter(|child| child.name == "field").map(|field| JfrField {
                name: field.attributes["name"].clone(),
                of: number(field, "class"),
                is_constant: field.attributes.contains_key("constantPool"),
                is_list: field.attributes.contains_key("dimension"),
            });
            let is_simple = node.attributes.contains_key("simpleType");
            let of = TypeOf { name: node.attributes["name"].clone(), is_simple, fields: fields.collect() };
            (number(node, "id"), of)
        });
        let types = Types(types.collect());
        for node in &root.children[0].children {
            let notes = node.children.iter().chain(node.children.iter().flat_map(|child| &child.children));
            for note in notes.filter(|child| child.name == "annotation") {
                assert!(types.0.contains_key(&number(note, "class")));
            }
        }
        types
    }

    fn constants(&self, mut bytes: JfrBytes<'_>) -> BTreeMap<(i64, i64), JfrValue> {
        let mut pools = BTreeMap::new();
        let [of, _time, _duration] = [bytes.number(), bytes.number(), bytes.number()];
        assert_eq!([of, bytes.number(), bytes.number()], [1, 0, 0], "one checkpoint");
        for _ in 0..bytes.number() {
            let (of, count) = (bytes.number(), bytes.number());
            assert!(count > 0, "a reader refuses an empty pool");
            for _ in 0..count {
                let id = bytes.number();
                let old = pools.insert((of, id), self.value(of, &mut bytes));
                assert_eq!(old, None, "two constants of type {of} have the id {id}");
            }
        }
        assert!(bytes.0.is_empty());
        pools
    }

    fn value(&self, of: i64, bytes: &mut JfrBytes<'_>) -> JfrValue {
        let of = &self.0[&of];
        match of.name.as_str() {
            "java.lang.String" => bytes.text(),
            "long" => JfrValue::Number(bytes.number()),
            "int" => JfrValue::Number(i64::from(bytes.number() as i32)),
            "boolean" => {
                let byte = bytes.0[0];
                bytes.0 = &bytes.0[1..];
                JfrValue::Number(i64::from(byte))
            }
            _ => {
                let mut fields: JfrFields =
                    of.fields.iter().map(|field| (field.name.clone(), self.field(field, bytes))).collect();
                match (of.is_simple, fields.pop_first()) {
                    (true, Some((_, only))) => only,
                    (_, first) => JfrValue::Object(first.into_iter().chain(fields).collect()),
                }
            }
        }
    }

    fn field(&self, field: &JfrField, bytes: &mut JfrBytes<'_>) -> JfrValue {
        if field.is_constant {
            return JfrValue::Constant(field.of, bytes.number());
        }
        if field.is_list {
            return JfrValue::List((0..bytes.number()).map(|_| self.value(field.of, bytes)).collect());
        }
        self.value(field.of, bytes)
    }
}
