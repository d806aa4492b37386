//! A binned feature matrix: what the trees are grown on.

use rayon::prelude::*;

use super::binning::{BinMapper, BinRule, Bins, MAX_CATEGORY};
use super::counter;
use super::feature_names::{check_names, default_names};
use super::matrix::{Matrix, check_columns, check_row_count};
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
///
/// A column of one value, or of nothing but missing values, is kept and never split.
///
/// # Example
/// ```
/// use graphsieve::trees::{BinRule, Dataset, Matrix};
/// // Three rows of two features; NaN is a missing value and gets a bin of its own.
/// let x = [1.0, 5.0, 2.0, f32::NAN, 3.0, 6.0];
/// let rule = BinRule { min_data_in_bin: 1, ..BinRule::default() };
/// let data = Dataset::new(&Matrix::f32(&x, 2)?, &rule)?.with_names(vec!["age".into(), "price".into()])?;
/// assert_eq!((data.rows(), data.features(), &data.names()[1][..]), (3, 2, "price"));
/// let price = &data.columns()[1];
/// assert!(price.bin(0) < price.bin(2) && price.bin(2) < price.bin(1));
/// # Ok::<(), graphsieve::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dataset {
    names: Vec<String>,
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
    /// [`Error::Config`] for a rule out of range; [`Error::Data`] for an empty matrix, an infinite value or a category
    /// number that is too large.
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
        check_row_count(rows)?;
        let row_of = |at: usize| chosen.map_or(at, |rows| rows[at] as usize);
        let sample = sampled(rows, rule);
        let mappers: Vec<BinMapper> = (0..x.cols())
            .into_par_iter()
            .map(|col| {
                let values: Vec<f64> = sample.iter().map(|&at| x.get(row_of(at), col)).collect();
                match rule.categorical.contains(&col) {
                    true => BinMapper::categorical(&values, rule),
                    false => BinMapper::numeric(&values, rule),
                }
            })
            .collect();
        if let Some(col) = mappers.iter().position(|m| m.is_categorical() && m.range.1 > MAX_CATEGORY as f64) {
            return Err(refuse::data(
                format!("categorical feature {col}"),
                format!("categories numbered up to {MAX_CATEGORY}"),
                mappers[col].range.1,
                "number the categories from 0 without gaps",
            ));
        }
        binned(x, rows, row_of, mappers, default_names(x.cols()))
    }

    /// Bins `x` with the bounds of this data set, for validation rows.
    ///
    /// # Errors
    /// [`Error::Data`] when the number of columns differs or a value is infinite.
    pub fn bin_like(&self, x: &Matrix) -> Result<Self> {
        check_columns(x, self.features())?;
        binned(x, x.rows(), |at| at, self.mappers.clone(), self.names.clone())
    }

    /// Names the features, for models and what is printed of them; `Column_0`, `Column_1`, … otherwise.
    ///
    /// # Errors
    /// [`Error::Data`] when there is not one name per feature, or one is empty, there twice, or has white space or one
    /// of `",:[]{}` in it, which LightGBM's text cannot hold.
    pub fn with_names(self, names: Vec<String>) -> Result<Self> {
        check_names(&names, self.features())?;
        Ok(Dataset { names, ..self })
    }

    /// Names of the features.
    pub fn names(&self) -> &[String] {
        &self.names
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

    /// The range or the categories of every feature, as LightGBM writes them.
    pub(super) fn feature_infos(&self) -> Vec<String> {
        let info = |mapper: &BinMapper| match &mapper.bins {
            _ if mapper.num_bin < 2 => "none".to_string(),
            Bins::Numeric(_) => format!("[{:?}:{:?}]", mapper.range.0, mapper.range.1),
            Bins::Categorical { of_bin, .. } => {
                let names: Vec<String> = of_bin.iter().map(|c| c.map_or("-1".into(), |c| c.to_string())).collect();
                names.join(":")
            }
        };
        self.mappers.iter().map(info).collect()
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

/// Rows that are binned at a time: their values stay in cache while they are read column after column.
const BLOCK: usize = 1024;

/// The rows of one block in every output.
struct Block<'a> {
    columns: Vec<Part<'a>>,
    row_major: &'a mut [u8],
    first: usize,
}

enum Part<'a> {
    U8(&'a mut [u8]),
    U16(&'a mut [u16]),
}

fn binned(
    x: &Matrix,
    rows: usize,
    row_of: impl Fn(usize) -> usize + Sync,
    mappers: Vec<BinMapper>,
    names: Vec<String>,
) -> Result<Dataset> {
    let is_narrow = |mapper: &BinMapper| mapper.num_bin <= 256;
    let narrow: Vec<u32> = (0..mappers.len() as u32)
        .filter(|&f| is_narrow(&mappers[f as usize]) && mappers[f as usize].num_bin > 1)
        .collect();
    let stride = narrow.len().next_multiple_of(TILE);
    let mut columns: Vec<Column> = mappers
        .iter()
        .map(|mapper| if is_narrow(mapper) { Column::U8(vec![0; rows]) } else { Column::U16(vec![0; rows]) })
        .collect();
    let mut row_major = vec![0u8; rows * stride];
    let mut lines = row_major.chunks_mut((BLOCK * stride).max(1));
    let mut blocks: Vec<Block> = (0..rows)
        .step_by(BLOCK)
        .map(|first| Block { columns: Vec::new(), row_major: lines.next().unwrap_or_default(), first })
        .collect();
    for column in &mut columns {
        let parts: Box<dyn Iterator<Item = Part>> = match column {
            Column::U8(bins) => Box::new(bins.chunks_mut(BLOCK).map(Part::U8)),
            Column::U16(bins) => Box::new(bins.chunks_mut(BLOCK).map(Part::U16)),
        };
        blocks.iter_mut().zip(parts).for_each(|(block, part)| block.columns.push(part));
    }
    let failed = blocks.into_par_iter().find_map_first(|block| fill(block, x, &row_of, &mappers, stride).err());
    failed.map_or(Ok(()), Err)?;
    Ok(Dataset { names, mappers, columns, rows, narrow, row_major, stride })
}

/// Bins the rows of one block.
fn fill(
    mut block: Block,
    x: &Matrix,
    row_of: &impl Fn(usize) -> usize,
    mappers: &[BinMapper],
    stride: usize,
) -> Result<()> {
    let mut slot = 0;
    for (col, (part, mapper)) in block.columns.iter_mut().zip(mappers).enumerate() {
        let bin = |at: usize| {
            let row = row_of(block.first + at);
            let value = x.get(row, col);
            if value.is_infinite() { Err(infinite(value, row, col)) } else { Ok(mapper.bin(value)) }
        };
        match part {
            Part::U8(bins) => {
                bins.iter_mut().enumerate().try_for_each(|(at, out)| bin(at).map(|bin| *out = bin as u8))?;
                if mapper.num_bin > 1 {
                    let lines = block.row_major.chunks_exact_mut(stride);
                    lines.zip(bins.iter()).for_each(|(line, &bin)| line[slot] = bin);
                    slot += 1;
                }
            }
            Part::U16(bins) => {
                bins.iter_mut().enumerate().try_for_each(|(at, out)| bin(at).map(|bin| *out = bin as u16))?;
            }
        }
    }
    Ok(())
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
