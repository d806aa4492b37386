//! What is wrong with arrays that are no adjacency.

use std::fmt;

/// Why a CSR was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CsrError {
    /// `row_ptr` has no element; it needs one more than there are rows.
    NoRowPtr,
    /// `row_ptr[0]` is not zero.
    FirstNotZero { found: u64 },
    /// `row_ptr` decreases after `row`.
    Decreasing { row: usize, from: u64, to: u64 },
    /// The last `row_ptr` is not the number of entries.
    EdgeCount { row_ptr: u64, col_idx: usize },
    /// Spans with unequal numbers of starts and ends.
    SpanEnds { row_start: usize, row_end: usize },
    /// A span that ends before it starts.
    BackwardSpan { row: usize, start: u64, end: u64 },
    /// A span that ends behind the last entry.
    SpanOutOfRange { row: usize, end: u64, entries: usize },
    /// A list of edges with unequal numbers of ends.
    EdgeEnds { destinations: usize, sources: usize },
    /// A destination id is outside the rows.
    RowOutOfRange { edge: usize, found: u32, num_rows: usize },
    /// A source id of a list of edges is outside the columns.
    SourceOutOfRange { edge: usize, found: u32, num_cols: usize },
    /// A source id is outside the columns.
    ColumnOutOfRange { edge: usize, found: u32, num_cols: usize },
    /// More rows or columns than a 32-bit signed id can name.
    TooManyNodes { found: usize },
    /// A reverse that does not have the sizes of a reverse.
    ReverseMismatch { what: &'static str, forward: usize, reverse: usize },
}

impl fmt::Display for CsrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRowPtr => write!(f, "row_ptr: expected one element more than there are rows, found none"),
            Self::FirstNotZero { found } => write!(f, "row_ptr[0]: expected 0, found {found}"),
            Self::Decreasing { row, from, to } => {
                write!(f, "row_ptr: expected values that do not decrease, found {from} then {to} at row {row}")
            }
            Self::EdgeCount { row_ptr, col_idx } => {
                write!(f, "row_ptr ends at {row_ptr}: expected the number of entries, {col_idx}")
            }
            Self::SpanEnds { row_start, row_end } => {
                write!(f, "row_end: expected as many elements as row_start has, {row_start}, found {row_end}")
            }
            Self::BackwardSpan { row, start, end } => {
                write!(f, "row_end[{row}]: expected at least row_start[{row}], {start}, found {end}")
            }
            Self::SpanOutOfRange { row, end, entries } => {
                write!(f, "row_end[{row}]: expected at most the number of entries, {entries}, found {end}")
            }
            Self::EdgeEnds { destinations, sources } => {
                write!(f, "edges: expected as many sources as destinations, found {sources} and {destinations}")
            }
            Self::RowOutOfRange { edge, found, num_rows } => {
                write!(f, "destination of edge {edge}: expected an id below {num_rows}, found {found}")
            }
            Self::SourceOutOfRange { edge, found, num_cols } => {
                write!(f, "source of edge {edge}: expected an id below {num_cols}, found {found}")
            }
            Self::ColumnOutOfRange { edge, found, num_cols } => {
                write!(f, "col_idx[{edge}]: expected an id below {num_cols}, found {found}")
            }
            Self::TooManyNodes { found } => write!(f, "expected fewer than 2^31 rows and columns, found {found}"),
            Self::ReverseMismatch { what, forward, reverse } => {
                write!(f, "reverse: expected {forward} {what}, found {reverse}")
            }
        }
    }
}

impl std::error::Error for CsrError {}
