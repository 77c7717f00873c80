//! Medians of rounds.

/// Median, smallest and largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` for no figures.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { median, min, max })
    }
}

/// The median of the ratios of each round; rounds without one of the figures, or with a yardstick of 0, do not count.
pub(crate) fn median_ratio(rounds: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let ratios = rounds
        .into_iter()
        .filter(|(_, yardstick)| *yardstick > 0.0)
        .map(|(figure, yardstick)| figure / yardstick);
    Spread::of(ratios).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_middle_two() {
        let spread = Spread::of([3.0, 1.0, 10.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 10.0));
        assert_eq!(
            Spread::of([4.0, 1.0, 2.0, 10.0]).map(|it| it.median),
            Some(3.0)
        );
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // A machine that halves its speed changes both figures of a round: the ratio stays.
        let rounds = [(90.0, 100.0), (45.0, 50.0), (900.0, 1000.0)];
        assert_eq!(median_ratio(rounds), Some(0.9));
        assert_eq!(median_ratio([(1.0, 0.0)]), None);
    }
}
