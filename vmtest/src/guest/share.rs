//! Measured shares against true ones.

use anyhow::ensure;

/// Samples below which shares are not judged.
pub(super) const ENOUGH: u64 = 2_000;

/// Fails unless a share is the true one, within half a point and what chance explains of `n` samples.
pub(super) fn check(what: &str, share: f64, truth: f64, n: u64) -> anyhow::Result<()> {
    ensure!(n >= ENOUGH, "{what}: {n} samples are too few to tell");
    let tolerance = 0.005 + 4.0 * (truth * (1.0 - truth) / n as f64).sqrt();
    ensure!(
        (share - truth).abs() <= tolerance,
        "{what} has {:.2} % of {n} samples, but the truth is {:.2} % ± {:.2}",
        share * 100.0,
        truth * 100.0,
        tolerance * 100.0
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn chance_is_allowed_for_and_no_more() {
        assert!(check("a", 0.43, 0.4, 4_000).is_ok() && check("a", 0.37, 0.4, 4_000).is_ok());
        assert!(check("a", 0.44, 0.4, 4_000).is_err() && check("a", 0.4, 0.4, 100).is_err());
        assert!(check("nothing", 0.006, 0.0, 4_000).is_err());
    }
}
