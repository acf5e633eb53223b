//! pprof: the interchange format, `profile.proto` of google/pprof, gzipped.
//!
//! Sample types are `samples/count` and `cpu/nanoseconds`. A function's `system_name` is the kind of frame
//! ([`KindFacts::label`](crate::profile::kind::KindFacts::label)). Inlined frames are further lines of one location,
//! innermost first. Labels are named as in OpenTelemetry's conventions. The accounts and the pauses of JVMs are comments.
//! The format has no field for bytecode indices, so they are left out.

mod model;
mod proto;
mod read;
mod write;

pub(super) use model::{LABEL_PID, LABEL_PROCESS, LABEL_STATE, LABEL_THREAD};
pub use read::read;
pub use write::write;

use super::format::{Format, FormatReader, FormatRequirements};
use model::GZIP;

/// Google's pprof, read and written, with several events in a file; the daemon stores its windows as pprof.
pub static FORMAT: Format = Format {
    names: &["pb.gz", "pprof"],
    media_type: "application/octet-stream",
    needs: FormatRequirements::NONE,
    several: true,
    write: |views, _, out| write(views, out),
    read: FormatReader::By { magic: GZIP, read: |input| read(input) },
};
