//! Small programs with a line table, for tests and for `fuzz/targets/go_table.rs`: of versions whose Go is not
//! installed, and to falsify. They have no section headers.

/// Versions of the table.
pub const VERSIONS: [GoVersion; 3] = [GoVersion::Go116, GoVersion::Go118, GoVersion::Go120];
/// File offset and address of the code of `main.main`. `main.work` follows, with two inlined calls.
pub const MAIN: u64 = 0x1000;
/// Bytes of each function.
pub const LENGTH: u64 = 0x100;
const ALL: u32 = LENGTH as u32;
const TABLE: u64 = 0x2000;
const MODULE: u64 = 0x3000;
/// Base of the inlined calls, and the offset of those of `main.work`.
const GOFUNC: u64 = 0x2800;
const TREE: u64 = 0x40;
const SIZE: usize = 0x3200;

/// The Go version that writes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoVersion {
    /// Go 1.16 or 1.17.
    Go116,
    /// Go 1.18 or 1.19.
    Go118,
    /// Go 1.20 or a later one.
    Go120,
}

/// A part of the table that grows.
#[derive(Default)]
struct ModulePart(Vec<u8>);

impl ModulePart {
    fn put(&mut self, bytes: &[u8]) -> u32 {
        let at = u32::try_from(self.0.len()).expect("small");
        self.0.extend(bytes);
        at
    }

    fn text(&mut self, text: &str) -> u32 {
        let at = self.put(text.as_bytes());
        self.put(&[0]);
        at
    }

    /// Adds a table of values, each with the byte of the function at which it ends.
    fn values(&mut self, values: &[(i32, u32)]) -> u32 {
        let (mut before, mut at) = (-1, 0);
        let table = u32::try_from(self.0.len()).expect("small");
        for &(value, end) in values {
            let difference = value - before;
            let coded = (difference << 1) ^ (difference >> 31);
            let length = end - at;
            self.put(&[u8::try_from(coded).expect("small"), length as u8 | 0x80, (length >> 7) as u8]);
            (before, at) = (value, end);
        }
        self.put(&[0]);
        table
    }
}

struct GoFunctionSpec {
    name: u32,
    depths: u32,
    files: u32,
    lines: u32,
    inlined: u32,
    tree: bool,
}

/// An ELF file with these two functions.
#[must_use]
pub fn program(version: GoVersion) -> Vec<u8> {
    let mut file = vec![0; SIZE];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = usize::try_from(at).expect("small");
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &[62, 0]);
    put(24, &MAIN.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(54, &[56, 0, 2, 0]);
    // An executable and a writable segment; file offsets are addresses.
    for (header, flags, start, size) in [(64, 5, MAIN, 0x1000), (64 + 56, 6, TABLE, SIZE as u64 - TABLE)] {
        put(header, &[1, 0, 0, 0, flags]);
        for field in [8, 16] {
            put(header + field, &start.to_le_bytes());
        }
        put(header + 32, &size.to_le_bytes());
    }
    let (mut names, mut files, mut values) =
        (ModulePart::default(), ModulePart::default(), ModulePart(vec![0]));
    let [main, work, mix, rotate] =
        ["main.main", "main.work[go.shape.int]", "main.mix", "main.rotate"].map(|name| names.text(name));
    let units = ["/src/main.go", "/src/mix.go"].map(|name| files.text(name).to_le_bytes()).concat();
    let functions = [
        GoFunctionSpec {
            name: main,
            depths: values.values(&[(0, ALL)]),
            files: values.values(&[(0, ALL)]),
            lines: values.values(&[(7, ALL)]),
            inlined: 0,
            tree: false,
        },
        GoFunctionSpec {
            name: work,
            depths: values.values(&[(0, 0x10), (24, 0xf0), (0, 0xf8)]),
            files: values.values(&[(0, 0x20), (1, 0x60), (0, ALL)]),
            lines: values.values(&[(10, 0x10), (12, 0x20), (21, 0x38), (22, 0x40), (31, 0x60), (14, ALL)]),
            inlined: values.values(&[(-1, 0x20), (0, 0x40), (1, 0x60), (-1, ALL)]),
            tree: true,
        },
    ];
    let rows = rows(version, &functions);
    let mut table = vec![];
    table.extend(
        match version {
            GoVersion::Go116 => 0xffff_fffa_u32,
            GoVersion::Go118 => 0xffff_fff0,
            GoVersion::Go120 => 0xffff_fff1,
        }
        .to_le_bytes(),
    );
    table.extend([0, 0, 1, 8]);
    let mut fields = vec![functions.len() as u64, 2];
    if version != GoVersion::Go116 {
        fields.push(0);
    }
    let parts = [names.0, units, files.0, values.0, rows];
    let mut at = 8 + (fields.len() + parts.len()) as u64 * 8;
    let mut places = vec![];
    for part in &parts {
        places.push(TABLE + at);
        fields.push(at);
        at = (at + part.len() as u64).next_multiple_of(8);
    }
    table.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    put(TABLE, &table);
    for (part, &place) in parts.iter().zip(&places) {
        put(place, part);
    }
    put(GOFUNC + TREE, &tree(version, mix, rotate));
    put(MODULE, &module(&places));
    file
}

