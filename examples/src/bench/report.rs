//! Every result: as JSON, and as tables for people.

mod document;
mod metric;
mod tables;

use super::{
    case::Case,
    figures::Figures,
    statistics::{Spread, median_ratio},
};
use metric::Metric;

/// All figures of one command, by case and round.
#[derive(Debug)]
pub(crate) struct Results {
    buffer: u32,
    cases: Vec<(Case, Vec<Figures>)>,
}

impl Results {
    /// `buffer` is that of every case with data.
    pub(crate) fn new(cases: Vec<Case>, buffer: u32) -> Self {
        let cases = cases.into_iter().map(|case| (case, Vec::new())).collect();
        Self { buffer, cases }
    }

    /// Adds the next round of a case.
    pub(crate) fn add(&mut self, case: &Case, figures: Figures) {
        let found = self.cases.iter_mut().find(|(known, _)| known == case);
        if let Some((_, rounds)) = found {
            rounds.push(figures);
        }
    }

    fn rounds(&self, case: &Case) -> &[Figures] {
        let found = self.cases.iter().find(|(known, _)| known == case);
        found.map_or(&[], |(_, rounds)| rounds)
    }

    fn spread(&self, case: &Case, metric: Metric) -> Option<Spread> {
        Spread::of(self.rounds(case).iter().filter_map(|one| metric.of(one)))
    }

    /// To another case, within each round.
    fn ratio(&self, case: &Case, to: &Case, metric: Metric) -> Option<f64> {
        let rounds = self.rounds(case).iter().zip(self.rounds(to));
        median_ratio(rounds.filter_map(|(one, other)| metric.of(one).zip(metric.of(other))))
    }
}

#[cfg(test)]
mod tests;
