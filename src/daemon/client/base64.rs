//! Base64, RFC 4648, section 4.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text, padded.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0u32, |sum, &b| sum << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = number >> (18 - 6 * digit) & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

/// What a text stands for, padded or not; none if it is no such text.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut number = 0u32;
        for byte in four {
            let value = DIGITS.iter().position(|digit| digit == byte)?;
            number = number << 6 | u32::try_from(value).ok()?;
        }
        number <<= 6 * (4 - four.len());
        // Two digits are a byte, three are two.
        let whole = four.len() * 6 / 8;
        if whole == 0 {
            return None;
        }
        bytes.extend_from_slice(&number.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn it_is_that_of_the_standard() {
        let table = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, code) in table {
            assert_eq!(encode(text.as_bytes()), code);
            for code in [code, code.trim_end_matches('=')] {
                assert_eq!(decode(code).as_deref(), Some(text.as_bytes()), "{code}");
            }
        }
        for bad in ["Z", "Zm9vY", "Zm 9", "Zg==Zg==", "Zm9\u{e9}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
