//! Made-up data for the tests of trees.
#![allow(dead_code, reason = "each test program uses a part of it")]

use graphsieve::trees::{BinRule, Dataset, Matrix};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub struct Made {
    pub values: Vec<f32>,
    pub labels: Vec<f32>,
    pub cols: usize,
}

impl Made {
    /// Column 0 to 2 numeric (column 1 with NaN, column 2 mostly zero), column 3 categorical with 12 categories.
    pub fn mixed(rows: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            let a = rng.random::<f32>() * 4.0 - 2.0;
            let b = if rng.random::<f32>() < 0.2 { f32::NAN } else { rng.random::<f32>() };
            let c = if rng.random::<f32>() < 0.8 { 0.0 } else { rng.random::<f32>() - 0.5 };
            let d = (rng.random::<f32>().powi(2) * 12.0).floor();
            let margin = a + if b.is_nan() { 1.0 } else { -b } + 3.0 * c + if d as i32 % 3 == 0 { 1.0 } else { -0.5 };
            values.extend([a, b, c, d]);
            labels.push((rng.random::<f32>() < 1.0 / (1.0 + (-margin).exp())) as u8 as f32);
        }
        Made { values, labels, cols: 4 }
    }

    pub fn x(&self) -> Matrix<'_> {
        Matrix::f32(&self.values, self.cols).unwrap()
    }

    pub fn row(&self, row: usize) -> Vec<f64> {
        self.values[row * self.cols..][..self.cols].iter().map(|&value| value as f64).collect()
    }

    pub fn data(&self) -> Dataset {
        Dataset::new(&self.x(), &rule()).unwrap()
    }
}

pub fn rule() -> BinRule {
    BinRule { max_bin: 63, categorical: vec![3], ..BinRule::default() }
}

/// Runs `work` on a pool of `threads`.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}
