//! Distributions of sizes: value lengths, and entries per scan.

use base::Rng;

/// The most draws from a bounded distribution until one lies in the bounds; then the lower bound is used. A
/// law that puts one draw in a thousand into its bounds is still followed.
const DRAWS_MAX: usize = 4096;

/// A distribution of sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// Always this size.
    Fixed(usize),
    /// Every size from `min` to `max` with equal probability.
    Uniform {
        /// The smallest size.
        min: usize,
        /// The largest size.
        max: usize,
    },
    /// Generalized Pareto: P(size > x) = (1 + shape x / scale)^(-1 / shape), rounded up, conditional on the
    /// bounds.
    Pareto {
        /// The shape, above 0. From 1 on, the unbounded law has no mean.
        shape: f64,
        /// The scale.
        scale: f64,
        /// The smallest size.
        min: usize,
        /// The largest size.
        max: usize,
    },
    /// Log-normal, rounded up, conditional on the bounds.
    LogNormal {
        /// The median.
        median: f64,
        /// The standard deviation of the logarithm.
        sigma: f64,
        /// The smallest size.
        min: usize,
        /// The largest size.
        max: usize,
    },
}

impl Sizes {
    /// The size, if the distribution has only one.
    #[must_use]
    pub const fn fixed(self) -> Option<usize> {
        match self {
            Self::Fixed(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Draws a size.
    #[inline]
    pub fn draw(self, rng: &mut Rng) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { min, max } => min + rng.below((max - min) as u64 + 1) as usize,
            Self::Pareto { shape, scale, min, max } => within(min, max, || {
                // By inversion. `unit` is below 1, so the power is finite.
                scale * ((1.0 - rng.unit()).powf(-shape) - 1.0) / shape
            }),
            Self::LogNormal { median, sigma, min, max } => {
                within(min, max, || median * (sigma * normal(rng)).exp())
            }
        }
    }
}

fn within(min: usize, max: usize, mut draw: impl FnMut() -> f64) -> usize {
    for _ in 0..DRAWS_MAX {
        let length = draw().ceil();
        if (min as f64..=max as f64).contains(&length) {
            return length as usize;
        }
    }
    min
}

/// A draw from the standard normal distribution (Box and Muller, 1958).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    /// Compares the fraction of sizes up to each point with `law`, to five standard deviations.
    fn check(sizes: Sizes, seed: u64, points: &[usize], law: impl Fn(f64) -> f64) {
        let mut rng = Rng::new(seed);
        let drawn: Vec<usize> = (0..DRAWS).map(|_| sizes.draw(&mut rng)).collect();
        for x in points {
            let got = drawn.iter().filter(|length| *length <= x).count() as f64 / DRAWS as f64;
            let expected = law(*x as f64);
            let slack = 5.0 * (expected * (1.0 - expected) / DRAWS as f64).sqrt() + 1e-9;
            assert!((got - expected).abs() <= slack, "{sizes:?} <= {x}: {got} for {expected}");
        }
    }

    /// The distribution function conditional on the bounds, from the unbounded one. `min` stands for
    /// everything that rounds up to it.
    fn given(min: usize, max: usize, law: impl Fn(f64) -> f64) -> impl Fn(f64) -> f64 {
        let (low, high) = (law(min as f64 - 1.0), law(max as f64));
        move |x| (law(x) - low) / (high - low)
    }

    #[test]
    fn pareto_follows_its_law() {
        for (shape, scale, min, max, seed) in
            [(0.2615, 25.45, 8, 1024, 1), (2.517, 14.236, 1, 10_000, 2)]
        {
            let law = move |x: f64| 1.0 - (1.0 + shape * x / scale).powf(-1.0 / shape);
            let sizes = Sizes::Pareto { shape, scale, min, max };
            check(sizes, seed, &[min, 10, 20, 40, 100, 400, max], given(min, max, law));
        }
    }

    /// The quantiles of the normal distribution, from tables.
    #[test]
    fn lognormal_follows_its_law() {
        let sizes = Sizes::LogNormal { median: 1e6, sigma: 0.8, min: 1, max: usize::MAX };
        for (z, chance) in [(-1.644_854_f64, 0.05), (0.0, 0.5), (1.0, 0.841_345), (2.326_348, 0.99)]
        {
            let x = 1e6 * (0.8 * z).exp();
            check(sizes, 3, &[x as usize], |_| chance);
        }
    }

    #[test]
    fn uniform_reaches_both_ends_and_bounds_hold() {
        check(Sizes::Uniform { min: 1, max: 100 }, 4, &[1, 50, 99, 100], |x| x / 100.0);
        let mut rng = Rng::new(5);
        let far = Sizes::LogNormal { median: 1e9, sigma: 0.1, min: 3, max: 5 };
        assert_eq!((far.draw(&mut rng), far.fixed()), (3, None));
        assert_eq!(Sizes::Fixed(7).draw(&mut rng), Sizes::Fixed(7).fixed().unwrap());
    }
}
