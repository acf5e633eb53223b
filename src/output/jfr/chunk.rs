//! A chunk: a part of the file with its own header, metadata, events, and the constants to which its events refer.

use std::collections::HashSet;
use std::io::{self, Write};

use super::constants::{JfrConstants, NONE};
use super::encode::{put_event, put_int, put_null_text, put_number, put_text};
use super::frame_type::FrameType;
use super::metadata::JfrType;

/// The first bytes of every chunk: `FLR`, and version 2.1.
const MAGIC: [u8; 8] = [b'F', b'L', b'R', 0, 0, 2, 0, 1];
const HEADER_SIZE: u64 = 68;
/// Time in the file is in nanoseconds.
const TICKS_PER_SECOND: u64 = 1_000_000_000;
/// The last word of the header: the chunk is finished, and its numbers are compressed.
const FEATURES: u32 = 1;
/// The id of `STATE_RUNNABLE`.
pub(super) const RUNNABLE: u64 = 1;
/// The descriptor of every method: the profile has no parameters and no result. Readers need the parentheses.
const DESCRIPTOR: &str = "()L;";
/// `Modifier.NATIVE`.
const NATIVE: u64 = 0x100;

/// The time of a chunk, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkTime {
    /// Since 1970, of the profile's begin.
    pub(super) profile_unix_ns: u64,
    /// Since the profile's begin.
    pub(super) begin: u64,
    /// Since the profile's begin.
    pub(super) end: u64,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct JfrFrame {
    /// The id of its method.
    pub(super) method: u64,
    /// The line of source.
    pub(super) line: Option<u32>,
    /// The index of the bytecode.
    pub(super) bci: Option<u32>,
    /// How its code was run.
    pub(super) kind: FrameType,
}

/// A `jdk.types.StackTrace`.
#[derive(Clone, Debug)]
pub(super) struct JfrStack {
    /// The frames, leaf first; at least one, because readers ask for the first.
    pub(super) frames: Vec<JfrFrame>,
    /// Whether it is cut on the side of the root.
    pub(super) is_truncated: bool,
}

/// Constants of one type.
#[derive(Debug, Default)]
struct JfrPool {
    seen: HashSet<u64>,
    entries: Vec<u8>,
}

impl JfrPool {
    /// Where to put the value of a constant, if it is new.
    fn add(&mut self, id: u64) -> Option<&mut Vec<u8>> {
        if id == NONE || !self.seen.insert(id) {
            return None;
        }
        put_number(&mut self.entries, id);
        Some(&mut self.entries)
    }
}

/// A chunk under construction.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    events: Vec<u8>,
    threads: JfrPool,
    stacks: JfrPool,
    methods: JfrPool,
    classes: JfrPool,
    packages: JfrPool,
    texts: JfrPool,
}

impl Chunk {
    /// Bytes of events and constants.
    pub(super) fn size(&self) -> usize {
        let pools = self.pools().map(|(_, pool)| pool.entries.len());
        self.events.len() + pools.iter().sum::<usize>()
    }

    fn pools(&self) -> [(JfrType, &JfrPool); 6] {
        [
            (JfrType::Thread, &self.threads),
            (JfrType::StackTrace, &self.stacks),
            (JfrType::Method, &self.methods),
            (JfrType::Class, &self.classes),
            (JfrType::Package, &self.packages),
            (JfrType::Symbol, &self.texts),
        ]
    }

    /// Appends an encoded event of `jfr::JfrEvents`.
    pub(super) fn add_event(&mut self, body: &[u8]) {
        put_event(&mut self.events, body);
    }

    pub(super) fn add_text(&mut self, constants: &JfrConstants, id: u64) {
        if let Some(out) = self.texts.add(id) {
            put_text(out, constants.text_by_id(id));
        }
    }

    /// Adds a thread. Which Java thread it is, is not known: readers show the name of the operating system's thread.
    pub(super) fn add_thread(&mut self, constants: &JfrConstants, id: u64) {
        if let Some(out) = self.threads.add(id) {
            let thread = constants.thread_by_id(id);
            put_text(out, &thread.name);
            put_number(out, u64::from(thread.tid));
            put_null_text(out);
            put_number(out, NONE);
        }
    }

