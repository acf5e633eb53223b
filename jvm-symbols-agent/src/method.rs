//! A method's record: its names and lines, asked of the JVM while the event that names it lasts.

use jvm_symbols_log::{MethodNames, Out, RecordType, encode};

use crate::jvmti::{Env, Jni, MethodId};
use crate::slot::Entered;

/// Longest name that is logged; the class file format allows 64 KiB.
const MAX_NAME: usize = 4096;
/// Most entries of a line table.
const MAX_LINES: usize = 16 << 10;

/// Where the method is described in this log; describes it if it is not. 0 if the JVM or the log has no answer.
pub fn logged(env: Env, jni: Option<Jni>, log: &Entered<'_>, id: MethodId, buffer: &mut [u8]) -> u64 {
    if let Some(offset) = log.dict().get(id) {
        return offset;
    }
    let mut out = Out::new(buffer);
    if id == 0 || describe(env, jni, id, &mut out).is_none() || out.overflowed() {
        return 0;
    }
    let Some(offset) = log.append(RecordType::Method, out.written(), &[]) else { return 0 };
    log.dict().insert(id, offset);
    offset
}

fn describe(env: Env, jni: Option<Jni>, id: MethodId, out: &mut Out<'_>) -> Option<()> {
    let (name, signature) = env.method_name(id)?;
    let class = jni.and_then(|jni| env.declaring_class(jni, id));
    let class_name = class.as_ref().and_then(|class| class.signature());
    let file = class.as_ref().and_then(|class| class.source_file());
    let lines = env.line_table(id);
    let names = MethodNames {
        class: class_name.as_ref().map_or(&[], |text| text.bytes(MAX_NAME)),
        name: name.bytes(MAX_NAME),
        signature: signature.bytes(MAX_NAME),
        file: file.as_ref().map_or(&[], |text| text.bytes(MAX_NAME)),
    };
    encode::method(out, &names, lines.iter().flat_map(|lines| lines.entries(MAX_LINES)));
    Some(())
}
