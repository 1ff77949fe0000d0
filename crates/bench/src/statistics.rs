//! Confidence intervals of ratios.
//!
//! The servers of a comparison take turns, so figures of the same round belong together: other load on the machine
//! slowed all of them. Hence the ratio is taken round by round, with a confidence interval around the mean of its
//! logarithm: Student's t with rounds - 1 degrees of freedom. On a logarithmic scale "twice" and "half" are equally far
//! from 1. The mean of the logarithms, the geometric mean, does not depend on which server is the baseline (Fleming and
//! Wallace, CACM 29(3), 1986).
//!
//! Why t and no bootstrap: rounds are few, often five, and resampling five numbers gives intervals that are too narrow
//! (Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4), 2015, section 4). t
//! is what Georges, Buytaert and Eeckhout ask for below 30 measurements ("Statistically Rigorous Java Performance
//! Evaluation", OOPSLA 2007).

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A ratio with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Geometric mean.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The ratio of `figures` to `base`, paired by position. `None` with fewer than two pairs, or if a figure is not
/// positive.
pub fn paired_ratio(base: &[f64], figures: &[f64], confidence: f64) -> Option<Interval> {
    let logs: Vec<f64> = base.iter().zip(figures).map(|(&base, &figure)| (figure / base).ln()).collect();
    if base.len() != figures.len() || logs.len() < 2 || !logs.iter().all(|log| log.is_finite()) {
        return None;
    }
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(f64::midpoint(1.0, confidence));
    let margin = t * (variance / n).sqrt();
    Some(Interval { ratio: mean.exp(), low: (mean - margin).exp(), high: (mean + margin).exp() })
}

/// The median. NaN without figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's own data (The Probable Error of a Mean, Biometrika 6, 1908): additional hours of sleep of ten patients
    /// with two drugs.
    const FIRST_DRUG: [f64; 10] = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
    const SECOND_DRUG: [f64; 10] = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];

    #[test]
    fn the_interval_is_that_of_the_paired_t_test() {
        let base = FIRST_DRUG.map(f64::exp);
        let figures = SECOND_DRUG.map(f64::exp);
        let interval = paired_ratio(&base, &figures, 0.95).expect("ten pairs");
        // R: t.test(extra ~ group, data = sleep, paired = TRUE) gives -1.58 (-2.4598858, -0.7001142) for first less
        // second.
        assert!((interval.ratio.ln() - 1.58).abs() < 1e-9, "{interval:?}");
        assert!((interval.low.ln() - 0.700_114_2).abs() < 1e-6, "{interval:?}");
        assert!((interval.high.ln() - 2.459_885_8).abs() < 1e-6, "{interval:?}");
    }

    #[test]
    fn t_is_as_in_the_tables() {
        // Two-sided 95 %: t = 12.706 with one degree of freedom, 2.776 with four (any table of t).
        for (rounds, t) in [(2_u32, 12.706), (5, 2.776)] {
            let figures: Vec<f64> = (0..rounds).map(|round| f64::from(round).exp()).collect();
            let interval = paired_ratio(&vec![1.0; rounds as usize], &figures, 0.95).expect("pairs");
            let n = f64::from(rounds);
            // The numbers 0 to n - 1 have the variance n (n + 1) / 12.
            let margin = t * ((n + 1.0) / 12.0_f64).sqrt();
            assert!(((interval.high / interval.ratio).ln() - margin).abs() < 1e-3, "{interval:?}");
        }
    }

    #[test]
    fn what_hits_both_servers_in_a_round_cancels_out() {
        let base = [100.0, 50.0, 200.0, 10.0];
        let figures = base.map(|figure| figure * 1.1);
        let interval = paired_ratio(&base, &figures, 0.99).expect("four pairs");
        assert!((interval.low - 1.1).abs() < 1e-9 && (interval.high - 1.1).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn no_ratio_is_better_than_a_wrong_one() {
        assert_eq!(paired_ratio(&[1.0], &[2.0], 0.95), None);
        assert_eq!(paired_ratio(&[1.0, 0.0], &[2.0, 2.0], 0.95), None);
        assert_eq!(paired_ratio(&[1.0, 1.0], &[2.0, 0.0], 0.95), None);
        assert_eq!(paired_ratio(&[1.0, 1.0], &[2.0, 2.0, 2.0], 0.95), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median([]).is_nan());
    }
}
