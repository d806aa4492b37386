//! Matrices of a MAT file in memory, column by column as MATLAB keeps them.

/// A dense matrix.
pub(super) struct Dense {
    /// Column by column.
    pub values: Vec<f64>,
    pub rows: usize,
}

/// A sparse matrix: the entries of column `j` are at `col_ptr[j]..col_ptr[j + 1]`.
pub(super) struct Sparse {
    pub rows: usize,
    pub cols: usize,
    /// One more than there are columns.
    pub col_ptr: Vec<u32>,
    /// The row of every entry; below `rows`.
    pub row_idx: Vec<u32>,
    pub values: Vec<f64>,
}

impl Sparse {
    /// `(row, column, value)` of every entry that is not zero.
    pub fn entries(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        (0..self.cols)
            .flat_map(move |col| {
                let range = self.col_ptr[col] as usize..self.col_ptr[col + 1] as usize;
                range.map(move |at| (self.row_idx[at], col as u32, self.values[at]))
            })
            .filter(|&(_, _, value)| value != 0.0)
    }
}
