//! The normal distribution.
//!
//! Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.6 and 7.1.14.

use std::f64::consts::{PI, SQRT_2};

/// From here on the continued fraction converges faster than the series.
const FAR: f64 = 2.0;
/// Steps of the continued fraction: the error is below 1e-12 from [`FAR`] on.
const FRACTION_STEPS: u32 = 50;

/// The probability of a value at least as far from 0 as `z`, in both directions.
pub(super) fn normal_two_sided(z: f64) -> f64 {
    if z.is_nan() {
        return 1.0;
    }
    let x = z.abs() / SQRT_2;
    if x < FAR {
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term > 1e-17 {
            odd += 2.0;
            term *= 2.0 * x * x / odd;
            sum += term;
        }
        return 1.0 - 2.0 / PI.sqrt() * (-x * x).exp() * sum;
    }
    let fraction = (1..=FRACTION_STEPS).rev().fold(x, |below, step| x + f64::from(step) / 2.0 / below);
    (-x * x).exp() / PI.sqrt() / fraction
}

/// The density of the normal distribution.
pub(super) fn normal_density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::{normal_density, normal_two_sided};

    /// Values of printed tables.
    #[test]
    fn values_are_those_of_tables() {
        for (z, p) in [
            (0.0, 1.0),
            (0.674_489_750_2, 0.5),
            (-1.959_963_984_5, 0.05),
            (2.575_829_303_5, 0.01),
            (2.8, 0.005_110_260_7),
            (2.9, 0.003_731_626_6),
            (3.290_526_731_5, 0.001),
            (6.109_410_204_9, 1e-9),
        ] {
            let is = normal_two_sided(z);
            assert!((is / p - 1.0).abs() < 1e-8, "{z}: {is} is not {p}");
        }
        assert_eq!(normal_two_sided(f64::INFINITY), 0.0);
        assert_eq!(normal_two_sided(f64::NAN), 1.0);
        // The density is the slope.
        let slope = (normal_two_sided(1.001) - normal_two_sided(0.999)) / 0.002;
        assert!((slope + 2.0 * normal_density(1.0)).abs() < 1e-6, "{slope}");
    }
}
