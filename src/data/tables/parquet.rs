//! Rows of Parquet files, as the text that a CSV file of the same content would hold.

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chrono::NaiveTime;
use parquet::basic::{Compression, ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::printer::print_schema;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use super::cells::{Batch, BatchBuilder, find_columns};
use super::input::{Limits, open};
use super::thrift;
use crate::error::{Error, Result, caught};

/// Rows that are unpacked at once; few, so that long cells do not fill the memory before they are refused.
const ROWS: usize = 1 << 12;

/// Bytes of a decimal number, and its digits behind the point. Parquet's own types have 38 digits; the time that many
/// take grows as their square.
const MAX_DIGITS: usize = 256;

/// A file whose groups of rows are read one by one, each by any thread.
pub(super) struct Groups {
    path: Arc<Path>,
    size: u64,
    metadata: Arc<ParquetMetaData>,
    /// By name that is asked for: the leaf, and what its values stand for.
    columns: Vec<(usize, Meaning)>,
    names: Arc<[String]>,
    limits: Limits,
    /// Bytes of all cells so far.
    produced: AtomicU64,
}

/// A type of a column, as far as cells depend on it.
#[derive(Debug, Clone)]
pub(super) struct ColumnType {
    meaning: Option<(Physical, Meaning)>,
    shown: String,
}

impl PartialEq for ColumnType {
    fn eq(&self, other: &Self) -> bool {
        self.meaning == other.meaning && (self.meaning.is_some() || self.shown == other.shown)
    }
}

impl Display for ColumnType {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The columns of a file and their types.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for what is no Parquet file.
pub(super) fn columns_of(path: &Path) -> Result<Vec<(String, ColumnType)>> {
    let (metadata, _) = metadata_of(path)?;
    let schema = metadata.file_metadata().schema_descr();
    let of_field = |(position, field): (usize, &Arc<Type>)| {
        let leaf = leaf_of(schema, position).filter(|_| is_flat(field));
        let meaning = leaf.and_then(|leaf| {
            let column = schema.column(leaf);
            Some((column.physical_type(), Meaning::of(&column)?))
        });
        (field.name().to_owned(), ColumnType { meaning, shown: printed(field) })
    };
    Ok(schema.root_schema().get_fields().iter().enumerate().map(of_field).collect())
}

/// A type in Parquet's notation, without name and repetition.
fn printed(field: &Type) -> String {
    let mut text = Vec::new();
    print_schema(&mut text, field);
    let text = String::from_utf8_lossy(&text);
    let words = text.trim().trim_end_matches(';').split_whitespace();
    let is_repetition = |word: &&str| ["REQUIRED", "OPTIONAL"].contains(word);
    words.skip_while(is_repetition).filter(|word| *word != field.name()).collect::<Vec<_>>().join(" ")
}

fn damaged(path: &Path, place: String, fault: ParquetError) -> Error {
    let help = "the file is damaged or no Parquet file, or its text is not UTF-8; write it again";
    Error::format(path, place, "Parquet data", fault.to_string(), help)
}

fn metadata_of(path: &Path) -> Result<(ParquetMetaData, u64)> {
    let (file, size) = open(path)?;
    if thrift::is_endless_footer(&file, size) {
        return Err(damaged(path, "footer".into(), endless()));
    }
    let metadata = unless_it_panics(|| ParquetMetaDataReader::new().parse_and_finish(&file));
    Ok((metadata.map_err(|fault| damaged(path, "footer".into(), fault))?, size))
}

fn endless() -> ParquetError {
    ParquetError::General("a list of truth values, of which Parquet has none".into())
}

/// What the `parquet` crate reads. It panics on some damaged pages.
fn unless_it_panics<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> parquet::errors::Result<T> {
    caught(read).unwrap_or_else(|message| Err(ParquetError::General(message)))
}

/// The first leaf of the column at a position.
fn leaf_of(schema: &SchemaDescriptor, position: usize) -> Option<usize> {
    (0..schema.num_columns()).find(|&leaf| schema.get_column_root_idx(leaf) == position)
}

impl Groups {
    /// Opens a file whose columns `names` are read.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for what is no Parquet file and for the column of a type that is no cell.
    pub fn open(path: &Arc<Path>, names: &Arc<[String]>, limits: Limits) -> Result<Self> {
        let (metadata, size) = metadata_of(path)?;
        let schema = metadata.file_metadata().schema_descr();
        let fields = schema.root_schema().get_fields();
        let header: Vec<String> = fields.iter().map(|field| field.name().to_owned()).collect();
        let mut columns = Vec::with_capacity(names.len());
        for (name, position) in names.iter().zip(find_columns(path, &header, names)?) {
            let leaf = leaf_of(schema, position);
            let meaning = leaf.filter(|_| is_flat(&fields[position]));
            let meaning = meaning.and_then(|leaf| Meaning::of(&schema.column(leaf)));
            let (Some(leaf), Some(meaning)) = (leaf, meaning) else {
                let help = "a column holds text, numbers, booleans or times; flatten the table first";
                let place = format!("column `{name}`");
                return Err(Error::format(&**path, place, "one value per row", shown(&fields[position]), help));
            };
            let of_groups = metadata.row_groups().iter().map(|group| group.column(leaf).compression());
            if let Some(packing) =
                of_groups.into_iter().find(|of| matches!(of, Compression::BROTLI(_) | Compression::LZO))
            {
                let help = "write the file again, for example with compression = \"zstd\"";
                let expected = "a column packed by Zstandard, Snappy, GZIP or LZ4, or as it is";
                return Err(Error::format(&**path, format!("column `{name}`"), expected, packing.to_string(), help));
            }
            columns.push((leaf, meaning));
        }
        // As far as the file says; what it really holds is counted below.
        let promised: i64 = metadata.row_groups().iter().map(|group| group.total_byte_size().max(0)).sum();
        limits.refuse_beyond(path, promised as u64, size)?;
        let (path, names, metadata) = (Arc::clone(path), Arc::clone(names), Arc::new(metadata));
        Ok(Self { path, size, metadata, columns, names, limits, produced: AtomicU64::new(0) })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// Bytes that the columns of a group unpack to, as the file says.
    pub fn promised(&self, group: usize) -> u64 {
        let group = self.metadata.row_group(group);
        self.columns.iter().map(|&(leaf, _)| group.column(leaf).uncompressed_size().max(0) as u64).sum()
    }

    fn rows_before(&self, group: usize) -> u64 {
        self.metadata.row_groups()[..group].iter().map(|group| group.num_rows().max(0) as u64).sum()
    }

    /// Sends the rows of a group in batches until its end or until `send` is no longer interested.
    ///
    /// Numbers and booleans become text, whole numbers without a point; times and dates become seconds since 1970; what
    /// is null becomes an empty cell. Types are those of Parquet: what Arrow's own schema in the metadata adds is not
    /// read.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] with the rows of what cannot be read.
    pub fn read(&self, group: usize, send: &mut dyn FnMut(Batch) -> bool) -> Result<()> {
        let Self { path, size, names, .. } = self;
        let damaged = |place: String, fault: ParquetError| damaged(path, place, fault);
        let place = |row: u64, name: &str| format!("rows {} to {}, column `{name}`", row + 1, row + ROWS as u64);
        // A handle of its own: threads do not share a position.
        let file = Arc::new(open(path)?.0);
        let total_rows = self.metadata.file_metadata().num_rows().max(1) as u64;
        let schema = self.metadata.file_metadata().schema_descr();
        let mut row = self.rows_before(group);
        let group = self.metadata.row_group(group);
        let mut left = group.num_rows().max(0) as usize;
        let mut readers = Vec::with_capacity(self.columns.len());
        for (&(leaf, _), name) in self.columns.iter().zip(names.iter()) {
            let pages = unless_it_panics(|| {
                let (start, length) = group.column(leaf).byte_range();
                match thrift::has_endless_page(&file, start, length) {
                    true => Err(endless()),
                    false => SerializedPageReader::new(Arc::clone(&file), group.column(leaf), left, None),
                }
            });
            let pages = pages.map_err(|fault| damaged(place(row, name), fault))?;
            readers.push(get_column_reader(schema.column(leaf), Box::new(pages)));
        }
        let mut rows = BatchBuilder::new(path, "row", names);
        let mut consumed = (u128::from(*size) * u128::from(row) / u128::from(total_rows)) as u64;
        while left > 0 {
            let wanted = left.min(ROWS);
            let mut produced = 0;
            for (at, (reader, (_, meaning))) in readers.iter_mut().zip(&self.columns).enumerate() {
                let before = rows.columns[at].num_bytes();
                rows.columns[at].seconds |= meaning.is_time();
                let mut number = row;
                let read = push_cells(reader, *meaning, wanted, &mut |cell| {
                    number += 1;
                    rows.check_cell(at, number, cell)?;
                    rows.columns[at].push(cell);
                    Ok(())
                })?;
                read.and_then(|read| match read == wanted {
                    true => Ok(()),
                    false => Err(ParquetError::EOF(format!("the column ends behind row {}", row + read as u64))),
                })
                .map_err(|fault| damaged(place(row, &names[at]), fault))?;
                produced += (rows.columns[at].num_bytes() - before) as u64;
            }
            let produced = self.produced.fetch_add(produced, Relaxed) + produced;
            self.limits.refuse_beyond(path, produced, *size)?;
            rows.places.extend((row + 1..).take(wanted));
            row += wanted as u64;
            left -= wanted;
            consumed = (u128::from(*size) * u128::from(row) / u128::from(total_rows)) as u64;
            if rows.is_full() && !send(rows.take(consumed)?) {
                return Ok(());
            }
        }
        if !rows.places.is_empty() {
            send(rows.take(consumed)?);
        }
        Ok(())
    }
}

/// Whether a column has at most one value per row.
fn is_flat(field: &Type) -> bool {
    let info = field.get_basic_info();
    field.is_primitive() && (!info.has_repetition() || info.repetition() != parquet::basic::Repetition::REPEATED)
}

/// A type as an error shows it.
fn shown(field: &Type) -> String {
    match (is_flat(field), field.get_basic_info().converted_type()) {
        (true, _) => format!("values of the type {}", field.get_physical_type()),
        (_, ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE) => "a map".into(),
        (_, ConvertedType::LIST) => "a list".into(),
        _ if field.is_primitive() => "a list".into(),
        _ => format!("a structure of {} columns", field.get_fields().len()),
    }
}

/// What the values of a column stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// As the physical type says: booleans, signed and floating point numbers, bytes of text, Impala's 96 bits of a
    /// time.
    Plain,
    Impala,
    Unsigned,
    /// A number with so many digits behind the point.
    Decimal(usize),
    Half,
    /// Days since 1970.
    Date,
    /// So many per second since 1970.
    Instant(i64),
    /// So many per second since midnight.
    TimeOfDay(i64),
}

impl Meaning {
    /// `None` for what is no cell.
    fn of(column: &ColumnDescriptor) -> Option<Self> {
        let per_second = |unit: &TimeUnit| match unit {
            TimeUnit::MILLIS => 1_000,
            TimeUnit::MICROS => 1_000_000,
            TimeUnit::NANOS => 1_000_000_000,
        };
        let scale = || usize::try_from(column.type_scale()).ok().filter(|&scale| scale <= MAX_DIGITS);
        let decimal = || scale().map(Self::Decimal);
        // Old files have converted types only.
        let named = match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) => decimal()?,
            (Some(LogicalType::Integer(kind)), _) if !kind.is_signed => Self::Unsigned,
            (
                None,
                ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64,
            ) => Self::Unsigned,
            (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Self::Date,
            (Some(LogicalType::Timestamp(time)), _) => Self::Instant(per_second(&time.unit)),
            (None, ConvertedType::TIMESTAMP_MILLIS) => Self::Instant(1_000),
            (None, ConvertedType::TIMESTAMP_MICROS) => Self::Instant(1_000_000),
            (Some(LogicalType::Time(time)), _) => Self::TimeOfDay(per_second(&time.unit)),
            (None, ConvertedType::TIME_MILLIS) => Self::TimeOfDay(1_000),
            (None, ConvertedType::TIME_MICROS) => Self::TimeOfDay(1_000_000),
            (Some(LogicalType::Float16), _) => Self::Half,
            _ => Self::Plain,
        };
        match (column.physical_type(), named) {
            (Physical::INT32 | Physical::INT64, Self::Half) => None,
            (Physical::INT32 | Physical::INT64, _) => Some(named),
            (Physical::INT96, _) => Some(Self::Impala),
            (Physical::BYTE_ARRAY, Self::Plain | Self::Decimal(_)) => Some(named),
            (Physical::FIXED_LEN_BYTE_ARRAY, Self::Half) if column.type_length() == 2 => Some(named),
            (Physical::FIXED_LEN_BYTE_ARRAY, Self::Decimal(_)) => Some(named),
            (Physical::BOOLEAN | Physical::FLOAT | Physical::DOUBLE, _) => Some(Self::Plain),
            _ => None,
        }
    }

    /// Whether the cells are seconds since 1970.
    fn is_time(self) -> bool {
        matches!(self, Self::Date | Self::Instant(_) | Self::Impala)
    }

    /// Writes a whole number of the physical type, extended to 64 bits by its sign or by zeros.
    fn write_whole(self, text: &mut String, signed: i64, unsigned: u64) {
        match self {
            Self::Unsigned => write(text, unsigned),
            Self::Decimal(scale) => write_decimal(text, &signed.to_be_bytes(), scale),
            // A date that leaves the range is one of the wrong unit, and refused as such.
            Self::Date => write(text, signed.saturating_mul(86_400)),
            Self::Instant(per_second) => write(text, signed.div_euclid(per_second)),
            Self::TimeOfDay(per_second) => {
                let nanoseconds = signed.rem_euclid(per_second) * (1_000_000_000 / per_second);
                let seconds = u32::try_from(signed.div_euclid(per_second)).unwrap_or(u32::MAX);
                match NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanoseconds as u32) {
                    Some(time) => write(text, time),
                    // No time of a day: the number says why.
                    None => write(text, signed),
                }
            }
            Self::Plain | Self::Half | Self::Impala => write(text, signed),
        }
    }

    /// Writes the bytes of a decimal number or of a half.
    fn write_bytes(self, text: &mut String, bytes: &[u8]) {
        match (self, bytes) {
            (Self::Half, &[low, high]) => write_float(text, half::f16::from_le_bytes([low, high]).to_f32()),
            (Self::Decimal(scale), _) if bytes.len() <= MAX_DIGITS => write_decimal(text, bytes, scale),
            // The text says why it is no number.
            (Self::Decimal(_), _) => write(text, format_args!("a number of {} bytes", bytes.len())),
            _ => {}
        }
    }
}

