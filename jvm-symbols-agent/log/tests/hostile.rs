//! Placeholder until the format settles.
