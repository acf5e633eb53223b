//! The version of libbpf.
#![allow(unsafe_code)] // a C string of libbpf

use std::ffi::CStr;

/// The version of the linked libbpf, such as `1.7`.
#[must_use]
pub fn libbpf_version() -> String {
    // SAFETY: libbpf returns a pointer to a constant string.
    let version = unsafe { CStr::from_ptr(libbpf_sys::libbpf_version_string()) };
    version.to_string_lossy().trim_start_matches('v').to_owned()
}
