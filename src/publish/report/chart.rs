//! Numbers as bars of text: a curve of depths, two legs.

use crate::base::legs::Rung;
use crate::base::units::Frequency;

const BAR: usize = 24;

/// What a ladder of depths found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Of the run.
    pub name: String,
    /// By depth, ascending.
    pub rungs: Vec<Rung>,
    /// Smallest depth that comes near the best rate; `None` where the rungs are no ladder.
    pub knee: Option<u32>,
}

impl Curve {
    /// A line for each rung: `depth   8   31.0 k/s  ############  258 µs`, the longest bar the best.
    pub fn lines(&self) -> Vec<String> {
        let best = self.rungs.iter().map(|rung| rung.operations_per_second).fold(0.0, f64::max);
        let shown: Vec<[String; 2]> = self
            .rungs
            .iter()
            .map(|rung| [rung.depth.to_string(), Frequency(rung.operations_per_second).to_string()])
            .collect();
        let width = |column: usize| {
            shown.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default()
        };
        let (depth_width, rate_width) = (width(0), width(1));
        let line = |(rung, [depth, rate]): (&Rung, &[String; 2])| {
            let mark = if Some(rung.depth) == self.knee { "  <- knee" } else { "" };
            format!(
                "depth {depth:>depth_width$}  {rate:>rate_width$}  {:BAR$}  {}{mark}",
                bar(rung.operations_per_second, best),
                rung.latency_mean
            )
        };
        self.rungs.iter().zip(&shown).map(line).collect()
    }
}

/// `value` on a scale that ends at `most`.
pub fn bar(value: f64, most: f64) -> String {
    let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    "#".repeat((share * BAR as f64).round() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::units::Seconds;

    #[test]
    fn a_curve_has_its_knee_marked_and_its_best_bar_whole() {
        let rung = |depth, rate| Rung {
            depth,
            operations_per_second: rate,
            latency_mean: Seconds(f64::from(depth) / rate),
        };
        let rungs = vec![rung(1, 100.0), rung(2, 200.0), rung(4, 396.0), rung(16, 400.0)];
        let curve = Curve { name: "reads".into(), rungs, knee: Some(4) };
        assert_eq!(
            curve.lines(),
            [
                "depth  1  100/s  ######                    10 ms",
                "depth  2  200/s  ############              10 ms",
                "depth  4  396/s  ########################  10 ms  <- knee",
                "depth 16  400/s  ########################  40 ms",
            ]
        );
        assert!(Curve::default().lines().is_empty());
    }

    proptest! {
        #[test]
        fn no_bar_is_longer_than_its_place(value in any::<f64>(), most in any::<f64>()) {
            prop_assert!(bar(value, most).len() <= BAR);
        }
    }
}
