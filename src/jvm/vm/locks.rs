//! Where a JVM's threads have the locks for which they wait. The unwinder reads the locks (`bpf/lock.h`): monitors by
//! `JavaThread` → `ObjectMonitor` → object → class, locks of `java.util.concurrent` by `JavaThread` → `java.lang.Thread`
//! → `parkBlocker` → class (`runtime/objectMonitor.hpp`, `runtime/javaThread.hpp`; JDK 8 to 25).

use super::layout::{LockOffsets, PointerCompressionAddresses, VmLayout, ZgcMasks};
use super::lock_owners::lock_owners;
use super::tables::FieldTables;
use crate::jvm::inspection::Flags;
use crate::jvm::memory::{InvalidMemory, Memory};
use crate::jvm::vm_structs::Field;
use crate::unwind::{LockFields, LockTraits, PointerCompression};

pub(super) const FIELDS: &[Field] = &[
    PENDING[0],
    PENDING[1],
    WAITING[0],
    WAITING[1],
    ("JavaThread", "_vthread"),
    ("ObjectMonitor", "_object"),
    ("ObjectMonitor", "_owner"),
    (GLOBALS, "_instance_p"),
    (GLOBALS, "_ZAddressGoodMask"),
    (GLOBALS, "_ZAddressBadMask"),
    (GLOBALS, "_ZPointerLoadGoodMask"),
    (GLOBALS, "_ZPointerLoadBadMask"),
    (GLOBALS_OF_21, "_instance_p"),
    (GLOBALS_OF_21, "_XAddressGoodMask"),
    (GLOBALS_OF_21, "_XAddressBadMask"),
];
const PENDING: [Field; 2] =
    [("JavaThread", "_current_pending_monitor"), ("Thread", "_current_pending_monitor")];
const WAITING: [Field; 2] =
    [("JavaThread", "_current_waiting_monitor"), ("Thread", "_current_waiting_monitor")];
const GLOBALS: &str = "ZGlobalsForVMStructs";
/// From JDK 21 to 23 ZGC without generations has names of its own.
const GLOBALS_OF_21: &str = "XGlobalsForVMStructs";

pub(super) fn locks(tables: &FieldTables) -> Result<LockOffsets, InvalidMemory> {
    let colours = |class: &'static str, good: &'static str, bad: &'static str| {
        Ok::<_, InvalidMemory>(ZgcMasks {
            globals: tables.address(class, "_instance_p")?,
            good: tables.offset(class, good)?,
            bad: tables.offset(class, bad)?,
        })
    };
    let plain = colours(GLOBALS_OF_21, "_XAddressGoodMask", "_XAddressBadMask");
    Ok(LockOffsets {
        pending: tables.first(&PENDING)?,
        waiting: tables.first(&WAITING)?,
        current: tables.offset("JavaThread", "_vthread").ok(),
        object: tables.offset("ObjectMonitor", "_object")?,
        owner: tables.offset("ObjectMonitor", "_owner")?,
        plain_colours: plain.or_else(|_| colours(GLOBALS, "_ZAddressGoodMask", "_ZAddressBadMask")).ok(),
        shifted_colours: colours(GLOBALS, "_ZPointerLoadGoodMask", "_ZPointerLoadBadMask").ok(),
        owners: lock_owners(tables),
    })
}

/// The description of locks for the unwinder. A JVM that has not loaded `java.lang.Thread` yet gives [`InvalidMemory`].
pub(in crate::jvm) fn lock_fields<M: Memory>(
    memory: &M,
    layout: &VmLayout,
    flags: &Flags,
) -> Result<LockFields, InvalidMemory> {
    let (locks, threads) = layout.locks.as_ref().zip(layout.threads.as_ref()).ok_or(InvalidMemory)?;
    let fields = threads.fields.of(memory, &layout.method, memory.word(threads.thread_class)?)?;
    let blocker =
        fields.iter().find(|field| field.name == b"parkBlocker" && field.signature == b"Ljava/lang/Object;");
    let colours = locks.colours(flags)?;
    let is_set = |flag: Option<bool>| flag == Some(true);
    let small = |offset: u64| u32::try_from(offset).map_err(|_| InvalidMemory);
    Ok(LockFields {
        call_stub: layout.call_stub_return.ok_or(InvalidMemory)?,
        heap_busy: threads.collections.stopped_at(memory)?,
        colours: match colours {
            None => [0; 2],
            Some(ZgcMasks { globals, good, bad }) => {
                let globals = memory.word(globals)?;
                let mask = |place: u64| memory.word(globals.checked_add(place).ok_or(InvalidMemory)?);
                [mask(good)?, mask(bad)?]
            }
        },
        oops: threads.oops.compression(memory)?,
        classes: threads.classes.compression(memory)?,
        os_thread: small(threads.os_thread)?,
        thread_id: small(threads.number)?,
        thread_object: small(locks.current.unwrap_or(threads.object))?,
        park_blocker: small(blocker.ok_or(InvalidMemory)?.offset)?,
        pending: small(locks.pending)?,
        waiting: small(locks.waiting)?,
        monitor_object: small(locks.object)?,
        monitor_owner: small(locks.owner)?,
        class: small(threads.class)?,
        traits: LockTraits {
            handles: threads.is_handle,
            narrow_oops: is_set(flags.compressed_oops),
            // A JVM without the flag always has them.
            narrow_classes: flags.compressed_classes != Some(false),
            compact: is_set(flags.compact_headers),
            shifted: colours.is_some() && colours == locks.shifted_colours,
            monitor_table: is_set(flags.monitor_table),
        },
    })
}