    /// Whether the chunk has a stack.
    pub(super) fn has_stack(&self, id: u64) -> bool {
        self.stacks.seen.contains(&id)
    }

    pub(super) fn add_stack(&mut self, constants: &mut JfrConstants, id: u64, stack: &JfrStack) {
        let Some(out) = self.stacks.add(id) else { return };
        let JfrStack { frames, is_truncated } = stack;
        put_number(out, u64::from(*is_truncated));
        put_number(out, frames.len() as u64);
        for JfrFrame { method, line, bci, kind } in frames {
            put_number(out, *method);
            put_int(out, *line);
            put_int(out, *bci);
            put_number(out, *kind as u64);
        }
        for frame in frames {
            self.add_method(constants, frame.method);
        }
    }

    fn add_method(&mut self, constants: &mut JfrConstants, id: u64) {
        let Some(out) = self.methods.add(id) else { return };
        let (method, descriptor) = (constants.method_by_id(id), constants.text(DESCRIPTOR));
        let modifiers = if method.is_java { 0 } else { NATIVE };
        let is_hidden = false;
        for number in [method.class, method.name, descriptor, modifiers, u64::from(is_hidden)] {
            put_number(out, number);
        }
        let class = constants.class_by_id(method.class);
        if let Some(out) = self.classes.add(method.class) {
            for number in [NONE, class.name, class.package, 0] {
                put_number(out, number);
            }
        }
        if let Some(out) = self.packages.add(class.package) {
            // The id of a package is that of its name.
            put_number(out, class.package);
        }
        for text in [method.name, descriptor, class.name, class.package] {
            self.add_text(constants, text);
        }
    }

    /// Writes the chunk, with the event that describes the types of the file.
    ///
    /// # Errors
    /// The error of `out`.
    pub(super) fn write(&self, time: ChunkTime, metadata: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let checkpoint = self.checkpoint(time.begin);
        let constants = HEADER_SIZE + metadata.len() as u64 + self.events.len() as u64;
        let header = [
            constants + checkpoint.len() as u64,
            constants,
            HEADER_SIZE,
            time.profile_unix_ns.saturating_add(time.begin),
            time.end.saturating_sub(time.begin),
            time.begin,
            TICKS_PER_SECOND,
        ];
        out.write_all(&MAGIC)?;
        header.iter().try_for_each(|number| out.write_all(&number.to_be_bytes()))?;
        out.write_all(&FEATURES.to_be_bytes())?;
        [metadata, &self.events, &checkpoint].iter().try_for_each(|part| out.write_all(part))
    }

    /// The event with all constants. A reader refuses a pool without entries.
    fn checkpoint(&self, begin: u64) -> Vec<u8> {
        let pools = self.pools();
        let pools: Vec<&(JfrType, &JfrPool)> =
            pools.iter().filter(|(_, pool)| !pool.seen.is_empty()).collect();
        let mut body = Vec::new();
        let (duration, to_previous, is_flush) = (0, 0, 0);
        for number in [JfrType::Checkpoint as u64, begin, duration, to_previous, is_flush] {
            put_number(&mut body, number);
        }
        put_number(&mut body, 2 + pools.len() as u64);
        put_number(&mut body, JfrType::FrameType as u64);
        put_number(&mut body, FrameType::ALL.len() as u64);
        for kind in FrameType::ALL {
            put_number(&mut body, kind as u64);
            put_text(&mut body, kind.name());
        }
        put_number(&mut body, JfrType::ThreadState as u64);
        put_number(&mut body, 1);
        put_number(&mut body, RUNNABLE);
        put_text(&mut body, "STATE_RUNNABLE");
        for (of, pool) in pools {
            put_number(&mut body, *of as u64);
            put_number(&mut body, pool.seen.len() as u64);
            body.extend_from_slice(&pool.entries);
        }
        let mut out = Vec::new();
        put_event(&mut out, &body);
        out
    }
}
