//! `jbpf-prof`: see the library crate for the layout.

fn main() {}