/// Writing to a string does not fail.
fn write(text: &mut String, value: impl Display) {
    let _ = write!(text, "{value}");
}

/// What is no number is an empty cell.
fn write_float<T: Display + Copy + Into<f64>>(text: &mut String, value: T) {
    if !value.into().is_nan() {
        write(text, value);
    }
}

/// A number in two's complement, the highest byte first, with `scale` digits behind the point.
fn write_decimal(text: &mut String, bytes: &[u8], scale: usize) {
    let is_negative = bytes.first().is_some_and(|&high| high >= 0x80);
    // The size: the bytes of a negative number are inverted, and one is added.
    let mut size = bytes.to_vec();
    if is_negative {
        size.iter_mut().for_each(|byte| *byte = !*byte);
        for byte in size.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
    }
    let mut digits = Vec::new();
    while size.iter().any(|&byte| byte != 0) || digits.len() <= scale {
        let mut rest = 0u32;
        for byte in &mut size {
            let value = rest * 256 + u32::from(*byte);
            (*byte, rest) = ((value / 10) as u8, value % 10);
        }
        digits.push(char::from(b'0' + rest as u8));
    }
    if is_negative {
        text.push('-');
    }
    let (fraction, whole) = digits.split_at(scale);
    text.extend(whole.iter().rev());
    if scale > 0 {
        text.push('.');
        text.extend(fraction.iter().rev());
    }
}

