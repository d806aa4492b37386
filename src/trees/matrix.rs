//! A borrowed row-major feature matrix.

use super::refuse;
use crate::error::Result;

/// A row-major feature matrix, f32 or f64, that is only borrowed.
///
/// # Example
/// ```
/// let x = graphsieve::trees::Matrix::f32(&[1.0, 2.0, 3.0, 4.0], 2).unwrap();
/// assert_eq!((x.rows(), x.cols(), x.get(1, 0)), (2, 2, 3.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: Values<'a>,
    rows: usize,
    cols: usize,
}

#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
}

impl<'a> Matrix<'a> {
    /// A matrix of `cols` columns over f32 values.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when the length is not a multiple of `cols`.
    pub fn f32(values: &'a [f32], cols: usize) -> Result<Self> {
        Ok(Matrix { rows: rows_of(values.len(), cols)?, cols, values: Values::F32(values) })
    }

    /// A matrix of `cols` columns over f64 values.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when the length is not a multiple of `cols`.
    pub fn f64(values: &'a [f64], cols: usize) -> Result<Self> {
        Ok(Matrix { rows: rows_of(values.len(), cols)?, cols, values: Values::F64(values) })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The value at (`row`, `col`) as f64.
    #[inline]
    pub fn get(&self, row: usize, col: usize) -> f64 {
        match self.values {
            Values::F32(v) => v[row * self.cols + col] as f64,
            Values::F64(v) => v[row * self.cols + col],
        }
    }

    /// Copies `row` as f64 into `out`.
    pub fn row_into(&self, row: usize, out: &mut [f64]) {
        let span = row * self.cols..(row + 1) * self.cols;
        match self.values {
            Values::F32(v) => out.iter_mut().zip(&v[span]).for_each(|(o, &v)| *o = v as f64),
            Values::F64(v) => out.copy_from_slice(&v[span]),
        }
    }
}

fn rows_of(len: usize, cols: usize) -> Result<usize> {
    if cols == 0 || !len.is_multiple_of(cols) {
        return Err(refuse::data(
            "feature matrix",
            format!("a length that is a multiple of {cols} columns (at least one)"),
            format!("{len} values"),
            "pass the matrix row-major and its true number of columns",
        ));
    }
    if len / cols > u32::MAX as usize {
        return Err(refuse::data(
            "feature matrix",
            format!("at most {} rows", u32::MAX),
            len / cols,
            "train on a sample of the rows",
        ));
    }
    Ok(len / cols)
}
