//! Programs with Go's line table, in which some bytes are wrong.

use jbpf_prof::symbolize::function::FunctionName;
use jbpf_prof::symbolize::go_fixture::{LENGTH, MAIN, VERSIONS, program};
use jbpf_prof::symbolize::native::Native;

/// A wrong value: the index of its first byte, its size, its bytes.
type Lie = [u8; 11];

pub(crate) fn run(data: &[u8]) {
    let Some((&version, lies)) = data.split_first() else { return };
    let mut file = program(VERSIONS[usize::from(version) % VERSIONS.len()]);
    for [low, high, form, value @ ..] in lies.as_chunks().0 as &[Lie] {
        // The code between both parts is never read.
        let (headers, data) = (0x100, 0x2000);
        let place = usize::from(u16::from_le_bytes([*low, *high])) % (headers + file.len() - data);
        let place = if place < headers { place } else { place - headers + data };
        let end = (place + (1 << (form & 3))).min(file.len());
        file[place..end].copy_from_slice(&value[..end - place]);
    }
    let Ok(native) = Native::from_bytes(file) else { return };
    for offset in (MAIN - 8..MAIN + 2 * LENGTH + 8).step_by(8) {
        for function in native.functions_at(&[offset], false).remove(0).unwrap_or_default() {
            let FunctionName::Name(name) = function.called else { continue };
            assert!(!name.chars().any(char::is_control));
        }
    }
}
