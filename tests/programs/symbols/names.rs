//! Rust's mangling.
mod inner {
    #[inline(never)]
    pub fn spin(x: u64) -> u64 {
        std::hint::black_box(x).wrapping_mul(3)
    }
}

fn main() {
    std::process::exit(i32::from(inner::spin(std::env::args().count() as u64) == 0));
}
