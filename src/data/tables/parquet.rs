//! Rows of Parquet files, as the text that a CSV file of the same content would hold.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::cells::{Batch, BatchBuilder, ColumnBuilder, find_columns};
use super::input::{Limits, open};
use crate::error::{Error, Result};

/// Rows that are unpacked at once; few, so that long cells do not fill the memory before they are refused.
const ROWS: usize = 1 << 12;

/// Sends the rows of `path` in batches until the end or until `send` is no longer interested.
///
/// Numbers and booleans become text, whole numbers without a point; times and dates become seconds since 1970; what is
/// null becomes an empty cell.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with the rows of what cannot be read and the column of a type that is no cell.
pub(super) fn read(
    path: &Arc<Path>,
    names: &[String],
    limits: Limits,
    send: &mut dyn FnMut(Batch) -> bool,
) -> Result<()> {
    let (file, size) = open(path)?;
    let damaged = |place: String, fault: String| {
        let help = "the file is damaged or no Parquet file, or its text is not UTF-8; write it again";
        Error::format(&**path, place, "Parquet data", fault, help)
    };
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|fault| damaged("footer".into(), fault.to_string()))?;
    let header: Vec<String> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    let positions = find_columns(path, &header, names)?;
    for (name, &position) in names.iter().zip(&positions) {
        let data_type = builder.schema().field(position).data_type();
        if data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..)) {
            let help = "a column holds text, numbers, booleans or times; flatten the table first";
            let place = format!("column `{name}`");
            return Err(Error::format(&**path, place, "one value per row", data_type.to_string(), help));
        }
    }
    let metadata = builder.metadata();
    // As far as the file says; what it really holds is counted below.
    let promised: i64 = metadata.row_groups().iter().map(|group| group.total_byte_size().max(0)).sum();
    limits.refuse_beyond(path, promised as u64, size)?;
    let total_rows = metadata.file_metadata().num_rows().max(1) as u64;
    let mask = ProjectionMask::roots(builder.parquet_schema(), positions.iter().copied());
    let reader = builder
        .with_projection(mask)
        .with_batch_size(ROWS)
        .build()
        .map_err(|fault| damaged("footer".into(), fault.to_string()))?;

    let mut rows = BatchBuilder::new(path, "row", names);
    let (mut row, mut produced) = (0u64, 0u64);
    for batch in reader {
        let place = || format!("rows {} to {}", row + 1, row + ROWS as u64);
        let batch = batch.map_err(|fault| damaged(place(), fault.to_string()))?;
        for (at, name) in names.iter().enumerate() {
            let Some(array) = batch.column_by_name(name) else { continue };
            let before = rows.columns[at].num_bytes();
            let mut too_long = None;
            let mut cells = 0;
            push_cells(array, &mut rows.columns[at], &mut |cell| {
                cells += 1;
                if cell.len() > super::input::MAX_CELL_BYTES && too_long.is_none() {
                    too_long = Some((row + cells, cell.to_vec()));
                }
                too_long.is_none()
            })
            .map_err(|fault| damaged(format!("{}, column `{name}`", place()), fault.to_string()))?;
            if let Some((row, cell)) = too_long {
                rows.check_cell(at, row, &cell)?;
            }
            produced += (rows.columns[at].num_bytes() - before) as u64;
        }
        limits.refuse_beyond(path, produced, size)?;
        rows.places.extend((row..).take(batch.num_rows()).map(|row| row + 1));
        row += batch.num_rows() as u64;
        let consumed = (u128::from(size) * u128::from(row) / u128::from(total_rows)) as u64;
        if rows.is_full() && !send(rows.take(consumed)?) {
            return Ok(());
        }
    }
    send(rows.take(size)?);
    Ok(())
}

/// Appends the cells of an array as text; `keep` sees each and stops by `false`.
fn push_cells(
    array: &ArrayRef,
    out: &mut ColumnBuilder,
    keep: &mut dyn FnMut(&[u8]) -> bool,
) -> std::result::Result<(), ArrowError> {
    let mut text = String::new();
    let mut push = |cell: &[u8]| {
        let kept = keep(cell);
        if kept {
            out.push(cell);
        }
        kept
    };
    let exact = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |to: &DataType| cast_with_options(array, to, &exact);
    let divisor = match array.data_type() {
        DataType::Float32 | DataType::Float64 => {
            let single = matches!(array.data_type(), DataType::Float32);
            for row in 0..array.len() {
                text.clear();
                if !array.is_null(row) {
                    let (value, shortest) = match single {
                        true => {
                            let value = array.as_primitive::<Float32Type>().value(row);
                            (f64::from(value), format!("{value}"))
                        }
                        false => {
                            let value = array.as_primitive::<Float64Type>().value(row);
                            (value, format!("{value}"))
                        }
                    };
                    if !value.is_nan() {
                        text.push_str(&shortest);
                    }
                }
                if !push(text.as_bytes()) {
                    return Ok(());
                }
            }
            return Ok(());
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let binary = cast(&DataType::LargeBinary)?;
            for cell in binary.as_binary::<i64>() {
                if !push(cell.unwrap_or_default()) {
                    return Ok(());
                }
            }
            return Ok(());
        }
        DataType::Timestamp(TimeUnit::Second, _) => 1,
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => 1_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000_000,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1_000_000_000,
        DataType::Date32 => 0,
        _ => {
            let texts = cast(&DataType::LargeUtf8)?;
            for cell in texts.as_string::<i64>() {
                if !push(cell.unwrap_or_default().as_bytes()) {
                    return Ok(());
                }
            }
            return Ok(());
        }
    };
    let whole = match divisor {
        0 => cast_with_options(&cast(&DataType::Int32)?, &DataType::Int64, &exact)?,
        _ => cast(&DataType::Int64)?,
    };
    for value in whole.as_primitive::<Int64Type>() {
        text.clear();
        if let Some(value) = value {
            let seconds = if divisor == 0 { value * 86_400 } else { value.div_euclid(divisor) };
            // Writing to a string does not fail.
            let _ = write!(text, "{seconds}");
        }
        if !push(text.as_bytes()) {
            return Ok(());
        }
    }
    out.seconds = true;
    Ok(())
}
