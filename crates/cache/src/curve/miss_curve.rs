//! A miss-ratio curve: points, with lines between them.

/// Misses as a function of cache size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissCurve {
    /// All lookups.
    pub accesses: u64,
    /// Points, smallest cache first.
    pub points: Vec<Point>,
}

/// A cache of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Memory of its entries, bytes.
    pub bytes: u64,
    /// How many of all lookups would have missed.
    pub misses: f64,
}

impl MissCurve {
    /// Miss ratio (0 to 1) of a cache of `bytes`: linear between points, and 1 at no bytes. Above the last
    /// point it stays that of the last point: more memory does not help.
    #[must_use]
    pub fn miss_ratio(&self, bytes: f64) -> f64 {
        if self.accesses == 0 {
            return 1.0;
        }
        let (mut left, mut ratio) = (0.0, 1.0);
        for point in &self.points {
            // By chance a larger simulated cache may miss more often; the curve never rises.
            let (at, below) = (point.bytes as f64, self.ratio(point).min(ratio));
            if bytes <= at {
                let part = if at > left { (bytes.max(0.0) - left) / (at - left) } else { 1.0 };
                return ratio + (below - ratio) * part;
            }
            (left, ratio) = (at, below);
        }
        ratio
    }

    fn ratio(&self, point: &Point) -> f64 {
        (point.misses / self.accesses as f64).clamp(0.0, 1.0)
    }

    /// The curve of the lookups since `earlier`, a curve of the same sizes. Returns the whole curve if
    /// `earlier` has other sizes or more lookups.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let is_same = |(now, then): (&Point, &Point)| now.bytes == then.bytes;
        let fits = self.points.len() == earlier.points.len()
            && self.points.iter().zip(&earlier.points).all(is_same);
        match self.accesses.checked_sub(earlier.accesses) {
            Some(accesses) if fits => {
                let less = |(now, then): (&Point, &Point)| Point {
                    misses: (now.misses - then.misses).max(0.0),
                    ..*now
                };
                let points = self.points.iter().zip(&earlier.points).map(less).collect();
                Self { accesses, points }
            }
            _ => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(accesses: u64, misses: [f64; 3]) -> MissCurve {
        let points = [100, 200, 400].into_iter().zip(misses);
        let points = points.map(|(bytes, misses)| Point { bytes, misses }).collect();
        MissCurve { accesses, points }
    }

    #[test]
    fn the_curve_is_linear_between_points_and_never_rises() {
        let curve = curve(100, [60.0, 70.0, 20.0]);
        let at = |bytes| (curve.miss_ratio(bytes) * 1e6).round() / 1e6;
        assert_eq!([at(-5.0), at(0.0), at(50.0), at(100.0)], [1.0, 1.0, 0.8, 0.6]);
        assert_eq!([at(150.0), at(200.0), at(300.0), at(1e9)], [0.6, 0.6, 0.4, 0.2]);
        assert_eq!(MissCurve::default().miss_ratio(1e9), 1.0);
    }

    #[test]
    fn the_difference_of_two_curves_is_the_curve_of_the_time_between() {
        let (early, late) = (curve(100, [90.0, 80.0, 70.0]), curve(300, [190.0, 130.0, 70.0]));
        assert_eq!(late.since(&early), curve(200, [100.0, 50.0, 0.0]));
        assert_eq!(early.since(&late), early);
        assert_eq!(late.since(&MissCurve::default()), late);
    }
}
