//! Traces and spans: which piece of distributed work a thread worked for, as the process publishes it (OTEP 4947).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a trace, as W3C Trace Context has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span in its trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpanId(pub [u8; 8]);

/// A span and its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpanContext {
    /// Id of the trace (W3C, 16 bytes).
    pub trace: TraceId,
    /// The span in the trace.
    pub span: SpanId,
}

/// What a sample has of its thread's trace context, in the order of `JP_CONTEXTS` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ThreadContext {
    /// Traces are not sampled, or the process publishes none.
    #[default]
    None,
    /// The thread worked for a span.
    Span(SpanContext),
    /// The thread had no active span.
    Idle,
    /// The memory of the thread could not be read.
    Unread,
}

impl ThreadContext {
    /// The span, if the thread worked for one.
    #[must_use]
    pub fn span(self) -> Option<SpanContext> {
        if let ThreadContext::Span(span) = self { Some(span) } else { None }
    }
}

/// A text is not the id of a trace or a span.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {digits} hexadecimal digits, not all of them 0")]
pub struct BadSpanId {
    digits: usize,
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Reads exactly `N` bytes of two digits. An id of zeros means that there is none.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], BadSpanId> {
    let bad = BadSpanId { digits: 2 * N };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return Err(bad);
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        let digit =
            |at: usize| char::from(digits[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(bad) };
        *byte = high << 4 | low;
    }
    if bytes == [0; N] { Err(bad) } else { Ok(bytes) }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl FromStr for TraceId {
    type Err = BadSpanId;

    fn from_str(text: &str) -> Result<TraceId, BadSpanId> {
        bytes(text).map(TraceId)
    }
}

impl FromStr for SpanId {
    type Err = BadSpanId;

    fn from_str(text: &str) -> Result<SpanId, BadSpanId> {
        bytes(text).map(SpanId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let text = "0af7651916cd43dd8448eb211c80319c";
        let trace: TraceId = text.parse().unwrap();
        assert_eq!((trace.0[0], trace.0[15], trace.to_string().as_str()), (0x0a, 0x9c, text));
        assert_eq!(text.to_uppercase().parse(), Ok(trace));
        let span: SpanId = "b7ad6b7169203331".parse().unwrap();
        assert_eq!(span.to_string(), "b7ad6b7169203331");
        for bad in
            ["", "b7ad6b7169203331", &"0".repeat(32), &"g".repeat(32), &"+1".repeat(16), &"é".repeat(16)]
        {
            let said = bad.parse::<TraceId>().unwrap_err().to_string();
            assert_eq!(said, "expected 32 hexadecimal digits, not all of them 0", "{bad}");
        }
    }
}
