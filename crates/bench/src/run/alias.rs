//! Draws one of n things by weight in constant time: the alias method of Walker (1977), set up as Vose (1991) does.

use fastrand::Rng;

/// The table. Each cell is shared by at most two of the things.
#[derive(Clone, Debug)]
pub(crate) struct Alias {
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Below it, by 2^32: the thing of the cell's own number; else `other`.
    own: u32,
    other: u32,
}

impl Alias {
    /// A table for things numbered as `weights` are. Weights need not sum up to 1. There must be one, and a sum above
    /// zero.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let sum: f64 = weights.iter().sum();
        let n = weights.len() as f64;
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight / sum * n).collect();
        let mut cells: Vec<Cell> =
            (0..weights.len()).map(|at| Cell { own: u32::MAX, other: at as u32 }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&at| shares[at] < 1.0);
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            cells[poor] = Cell { own: (shares[poor] * 2f64.powi(32)) as u32, other: rich as u32 };
            shares[rich] -= 1.0 - shares[poor];
            if shares[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Self { cells }
    }

    /// The number of one of the things.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Rng) -> usize {
        if self.cells.len() == 1 {
            return 0;
        }
        let drawn = random.u64(..);
        let at = (((drawn >> 32) * self.cells.len() as u64) >> 32) as usize;
        let cell = self.cells[at];
        if (drawn as u32) < cell.own { at } else { cell.other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_by_weight() {
        let weights = [5.0, 0.0, 1.0, 14.0, 0.001, 80.0];
        let sum: f64 = weights.iter().sum();
        let alias = Alias::new(&weights);
        let mut random = Rng::with_seed(7);
        let mut counts = [0u32; 6];
        let draws = 1_000_000;
        for _ in 0..draws {
            counts[alias.draw(&mut random)] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            let expected = weight / sum * f64::from(draws);
            // Five standard deviations of a binomial count.
            assert!((f64::from(*count) - expected).abs() <= 5.0 * expected.sqrt() + 1e-9, "{counts:?}");
        }
    }
}
