//! A borrowed feature matrix.

use super::refuse;
use crate::error::Result;

/// A feature matrix, f32 or f64, that is only borrowed: row-major, or in [`Parts`] side by side that are.
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
    Parts(&'a Parts<'a>),
}

/// Row-major matrices of f32 that stand side by side.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    rows: usize,
    /// Values and columns of each.
    parts: Vec<(&'a [f32], usize)>,
    /// By column: its part, and its place there.
    columns: Vec<(u32, u32)>,
}

impl<'a> Parts<'a> {
    /// Parts of so many rows, each with its values and number of columns.
    ///
    /// # Panics
    /// For a part of another length.
    pub fn new(rows: usize, parts: impl IntoIterator<Item = (&'a [f32], usize)>) -> Self {
        let parts: Vec<_> = parts.into_iter().collect();
        let mut columns = Vec::new();
        for (at, (values, width)) in (0..).zip(&parts) {
            assert_eq!(values.len(), rows * width, "Parts: expected {rows} rows of {width} columns");
            columns.extend((0..*width as u32).map(|place| (at, place)));
        }
        Self { rows, parts, columns }
    }

    fn get(&self, row: usize, col: usize) -> f64 {
        let (part, place) = self.columns[col];
        let (values, width) = self.parts[part as usize];
        values[row * width + place as usize] as f64
    }
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

    /// The columns of all parts.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) without a column or for too many rows.
    pub fn parts(parts: &'a Parts<'a>) -> Result<Self> {
        let (rows, cols) = (parts.rows, parts.columns.len());
        rows_of(rows * cols, cols)?;
        Ok(Matrix { rows, cols, values: Values::Parts(parts) })
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
            Values::Parts(parts) => parts.get(row, col),
        }
    }

    /// Copies `row` as f64 into `out`.
    pub fn row_into(&self, row: usize, out: &mut [f64]) {
        let span = row * self.cols..(row + 1) * self.cols;
        match self.values {
            Values::F32(v) => out.iter_mut().zip(&v[span]).for_each(|(o, &v)| *o = v as f64),
            Values::F64(v) => out.copy_from_slice(&v[span]),
            Values::Parts(parts) => out.iter_mut().enumerate().for_each(|(col, o)| *o = parts.get(row, col)),
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
    fn parts_are_read_as_one_matrix() {
        let (left, right) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]);
        let parts = Parts::new(2, [(&left[..], 2), (&right[..], 1)]);
        let x = Matrix::parts(&parts).unwrap();
        let mut row = [0.0; 3];
        x.row_into(1, &mut row);
        assert_eq!((x.rows(), x.cols(), x.get(0, 2), row), (2, 3, 5.0, [3.0, 4.0, 6.0]));
        assert!(Matrix::parts(&Parts::new(2, [])).is_err());
    }

    #[test]
    fn rows_are_counted_up_to_what_32_bits_can_number() {
        assert_eq!(rows_of(u32::MAX as usize * 64, 64).unwrap(), u32::MAX as usize);
        let error = rows_of((u32::MAX as usize + 1) * 64, 64).unwrap_err().to_string();
        assert!(error.contains("at most 4294967295 rows") && error.contains("4294967296"), "{error}");
        assert!(rows_of(7, 2).is_err() && rows_of(0, 0).is_err());
        assert_eq!(rows_of(0, 3).unwrap(), 0);
    }
}
