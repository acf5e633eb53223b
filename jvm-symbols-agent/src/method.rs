//! Method records: names and lines, which the JVM gives during the event that has the method.

use jvm_symbols_log::record::MAX_NAME;
use jvm_symbols_log::{ClassName, Out, RecordType, encode};

use crate::jvmti::{Env, Jni, MethodId};
use crate::slot::Entered;

/// The highest number of entries of a line table.
const MAX_LINES: usize = 16 << 10;

/// Marks the keys of classes in the dictionary: no pointer has this bit.
const CLASS_BIT: u64 = 1 << 63;

/// The method's offset in this log; writes its record if there is none. 0 if the JVM or the log refuses.
pub fn logged(env: Env, jni: Option<Jni>, log: &Entered<'_>, id: MethodId, buffer: &mut [u8]) -> u64 {
    if let Some(offset) = log.dict().get(id) {
        return offset;
    }
    if id == 0 {
        return 0;
    }
    let mut out = Out::new(buffer);
    let Some(class) = describe(env, jni, log, id, &mut out).filter(|_| !out.overflowed()) else { return 0 };
    let Some(offset) = log.append(RecordType::Method, out.written(), &[]) else { return 0 };
    log.dict().insert(id, offset);
    if log.dict().get(class).is_none() {
        log.dict().insert(class, offset);
    }
    offset
}

/// Writes the body of the method's record. Returns the key of its class.
fn describe(env: Env, jni: Option<Jni>, log: &Entered<'_>, id: MethodId, out: &mut Out<'_>) -> Option<usize> {
    let name = env.method_name(id)?;
    let class = jni.and_then(|jni| env.declaring_class(jni, id));
    let class_name = class.as_ref().and_then(|class| class.signature());
    let class_name = class_name.as_ref().map_or(&[][..], |text| text.bytes(MAX_NAME));
    // Classes with the same name and different class loaders may come from different source files.
    let file = class.as_ref().and_then(|class| class.source_file());
    let file = file.as_ref().map_or(&[][..], |text| text.bytes(MAX_NAME));
    let key = key(class_name, file);
    let lines = env.line_table(id);
    let lines = lines.iter().flat_map(|lines| lines.entries(MAX_LINES));
    let name = name.bytes(MAX_NAME);
    let named = ClassName::Named { class: class_name, file };
    encode::method(out, &log.dict().get(key).map_or(named, ClassName::As), name, lines);
    Some(key)
}

/// The key of a class: 63 bits of FNV-1a. Two of 100,000 classes share a key in one of 10^9 JVMs.
fn key(class: &[u8], file: &[u8]) -> usize {
    let bytes = class.iter().chain(&[0]).chain(file);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash | CLASS_BIT) as usize
}
