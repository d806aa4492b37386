//! Binned features on the host and sums over them by plain loops.

use graphsieve_kernels::testing::Rng;
use graphsieve_kernels::{BinColumn, BinValues, GradientSum, HistogramBackend, TreeBins};

/// Bins by feature, as wide as they need to be.
pub struct Table {
    narrow: Vec<Vec<u8>>,
    wide: Vec<Vec<u16>>,
    pub num_bin: Vec<u32>,
    pub left_out: Vec<Option<u32>>,
    num_rows: usize,
}

impl Table {
    pub fn random(rng: &mut Rng, num_rows: usize, num_bin: &[u32]) -> Self {
        let mut table = Table { narrow: vec![], wide: vec![], num_bin: num_bin.to_vec(), left_out: vec![], num_rows };
        for &bins in num_bin {
            // Half of the rows share one bin.
            let common = rng.below(bins as usize);
            let mut draw = || if rng.below(2) == 0 { common } else { rng.below(bins as usize) };
            match bins <= 256 {
                true => table.narrow.push((0..num_rows).map(|_| draw() as u8).collect()),
                false => table.wide.push((0..num_rows).map(|_| draw() as u16).collect()),
            }
            table.left_out.push((rng.below(4) > 0).then_some(common as u32));
        }
        table
    }

    pub fn bin(&self, feature: usize, row: usize) -> u32 {
        let before = |wide: bool| self.num_bin[..feature].iter().filter(|&&b| (b > 256) == wide).count();
        match self.num_bin[feature] <= 256 {
            true => self.narrow[before(false)][row].into(),
            false => self.wide[before(true)][row].into(),
        }
    }

    pub fn upload<B: HistogramBackend>(&self, device: &B::Device) -> TreeBins<B> {
        let (mut narrow, mut wide) = (self.narrow.iter(), self.wide.iter());
        let columns: Vec<BinColumn> = self
            .num_bin
            .iter()
            .zip(&self.left_out)
            .map(|(&num_bin, &left_out)| {
                let bins = match num_bin <= 256 {
                    true => BinValues::U8(narrow.next().expect("a narrow column")),
                    false => BinValues::U16(wide.next().expect("a wide column")),
                };
                BinColumn { bins, num_bin, left_out }
            })
            .collect();
        TreeBins::dense(&columns, self.num_rows, device)
    }

    /// The sums of all bins over `rows`.
    pub fn sums(&self, pairs: &[[i32; 2]], rows: &[u32]) -> Vec<GradientSum> {
        let mut sums = Vec::new();
        for feature in 0..self.num_bin.len() {
            let first = sums.len();
            sums.resize(first + self.num_bin[feature] as usize, GradientSum::default());
            for &row in rows {
                sums[first + self.bin(feature, row as usize) as usize] += one(pairs[row as usize]);
            }
        }
        sums
    }

    /// Those without the bins left out.
    pub fn stored(&self, mut sums: Vec<GradientSum>) -> Vec<GradientSum> {
        let mut first = 0;
        for (&bins, left_out) in self.num_bin.iter().zip(&self.left_out) {
            if let Some(bin) = left_out {
                sums[first + *bin as usize] = GradientSum::default();
            }
            first += bins as usize;
        }
        sums
    }
}

pub fn one([grad, hess]: [i32; 2]) -> GradientSum {
    GradientSum { grad: grad.into(), hess: hess.into(), count: 1 }
}

pub fn pairs(rng: &mut Rng, num_rows: usize) -> Vec<[i32; 2]> {
    let draw = |rng: &mut Rng| rng.below((1 << 31) + 1) as i32 - (1 << 30);
    (0..num_rows).map(|_| [draw(rng), draw(rng)]).collect()
}

pub fn total(pairs: &[[i32; 2]], rows: &[u32]) -> GradientSum {
    rows.iter().map(|&row| one(pairs[row as usize])).sum()
}
