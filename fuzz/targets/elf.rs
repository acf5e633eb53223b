//! ELF files: headers, symbol tables, linkage tables, call frame information, static markers, thread-local variables.
//! blazesym reads DWARF, in the worker.

use jbpf_prof::process::segments;
use jbpf_prof::symbolize::function::FunctionName;
use jbpf_prof::symbolize::native::Native;
use jbpf_prof::symbolize::{ProbedFile, ThreadLocal};

pub(crate) fn run(data: &[u8]) {
    if let Some(table) = data.first_chunk().and_then(segments::table) {
        assert!(table.len < 4096);
        for segment in segments::segments(data) {
            assert!(segment.offset_of(segment.address) == Some(segment.offset));
        }
    }
    if let Ok(file) = ProbedFile::from_bytes(data.to_vec()) {
        let _ = file.function("main");
        assert!(!file.marker("libc", "setjmp").is_ok_and(|sites| sites.is_empty()));
    }
    if let Ok(Some(variable)) = ThreadLocal::in_bytes(data.to_vec(), "otel_thread_ctx_v1") {
        assert!(variable.slots.len() <= 16 && variable.code.len() <= 16);
        let _ = variable.moved(1 << 40, u64::MAX);
    }
    let Ok(native) = Native::from_bytes(data.to_vec()) else { return };
    for offset in [0, u64::MAX].into_iter().chain((0..data.len() as u64).step_by(16)) {
        for function in native.functions_at(&[offset], false).remove(0).unwrap_or_default() {
            let FunctionName::Name(name) = function.called else { continue };
            assert!(!name.chars().any(char::is_control));
        }
    }
}
