//! The encodings of JFR's version 2: numbers of 7 bits a byte, texts, and events that begin with their size.

/// Bytes of a number that carry 7 bits; a ninth byte carries 8.
const SHORT_BYTES: usize = 8;

/// A text that is missing.
const NULL: u8 = 0;
const EMPTY: u8 = 1;
const UTF8: u8 = 3;

/// Appends a number. A negative number is appended as its two's complement.
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    for _ in 0..SHORT_BYTES {
        if rest < 0x80 {
            out.push(rest as u8);
            return;
        }
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends an `int` of Java: `None` is -1, Java's value for an unknown line or bytecode index.
pub(super) fn put_int(out: &mut Vec<u8>, number: Option<u32>) {
    put_number(out, u64::from(number.unwrap_or(u32::MAX)));
}

/// Appends a UTF-8 string with its length (encoding 3).
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    if text.is_empty() {
        out.push(EMPTY);
        return;
    }
    out.push(UTF8);
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a text that is missing.
pub(super) fn put_null_text(out: &mut Vec<u8>) {
    out.push(NULL);
}

/// Appends an event. Its size is its first field and counts its own bytes.
pub(super) fn put_event(out: &mut Vec<u8>, body: &[u8]) {
    let mut size = Vec::new();
    for width in 1..=SHORT_BYTES {
        size.clear();
        put_number(&mut size, (width + body.len()) as u64);
        if size.len() == width {
            break;
        }
    }
    out.extend_from_slice(&size);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::{put_event, put_int, put_number, put_text};

    fn bytes(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    #[test]
    fn numbers_have_seven_bits_a_byte_and_the_ninth_byte_has_eight() {
        assert_eq!(bytes(|out| put_number(out, 0x7f)), [0x7f]);
        assert_eq!(bytes(|out| put_number(out, 0x80)), [0x80, 1]);
        assert_eq!(bytes(|out| put_number(out, u64::MAX)), [0xff; 9]);
        assert_eq!(bytes(|out| put_int(out, None)), [0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(bytes(|out| put_text(out, "")), [1]);
        assert_eq!(bytes(|out| put_text(out, "ü")), [3, 2, 0xc3, 0xbc]);
    }

    #[test]
    fn the_size_of_an_event_counts_itself() {
        for (body, size) in [(126, vec![127]), (127, vec![129, 1]), (16_381, vec![255, 127])] {
            let event = bytes(|out| put_event(out, &vec![7; body]));
            assert_eq!((&event[..size.len()], event.len()), (&*size, size.len() + body));
        }
        let event = bytes(|out| put_event(out, &vec![7; 16_382]));
        assert_eq!((&event[..3], event.len()), (&[0x81, 0x80, 1][..], 16_385));
    }
}
