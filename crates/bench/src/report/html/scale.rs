//! Axes of a chart: from values to places, and where the ticks are.

/// What an axis shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) kind: Kind,
    /// A value as text.
    pub(super) format: fn(f64) -> String,
}

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Evenly, from zero.
    FromZero,
    /// Evenly, from zero, and no room above the greatest: time.
    Elapsed,
    /// Evenly, from the least.
    Linear,
    /// By their logarithms. What is not above zero is drawn at the least that is.
    Log,
    /// Evenly, with ticks at whole numbers only: the number of nines of a percentile.
    Whole,
}

/// An axis that fits its values.
#[derive(Debug)]
pub(super) struct Scale {
    axis: Axis,
    low: f64,
    high: f64,
    /// Where `low` and `high` are drawn.
    from: f64,
    to: f64,
}

impl Axis {
    /// Fits the axis to values, and to the places where its ends are drawn.
    pub(super) fn fit(self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let usable = |value: &f64| value.is_finite() && (self.kind != Kind::Log || *value > 0.0);
        let (low, high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (1.0, 2.0) } else { (low, high) };
        let (low, high) = match self.kind {
            Kind::FromZero => (0.0, if high > 0.0 { high * 1.06 } else { 1.0 }),
            Kind::Elapsed => (0.0, if high > 0.0 { high } else { 1.0 }),
            Kind::Linear | Kind::Whole if low == high => (low - 0.5, high + 0.5),
            Kind::Linear | Kind::Whole => (low, high),
            Kind::Log => (low / 1.15, high * 1.15),
        };
        Scale { axis: self, low, high, from, to }
    }
}

impl Scale {
    /// Where a value is drawn.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.axis.kind {
            Kind::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            _ => (value - self.low) / (self.high - self.low),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// A value of a tick as text, without zeros that say nothing: `10.0 ms` is `10 ms`.
    fn text(&self, tick: f64) -> String {
        let text = (self.axis.format)(tick);
        let (number, unit) = text.split_at(text.find(' ').unwrap_or(text.len()));
        if number.contains('.') {
            format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
        } else {
            text
        }
    }

    /// Values to write at the axis, about five, with their texts. Those that would read as the one before are left out.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let places = match self.axis.kind {
            Kind::Log => self.log_ticks(),
            Kind::Whole => even_ticks(self.low, self.high, 1.0),
            Kind::FromZero | Kind::Elapsed | Kind::Linear => {
                let rough = (self.high - self.low) / 5.0;
                let power = 10_f64.powf(rough.log10().floor());
                let step =
                    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|&step| step >= rough);
                even_ticks(self.low, self.high, step.unwrap_or(rough))
            }
        };
        let mut ticks: Vec<_> = places.into_iter().map(|tick| (tick, self.text(tick))).collect();
        ticks.dedup_by(|tick, before| tick.1 == before.1);
        ticks
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let digits: &[f64] = match decades {
            0.0..0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            0.7..2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let all = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

fn even_ticks(low: f64, high: f64, step: f64) -> Vec<f64> {
    const TICKS_MAX: usize = 20;
    let first = (low / step).ceil();
    (0..TICKS_MAX)
        .map(|number| (first + number as f64) * step)
        .take_while(|&tick| tick <= high + step * 1e-9)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(kind: Kind, values: &[f64]) -> Scale {
        Axis { label: "", kind, format: |value| value.to_string() }.fit(values.iter().copied(), 100.0, 200.0)
    }

    #[test]
    fn even_axes_begin_at_zero() {
        let scale = scale(Kind::FromZero, &[40.0, 100.0]);
        assert_eq!(scale.place(0.0), 100.0);
        assert_eq!(scale.place(53.0), 150.0);
        assert_eq!(scale.ticks().iter().map(|tick| tick.0).collect::<Vec<_>>(), [0.0, 50.0, 100.0]);
    }

    #[test]
    fn ticks_say_no_more_than_they_must() {
        let text = |format| {
            Axis { label: "", kind: Kind::Linear, format }.fit([1.0, 2.0].into_iter(), 0.0, 1.0).text(1.0)
        };
        assert_eq!(text(|_| "10.0 ms".into()), "10 ms");
        assert_eq!(text(|_| "1.50 k".into()), "1.5 k");
        assert_eq!(text(|_| "100".into()), "100");
    }

    #[test]
    fn logarithmic_axes_have_decades() {
        let scale = scale(Kind::Log, &[0.0, 1.0, 1000.0]);
        assert_eq!(scale.ticks().iter().map(|tick| tick.0).collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert!(scale.place(0.0) == 100.0 && (scale.place(1000.0_f64.sqrt()) - 150.0).abs() < 1e-9);
    }

    #[test]
    fn values_that_cannot_be_drawn_do_no_harm() {
        for kind in [Kind::FromZero, Kind::Elapsed, Kind::Linear, Kind::Log, Kind::Whole] {
            for values in [&[][..], &[0.0], &[f64::NAN, f64::INFINITY], &[-1.0, 5.0]] {
                let scale = scale(kind, values);
                assert!(scale.place(0.0).is_finite() && scale.place(1.0).is_finite(), "{kind:?} {values:?}");
                assert!(scale.ticks().len() <= 20);
            }
        }
    }
}
