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
    /// [`Error::Data`](crate::Error::Data) when the length is not a multiple of `cols`.
    pub fn f32(values: &'a [f32], cols: usize) -> Result<Self> {
        Ok(Matrix { rows: rows_of(values.len(), cols)?, cols, values: Values::F32(values) })
    }

    /// A matrix of `cols` columns over f64 values.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) when the length is not a multiple of `cols`.
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

/// Refuses a matrix that does not have one column per feature of a model.
pub(super) fn check_columns(x: &Matrix, features: usize) -> Result<()> {
    if x.cols() != features {
        let help = "give the features that the model was fitted on, in their order";
        return Err(refuse::data("feature columns", features, x.cols(), help));
    }
    Ok(())
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
    check_row_count(len / cols)?;
    Ok(len / cols)
}

/// Refuses more rows than can be numbered.
pub(super) fn check_row_count(rows: usize) -> Result<()> {
    if rows > u32::MAX as usize {
        let expected = format!("at most {} rows", u32::MAX);
        return Err(refuse::data("feature matrix", expected, rows, "train on a sample of the rows"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_up_to_what_32_bits_can_number() {
        assert_eq!(rows_of(u32::MAX as usize * 64, 64).unwrap(), u32::MAX as usize);
        let error = rows_of((u32::MAX as usize + 1) * 64, 64).unwrap_err().to_string();
        assert!(error.contains("at most 4294967295 rows") && error.contains("4294967296"), "{error}");
        assert!(rows_of(7, 2).is_err() && rows_of(0, 0).is_err());
        assert_eq!(rows_of(0, 3).unwrap(), 0);
    }
}
