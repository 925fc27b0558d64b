//! A miss-ratio curve: points, and what lies between them.

/// Misses over cache size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissCurve {
    /// Lookups in all.
    pub accesses: u64,
    /// By size, the smallest first.
    pub points: Vec<Point>,
}

/// A cache of some size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The memory of its content, bytes.
    pub bytes: u64,
    /// Of all lookups, as many would not have found what they asked for.
    pub misses: f64,
}

impl MissCurve {
    /// Of a cache of `bytes`, 0 to 1: a line from point to point, from no hits at no bytes on. What no more
    /// memory helps against is missed at any size above the last point, too.
    #[must_use]
    pub fn miss_ratio(&self, bytes: f64) -> f64 {
        if self.accesses == 0 {
            return 1.0;
        }
        let (mut left, mut ratio) = (0.0, 1.0);
        for point in &self.points {
            // Chance may make a larger cache miss more; it does not.
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

    /// Of what came after `earlier`, a curve of the same lookups at the same sizes; itself where `earlier`
    /// is of other sizes, or of more.
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
    fn between_points_lies_a_line_that_never_rises() {
        let curve = curve(100, [60.0, 70.0, 20.0]);
        let at = |bytes| (curve.miss_ratio(bytes) * 1e6).round() / 1e6;
        assert_eq!([at(-5.0), at(0.0), at(50.0), at(100.0)], [1.0, 1.0, 0.8, 0.6]);
        assert_eq!([at(150.0), at(200.0), at(300.0), at(1e9)], [0.6, 0.6, 0.4, 0.2]);
        assert_eq!(MissCurve::default().miss_ratio(1e9), 1.0);
    }

    #[test]
    fn of_two_moments_the_later_tells_of_what_came_between() {
        let (early, late) = (curve(100, [90.0, 80.0, 70.0]), curve(300, [190.0, 130.0, 70.0]));
        assert_eq!(late.since(&early), curve(200, [100.0, 50.0, 0.0]));
        assert_eq!(early.since(&late), early);
        assert_eq!(late.since(&MissCurve::default()), late);
    }
}