impl LockOffsets {
    /// The masks of the pointers of this JVM's collector; `None`: pointers have no colour.
    fn colours(&self, flags: &Flags) -> Result<Option<ZgcMasks>, InvalidMemory> {
        if flags.z_collector != Some(true) {
            return Ok(None);
        }
        let has_generations = flags.z_generations.unwrap_or(self.shifted_colours.is_some());
        let colours = if has_generations { self.shifted_colours } else { self.plain_colours };
        colours.ok_or(InvalidMemory).map(Some)
    }
}

impl PointerCompressionAddresses {
    fn compression<M: Memory>(self, memory: &M) -> Result<PointerCompression, InvalidMemory> {
        let mut shift = [0; 4];
        memory.read_all(self.shift, &mut shift)?;
        let shift = Some(u32::from_ne_bytes(shift)).filter(|shift| *shift < 16).ok_or(InvalidMemory)?;
        Ok(PointerCompression { base: memory.word(self.base)?, shift })
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, FakeMemory, LIBRARY};
    use super::*;

    /// A JVM whose threads have locks.
    fn jvm() -> (FakeMemory, VmLayout) {
        let bytes = FakeMemory::made();
        bytes.library("17.0.1+1", true);
        bytes.threads(true);
        let layout = VmLayout::read(&&bytes, BASE + LIBRARY).unwrap();
        (bytes, layout)
    }

    #[test]
    fn locks_are_where_the_tables_and_the_class_of_threads_say() {
        let (bytes, layout) = jvm();
        let flags = Flags { compressed_oops: Some(true), ..Flags::default() };
        let found = lock_fields(&&bytes, &layout, &flags).unwrap();
        assert_eq!([found.pending, found.waiting, found.thread_object, found.park_blocker], [16, 24, 8, 20]);
        assert_eq!([found.monitor_object, found.monitor_owner, found.class], [64, 72, 8]);
        assert_eq!(Some(found.call_stub), layout.call_stub_return);
        assert_eq!(found.heap_busy, bytes.get(0x7_4000 + 40) + 48);
        assert_eq!(found.oops, PointerCompression { base: BASE, shift: 0 });
        let LockTraits { handles, narrow_oops, narrow_classes, compact, shifted, monitor_table } =
            found.traits;
        assert!(handles && narrow_oops && narrow_classes && !compact && !shifted && !monitor_table);
    }

    #[test]
    fn the_colours_are_those_of_the_collector() {
        let (_, layout) = jvm();
        let colours = |globals| Some(ZgcMasks { globals, good: 0, bad: 8 });
        let found = |plain, shifted, z_generations| {
            let locks = layout.locks.clone().unwrap();
            let locks = LockOffsets { plain_colours: plain, shifted_colours: shifted, ..locks };
            locks.colours(&Flags { z_collector: Some(true), z_generations, ..Flags::default() })
        };
        let (plain, shifted) = (colours(1), colours(2));
        assert_eq!(found(plain, None, None), Ok(plain), "JDK 11 to 20");
        assert_eq!(found(plain, shifted, Some(false)), Ok(plain), "JDK 21 to 23");
        assert_eq!(found(plain, shifted, Some(true)), Ok(shifted));
        assert_eq!(found(None, shifted, None), Ok(shifted), "later");
        assert_eq!(found(None, None, None), Err(InvalidMemory), "this test's JVM");
    }

    #[test]
    fn lies_cost_the_names_of_locks() {
        type Lie = fn(&FakeMemory, &mut VmLayout);
        let lies: [(&str, Lie); 5] = [
            ("no heap yet", |bytes, _| bytes.word(0x7_4000 + 40, 0)),
            ("no threads yet", |bytes, _| bytes.word(0x7_4000 + 16, 0)),
            ("no Java yet", |_, layout| layout.call_stub_return = None),
            ("a shift beyond all addresses", |bytes, _| bytes.half(0x7_4000 + 32, 64)),
            ("no list of fields", |_, layout| layout.locks = None),
        ];
        for (what, lie) in lies {
            let (bytes, mut layout) = jvm();
            lie(&bytes, &mut layout);
            assert_eq!(lock_fields(&&bytes, &layout, &Flags::default()).err(), Some(InvalidMemory), "{what}");
        }
    }
}
