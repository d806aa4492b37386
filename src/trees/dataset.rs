//! A binned feature matrix: what the trees are grown on.

use rayon::prelude::*;

use super::binning::{BinMapper, BinRule};
use super::counter;
use super::matrix::Matrix;
use super::refuse;
use crate::error::{Error, Result};

/// Features that share one pass of the histogram loop; their sums fill a first-level cache of 32 KiB.
pub const TILE: usize = 8;

/// The bins of one feature, one entry per row.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// At most 256 bins.
    U8(Vec<u8>),
    /// More than 256 bins.
    U16(Vec<u16>),
}

impl Column {
    /// The bin of `row`.
    #[inline]
    pub fn bin(&self, row: usize) -> u32 {
        match self {
            Column::U8(bins) => bins[row] as u32,
            Column::U16(bins) => bins[row] as u32,
        }
    }
}

/// A binned feature matrix.
///
/// The columns are the data; the narrow ones (at most 256 bins) are held once more row by row, which is what the
/// histogram loop reads: one cache line per row and 64 features, also when a leaf holds few of the rows.
#[derive(Clone, Debug)]
pub struct Dataset {
    mappers: Vec<BinMapper>,
    columns: Vec<Column>,
    rows: usize,
    /// Features with a narrow column and more than one bin, in order.
    narrow: Vec<u32>,
    /// Row-major bins of `narrow`, padded to whole tiles.
    row_major: Vec<u8>,
    stride: usize,
}

impl Dataset {
    /// Bins every row of `x`; the bounds are found from a sample of all rows.
    ///
    /// # Errors
    /// [`Error::Config`] for a rule out of range; [`Error::Data`] for an empty matrix or an infinite value.
    pub fn new(x: &Matrix, rule: &BinRule) -> Result<Self> {
        Self::from_rows(x, None, rule)
    }

    /// Bins the given rows of `x`, in that order; the bounds are found from them alone.
    ///
    /// # Errors
    /// As [`Dataset::new`], and [`Error::Data`] for a row number out of range.
    pub fn on_rows(x: &Matrix, rows: &[u32], rule: &BinRule) -> Result<Self> {
        Self::from_rows(x, Some(rows), rule)
    }

    fn from_rows(x: &Matrix, chosen: Option<&[u32]>, rule: &BinRule) -> Result<Self> {
        rule.check(x.cols())?;
        if let Some(&row) = chosen.and_then(|rows| rows.iter().find(|&&row| row as usize >= x.rows())) {
            let help = "pass row numbers of the same matrix";
            return Err(refuse::data("training rows", format!("rows below {}", x.rows()), row, help));
        }
        let rows = chosen.map_or(x.rows(), <[u32]>::len);
        if rows == 0 {
            return Err(refuse::data("training rows", "at least one row", 0, "check the split"));
        }
        let row_of = |at: usize| chosen.map_or(at, |rows| rows[at] as usize);
        let sample = sampled(rows, rule);
        let mappers = (0..x.cols())
            .into_par_iter()
            .map(|col| {
                let values: Vec<f64> = sample.iter().map(|&at| x.get(row_of(at), col)).collect();
                match rule.categorical.contains(&col) {
                    true => BinMapper::categorical(&values, rule),
                    false => BinMapper::numeric(&values, rule),
                }
            })
            .collect();
        Self::binned(x, rows, row_of, mappers)
    }

    /// Bins `x` with the bounds of this data set, for validation rows.
    ///
    /// # Errors
    /// [`Error::Data`] when the number of columns differs or a value is infinite.
    pub fn bin_like(&self, x: &Matrix) -> Result<Self> {
        if x.cols() != self.mappers.len() {
            let help = "give the features that the data set was built from";
            return Err(refuse::data("feature columns", self.mappers.len(), x.cols(), help));
        }
        Self::binned(x, x.rows(), |at| at, self.mappers.clone())
    }

    fn binned(
        x: &Matrix,
        rows: usize,
        row_of: impl Fn(usize) -> usize + Sync,
        mappers: Vec<BinMapper>,
    ) -> Result<Self> {
        let columns = mappers
            .par_iter()
            .enumerate()
            .map(|(col, mapper)| {
                let bin = |at: usize| {
                    let value = x.get(row_of(at), col);
                    match value.is_infinite() {
                        true => Err(infinite(value, row_of(at), col)),
                        false => Ok(mapper.bin(value)),
                    }
                };
                Ok(match mapper.num_bin <= 256 {
                    true => Column::U8((0..rows).map(|at| bin(at).map(|b| b as u8)).collect::<Result<_>>()?),
                    false => Column::U16((0..rows).map(|at| bin(at).map(|b| b as u16)).collect::<Result<_>>()?),
                })
            })
            .collect::<Result<Vec<Column>>>()?;
        Ok(Self::from_columns(mappers, columns, rows))
    }

    fn from_columns(mappers: Vec<BinMapper>, columns: Vec<Column>, rows: usize) -> Self {
        let narrow: Vec<u32> = (0..columns.len() as u32)
            .filter(|&f| matches!(columns[f as usize], Column::U8(_)) && mappers[f as usize].num_bin > 1)
            .collect();
        let stride = narrow.len().next_multiple_of(TILE);
        let mut row_major = vec![0u8; rows * stride];
        if stride > 0 {
            // Blocks of rows keep the written lines in cache while the columns are read one after the other.
            const BLOCK: usize = 1024;
            row_major.par_chunks_mut(BLOCK * stride).enumerate().for_each(|(block, out)| {
                for (slot, &feature) in narrow.iter().enumerate() {
                    if let Column::U8(bins) = &columns[feature as usize] {
                        let bins = &bins[block * BLOCK..];
                        out.chunks_exact_mut(stride).zip(bins).for_each(|(line, &bin)| line[slot] = bin);
                    }
                }
            });
        }
        Dataset { mappers, columns, rows, narrow, row_major, stride }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.mappers.len()
    }

    /// The bins of every feature.
    pub fn mappers(&self) -> &[BinMapper] {
        &self.mappers
    }

    /// The binned columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Features that can be split at all, in order.
    pub fn splittable(&self) -> Vec<u32> {
        (0..self.mappers.len() as u32).filter(|&f| self.mappers[f as usize].num_bin > 1).collect()
    }

    pub(crate) fn narrow(&self) -> &[u32] {
        &self.narrow
    }

    pub(crate) fn row_major(&self) -> (&[u8], usize) {
        (&self.row_major, self.stride)
    }
}

/// Row positions that the bounds are found from, ascending; the rows with the smallest draws.
fn sampled(rows: usize, rule: &BinRule) -> Vec<usize> {
    if rows <= rule.sample_rows {
        return (0..rows).collect();
    }
    let mut drawn: Vec<(u64, usize)> = (0..rows).map(|row| (counter::bits(rule.seed, &[row as u64]), row)).collect();
    drawn.select_nth_unstable(rule.sample_rows);
    let mut sample: Vec<usize> = drawn[..rule.sample_rows].iter().map(|d| d.1).collect();
    sample.sort_unstable();
    sample
}

fn infinite(value: f64, row: usize, col: usize) -> Error {
    refuse::data(
        format!("feature {col} at row {row}"),
        "a finite number or NaN",
        value,
        "clip the feature, or write NaN for a value that is not known",
    )
}
