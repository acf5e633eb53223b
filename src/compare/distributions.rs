//! Student's distribution, and the functions of the gamma family that a prior of variances needs.
//!
//! Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions, chapters 6 and 26; Lentz's continued fraction of
//! the incomplete beta function.

/// Degrees of freedom above which Student's distribution is the normal one for every purpose here.
pub(super) const MANY: f64 = 1e6;

/// The probability of a value at least as far from 0 as `t`, in both directions.
pub(super) fn two_sided(t: f64, degrees: f64) -> f64 {
    if !t.is_finite() {
        return if t.is_nan() { 1.0 } else { 0.0 };
    }
    let degrees = degrees.min(MANY);
    incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5)
}

/// The `t` that a value exceeds, in one of both directions, with probability `p`.
pub(super) fn quantile(p: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, degrees) > p && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, degrees) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The logarithm of the gamma function, for positive numbers, by Stirling's series.
fn ln_gamma(x: f64) -> f64 {
    // The series is exact to 1e-12 from 10 on.
    if x < 10.0 {
        return ln_gamma(x + 1.0) - x.ln();
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + series
}

/// The regularised incomplete beta function.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast below the mean; above it the function is mirrored.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    (front.exp() / a * beta_fraction(x, a, b)).clamp(0.0, 1.0)
}

fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guarded = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut numerator, mut denominator) = (1.0, 1.0 / guarded(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = denominator;
    for step in 1..1000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for term in [even, odd] {
            denominator = 1.0 / guarded(1.0 + term * denominator);
            numerator = guarded(1.0 + term / numerator);
            last = numerator * denominator;
            fraction *= last;
        }
        if (last - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// The derivative of the logarithm of the gamma function, for positive numbers.
pub(super) fn digamma(x: f64) -> f64 {
    if x < 10.0 {
        return digamma(x + 1.0) - 1.0 / x;
    }
    let square = 1.0 / (x * x);
    x.ln() - 0.5 / x - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
}

/// The derivative of [`digamma`].
pub(super) fn trigamma(x: f64) -> f64 {
    if x < 10.0 {
        return trigamma(x + 1.0) + 1.0 / (x * x);
    }
    let square = 1.0 / (x * x);
    1.0 / x + square / 2.0 + square / x * (1.0 / 6.0 - square * (1.0 / 30.0 - square / 42.0))
}

/// The positive number whose [`trigamma`] is `y`.
pub(super) fn inverse_trigamma(y: f64) -> f64 {
    let (mut low, mut high) = (1e-8_f64, 1e8_f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > y {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

#[cfg(test)]
mod tests {
    use super::{MANY, digamma, inverse_trigamma, quantile, trigamma, two_sided};

    #[track_caller]
    fn close(is: f64, should: f64) {
        assert!((is - should).abs() < 1e-6 * should.abs().max(1.0), "{is} is not {should}");
    }

    /// Values of printed tables, and of closed forms: one degree of freedom is Cauchy's distribution.
    #[test]
    fn values_are_those_of_tables() {
        close(two_sided(1.0, 1.0), 0.5);
        close(two_sided(0.0, 8.0), 1.0);
        close(two_sided(std::f64::consts::SQRT_2, 2.0), 1.0 - (0.5f64).sqrt());
        for (p, degrees, t) in [
            (0.05, 1.0, 12.706_204_7),
            (0.05, 4.0, 2.776_445_1),
            (0.05, 8.0, 2.306_004_1),
            (0.01, 8.0, 3.355_387_3),
            (0.001, 30.0, 3.645_958_6),
            (0.05, MANY, 1.959_966_4),
        ] {
            assert!((quantile(p, degrees) - t).abs() < 1e-5, "{degrees}: {}", quantile(p, degrees));
            close(two_sided(quantile(p, degrees), degrees), p);
        }
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
        assert_eq!(two_sided(f64::NAN, 3.0), 1.0);
        close(digamma(1.0), -0.577_215_664_9);
        close(digamma(0.5), -1.963_510_026_0);
        close(trigamma(1.0), std::f64::consts::PI.powi(2) / 6.0);
        close(trigamma(0.5), std::f64::consts::PI.powi(2) / 2.0);
        for x in [0.01, 0.7, 4.0, 900.0] {
            close(inverse_trigamma(trigamma(x)), x);
        }
    }
}
