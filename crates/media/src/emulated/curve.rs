//! Piecewise linear curves through measured points. Pure.

/// The value at `x` of the curve through `points`, sorted by x; constant beyond the ends.
pub(super) fn at(points: &[(f64, f64)], x: f64) -> f64 {
    debug_assert!(points.is_sorted_by(|(a, _), (b, _)| a < b), "a curve is sorted by x");
    let after = points.partition_point(|(px, _)| *px < x);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((_, y)), None) | (None, Some((_, y))) => *y,
        (None, None) => 1.0,
    }
}

/// As [`at`], over lengths in bytes: linear in the logarithm of the length.
pub(super) fn at_len(points: &[(f64, f64)], bytes: f64) -> f64 {
    debug_assert!(points.is_sorted_by(|(a, _), (b, _)| a < b), "a curve is sorted by x");
    let after = points.partition_point(|(px, _)| *px < bytes);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (bytes / x0).ln() / (x1 / x0).ln(),
        (Some((_, y)), None) | (None, Some((_, y))) => *y,
        (None, None) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{at, at_len};

    #[test]
    fn a_curve_goes_straight_from_point_to_point_and_is_constant_outside() {
        let points = [(1.0, 2.0), (2.0, 4.0), (4.0, 0.0)];
        let values = [0.0, 1.0, 1.5, 2.0, 3.0, 4.0, 9.0].map(|x| at(&points, x));
        assert_eq!(values, [2.0, 2.0, 3.0, 4.0, 2.0, 0.0, 0.0]);
        assert_eq!(at(&[], 3.0), 1.0);
        let lengths = [(64.0, 1.0), (1024.0, 5.0)];
        assert!((at_len(&lengths, 256.0) - 3.0).abs() < 1e-9);
        assert_eq!((at_len(&lengths, 1.0), at_len(&lengths, 1e9)), (1.0, 5.0));
    }
}
