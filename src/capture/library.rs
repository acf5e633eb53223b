//! libbpf itself: its version and its messages.
#![allow(unsafe_code)] // a C string of libbpf

use std::ffi::CStr;

use libbpf_rs::PrintLevel;

/// The version of the linked libbpf, such as `1.7`.
#[must_use]
pub fn libbpf_version() -> String {
    // SAFETY: libbpf returns a pointer to a constant string.
    let version = unsafe { CStr::from_ptr(libbpf_sys::libbpf_version_string()) };
    version.to_string_lossy().trim_start_matches('v').to_owned()
}

/// Sends the messages of libbpf to the log from now on. After the load, each error of libbpf becomes a sentence of ours,
/// and libbpf's own lines on standard error would only repeat it.
pub(super) fn log_messages() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| log::debug!("libbpf: {}", text.trim_end()))));
}
