//! Interned frames: a symbol is what a picture distinguishes, a frame also has a line and an address.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;

use super::frame::{Frame, Kind, Module, UnknownReason};
use super::strings::{StrId, Strings};

/// Limit on the frames of a profile; later ones become [`FrameTable::FULL`]. 4 million frames are some 300 MB.
const MAX_FRAMES: usize = 4 << 20;

/// Number of frames whose id is cached by the address of their `Arc`.
const RECENT: usize = 1 << 14;

/// Number of a frame in a [`FrameTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(super) u32);

impl FrameId {
    /// The frame of an item of a profile's trie.
    #[must_use]
    pub fn from_item(item: u32) -> FrameId {
        FrameId(item)
    }
}

/// The part of a frame that pictures show: frames of one symbol share a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Symbol {
    /// Language of the code, and how it is run, as in [`Frame::kind`].
    pub kind: Kind,
    /// The interned text of [`Frame::name`].
    pub name: StrId,
    /// Why there is no name, as in [`Frame::unknown`].
    pub unknown: Option<UnknownReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FrameRecord {
    symbol: u32,
    file: Option<StrId>,
    line: u32,
    bci: Option<u32>,
    module: Option<u32>,
    address: u64,
}

/// The distinct frames and symbols of a profile, each with a number.
#[derive(Clone, Debug)]
pub struct FrameTable {
    strings: Strings,
    symbols: Vec<Symbol>,
    symbol_ids: HashMap<Symbol, u32, RandomState>,
    modules: Vec<Arc<Module>>,
    module_ids: HashMap<Arc<Module>, u32, RandomState>,
    records: Vec<FrameRecord>,
    ids: HashMap<FrameRecord, u32, RandomState>,
    /// The cache holds the `Arc`s, so an address found here still belongs to the same frame.
    recent: Vec<Option<(Arc<Frame>, FrameId)>>,
}

impl Default for FrameTable {
    fn default() -> FrameTable {
        let mut table = FrameTable {
            strings: Strings::default(),
            symbols: Vec::new(),
            symbol_ids: HashMap::default(),
            modules: Vec::new(),
            module_ids: HashMap::default(),
            records: Vec::new(),
            ids: HashMap::default(),
            recent: vec![None; RECENT],
        };
        table.insert(&Frame::named(Kind::Marker, "[profile full]"));
        table
    }
}

impl FrameTable {
    /// Stands for every frame that was added when the table was full.
    pub const FULL: FrameId = FrameId(0);

    /// The number of a frame; adds the frame if it is new.
    pub fn intern(&mut self, frame: &Arc<Frame>) -> FrameId {
        let address = Arc::as_ptr(frame) as usize as u64;
        let place = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % RECENT;
        if let Some((held, id)) = &self.recent[place]
            && Arc::ptr_eq(held, frame)
        {
            return *id;
        }
        let id = self.insert(frame);
        self.recent[place] = Some((Arc::clone(frame), id));
        id
    }

    fn insert(&mut self, frame: &Frame) -> FrameId {
        let Frame { kind, name, unknown, file, line, bci, module, address } = frame;
        let symbol = Symbol { kind: *kind, name: self.strings.intern(name), unknown: *unknown };
        let record = FrameRecord {
            symbol: self.symbol(symbol),
            file: file.as_ref().map(|f| self.strings.intern(f)),
            line: *line,
            bci: *bci,
            module: module.as_ref().map(|m| self.module(m)),
            address: *address,
        };
        if let Some(&id) = self.ids.get(&record) {
            return FrameId(id);
        }
        if self.records.len() >= MAX_FRAMES {
            return Self::FULL;
        }
        let id = self.records.len() as u32;
        self.records.push(record);
        self.ids.insert(record, id);
        FrameId(id)
    }

    fn symbol(&mut self, symbol: Symbol) -> u32 {
        let next = self.symbols.len() as u32;
        *self.symbol_ids.entry(symbol).or_insert_with(|| {
            self.symbols.push(symbol);
            next
        })
    }

    fn module(&mut self, module: &Arc<Module>) -> u32 {
        if let Some(&id) = self.module_ids.get(module) {
            return id;
        }
        let path = self.strings.intern(&module.path);
        let module = Arc::new(Module { path: Arc::clone(self.strings.get(path)), ..Module::clone(module) });
        let next = self.modules.len() as u32;
        *self.module_ids.entry(Arc::clone(&module)).or_insert_with(|| {
            self.modules.push(module);
            next
        })
    }

    /// Number of frames, [`FrameTable::FULL`] included.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // there is always FULL
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The ids of all frames, in the order in which they were interned.
    pub fn ids(&self) -> impl Iterator<Item = FrameId> + use<> {
        (0..self.records.len() as u32).map(FrameId)
    }

    /// The frame of a number, assembled from its interned parts.
    #[must_use]
    pub fn get(&self, id: FrameId) -> Frame {
        let FrameRecord { symbol, file, line, bci, module, address } = self.records[id.0 as usize];
        let Symbol { kind, name, unknown } = self.symbols[symbol as usize];
        Frame {
            kind,
            name: Arc::clone(self.strings.get(name)),
            unknown,
            file: file.map(|f| Arc::clone(self.strings.get(f))),
            line,
            bci,
            module: module.map(|m| Arc::clone(&self.modules[m as usize])),
            address,
        }
    }

    /// The index of a frame's symbol in [`FrameTable::symbols`].
    #[must_use]
    pub fn symbol_of(&self, id: FrameId) -> u32 {
        self.records[id.0 as usize].symbol
    }

    /// The kind of a frame.
    #[must_use]
    pub fn kind(&self, id: FrameId) -> Kind {
        self.symbols[self.symbol_of(id) as usize].kind
    }

    /// All symbols; [`FrameTable::symbol_of`] gives indices of this list.
    #[must_use]
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// The interned text of a symbol's name.
    #[must_use]
    pub fn name(&self, symbol: &Symbol) -> &Arc<str> {
        self.strings.get(symbol.name)
    }
}