/// Where functions begin, and the record of each.
fn rows(version: GoVersion, functions: &[GoFunctionSpec]) -> Vec<u8> {
    let wide = version == GoVersion::Go116;
    let number = |value: u64| value.to_le_bytes()[..if wide { 8 } else { 4 }].to_vec();
    let start = |index: usize| index as u64 * LENGTH + if wide { MAIN } else { 0 };
    let (mut rows, mut rest) = (Vec::new(), Vec::new());
    let first = number(0).len() * (functions.len() * 2 + 1);
    let first = first.next_multiple_of(8);
    for (index, function) in functions.iter().enumerate() {
        rows.extend(number(start(index)));
        rows.extend(number((first + rest.len()) as u64));
        rest.extend(number(start(index)));
        for field in [function.name, 0, 0, function.depths, function.files, function.lines, 3, 0] {
            rest.extend(field.to_le_bytes());
        }
        if version == GoVersion::Go120 {
            rest.extend(7_u32.to_le_bytes());
        }
        rest.extend([0, 0, 0, if function.tree { 4 } else { 0 }]);
        rest.extend([0, 0, function.inlined].map(u32::to_le_bytes).concat());
        if function.tree {
            rest.resize(if wide { rest.len().next_multiple_of(8) } else { rest.len() }, 0);
            for data in [u64::MAX, u64::MAX, u64::MAX, if wide { GOFUNC + TREE } else { TREE }] {
                rest.extend(number(data));
            }
        }
        rest.resize(rest.len().next_multiple_of(8), 0);
    }
    rows.extend(number(start(functions.len())));
    rows.resize(first, 0);
    [rows, rest].concat()
}

/// `mix`, called by `work`, and `rotate`, called by `mix`.
fn tree(version: GoVersion, mix: u32, rotate: u32) -> Vec<u8> {
    let calls = [(mix, 0x10_u32), (rotate, 0x38)];
    let records = calls.map(|(name, called_at)| match version {
        GoVersion::Go120 => [0, name, called_at, 20].map(u32::to_le_bytes).concat(),
        _ => [0xffff, 0, 0, name, called_at].map(u32::to_le_bytes).concat(),
    });
    records.concat()
}

fn module(places: &[u64]) -> Vec<u8> {
    let mut words = [0_u64; 49];
    words[0] = TABLE;
    for (at, &place) in [1, 4, 7, 10, 13, 16].into_iter().zip(places.iter().chain(places.last())) {
        words[at] = place;
    }
    words[17] = 3;
    (words[20], words[21], words[22]) = (MAIN, MAIN + 2 * LENGTH, MAIN);
    words[38] = GOFUNC;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
