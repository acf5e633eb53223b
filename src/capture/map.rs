//! Creates BPF maps, and converts libbpf's errors to those of the standard library.

use std::io;

use libbpf_rs::{MapHandle, MapType};

/// Creates a map with keys and values of these sizes, in bytes.
pub(super) fn create(
    kind: MapType,
    name: &str,
    key: usize,
    value: usize,
    entries: u32,
) -> io::Result<MapHandle> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let size = |bytes| u32::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    MapHandle::create(kind, Some(name), size(key)?, size(value)?, entries, &opts).map_err(typed)
}

/// Converts libbpf's error, so that callers can check its kind without libbpf.
pub(super) fn typed(error: libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        libbpf_rs::ErrorKind::Unsupported => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
