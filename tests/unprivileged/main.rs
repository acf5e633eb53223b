//! What needs no root and no kernel: the source itself, the documents, and golden files of the formats.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod documents;
mod formats;
mod layers;
