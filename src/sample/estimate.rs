//! Numbers of waits and objects that samples stand for.

/// An estimated number, in fixed point: sums do not depend on the order of their parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Estimate(u64);

impl Estimate {
    /// `JP_ESTIMATE_UNIT`: units of the number 1.
    const UNIT: u64 = 256;

    /// A number in units of `1 / JP_ESTIMATE_UNIT`.
    #[must_use]
    pub fn of_units(units: u64) -> Estimate {
        Estimate(units)
    }

    /// A whole number. Numbers above 2^56 become the largest estimate.
    #[must_use]
    pub fn whole(number: u64) -> Estimate {
        Estimate(number.saturating_mul(Estimate::UNIT))
    }

    /// The number in units of `1 / JP_ESTIMATE_UNIT`.
    #[must_use]
    pub fn units(self) -> u64 {
        self.0
    }

    /// The nearest whole number.
    #[must_use]
    pub fn rounded(self) -> u64 {
        self.0 / Estimate::UNIT + u64::from(self.0 % Estimate::UNIT >= Estimate::UNIT / 2)
    }

    /// As a number, with a fraction of 1/256.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Estimate::UNIT as f64
    }
}

impl std::ops::AddAssign for Estimate {
    /// Saturates: a process can claim any number of objects.
    fn add_assign(&mut self, other: Estimate) {
        self.0 = self.0.saturating_add(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_rounded_once() {
        let mut sum = Estimate::default();
        for _ in 0..10 {
            sum += Estimate::of_units(Estimate::UNIT * 5 / 4);
        }
        assert_eq!((sum.rounded(), sum.as_f64()), (13, 12.5));
        assert_eq!(Estimate::whole(7).rounded(), 7);
        assert_eq!(Estimate::of_units(Estimate::UNIT / 2 - 1).rounded(), 0);
        sum += Estimate::whole(u64::MAX);
        assert_eq!(sum.rounded(), 1 << 56);
    }
}