/// What reading gave, or why it stopped, beside an error of whoever looked at the cells.
type Read = Result<std::result::Result<usize, ParquetError>>;

/// Hands the next `rows` cells to `push` as text, and returns how many there were.
fn push_cells(
    reader: &mut ColumnReader,
    meaning: Meaning,
    rows: usize,
    push: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Read {
    use ColumnReader as R;
    match reader {
        R::BoolColumnReader(reader) => texts(reader, rows, push, |text, value| write(text, value)),
        R::Int32ColumnReader(reader) => texts(reader, rows, push, |text, &value| {
            meaning.write_whole(text, i64::from(value), u64::from(value as u32));
        }),
        R::Int64ColumnReader(reader) => {
            texts(reader, rows, push, |text, &value| meaning.write_whole(text, value, value as u64))
        }
        R::Int96ColumnReader(reader) => texts(reader, rows, push, |text, value| write(text, value.to_seconds())),
        R::FloatColumnReader(reader) => texts(reader, rows, push, |text, &value| write_float(text, value)),
        R::DoubleColumnReader(reader) => texts(reader, rows, push, |text, &value| write_float(text, value)),
        R::ByteArrayColumnReader(reader) if meaning == Meaning::Plain => {
            for_each(reader, rows, |bytes| push(bytes.map_or(&[], |bytes| bytes.data())))
        }
        R::ByteArrayColumnReader(reader) => {
            texts(reader, rows, push, |text, bytes| meaning.write_bytes(text, bytes.data()))
        }
        R::FixedLenByteArrayColumnReader(reader) => {
            texts(reader, rows, push, |text, bytes| meaning.write_bytes(text, bytes.data()))
        }
    }
}

/// [`for_each`] with the text that `write` makes of values; of a null it is empty.
fn texts<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    push: &mut dyn FnMut(&[u8]) -> Result<()>,
    write: impl Fn(&mut String, &T::T),
) -> Read {
    let mut text = String::new();
    for_each(reader, rows, |value| {
        text.clear();
        if let Some(value) = value {
            write(&mut text, value);
        }
        push(text.as_bytes())
    })
}

/// Calls `see` on the next values, at most `rows`, and returns how many there were.
fn for_each<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    mut see: impl FnMut(Option<&T::T>) -> Result<()>,
) -> Read {
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
    let records = match unless_it_panics(|| reader.read_records(rows, Some(&mut levels), None, &mut values)) {
        Ok((records, ..)) => records,
        Err(fault) => return Ok(Err(fault)),
    };
    if levels.is_empty() {
        // A column without nulls has no levels.
        values.iter().take(records).try_for_each(|value| see(Some(value)))?;
        return Ok(Ok(values.len().min(records)));
    }
    let mut present = values.iter();
    for &level in levels.iter().take(records) {
        see(if level > 0 { present.next() } else { None })?;
    }
    Ok(Ok(levels.len().min(records)))
}

#[cfg(test)]
mod tests;
