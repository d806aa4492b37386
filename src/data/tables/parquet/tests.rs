//! Every type of Parquet as text, and what is refused.

use std::fs;
use std::path::PathBuf;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use tempfile::TempDir;

use super::*;

/// Writes the only column of a file; called once for every group of rows.
type Column<'a> = &'a dyn Fn(&mut SerializedColumnWriter, usize) -> parquet::errors::Result<usize>;

/// A file of `groups` groups with the column `c` of the given type.
fn file(column: &str, groups: usize, properties: WriterProperties, write: Column) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let end = if column.ends_with('}') { "" } else { ";" };
    let schema = Arc::new(parse_message_type(&format!("message t {{ {column}{end} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(fs::File::create(&path).unwrap(), schema, Arc::new(properties)).unwrap();
    for group in 0..groups {
        let mut rows = writer.next_row_group().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        write(&mut column, group).unwrap();
        column.close().unwrap();
        rows.close().unwrap();
    }
    writer.close().unwrap();
    (dir, path)
}

/// All rows of a file.
fn read(path: &Arc<Path>, names: &[String], limits: Limits, send: &mut dyn FnMut(Batch) -> bool) -> Result<()> {
    let groups = Groups::open(path, &names.into(), limits)?;
    (0..groups.len()).try_for_each(|group| groups.read(group, send))
}

/// The cells of the column `c`, whether they are seconds, and the number of every row.
fn cells(path: &Path) -> Result<(Vec<String>, bool, Vec<u64>)> {
    let (mut cells, mut seconds, mut places) = (Vec::new(), false, Vec::new());
    read(&Arc::from(path), &["c".into()], Limits::new(1 << 30), &mut |batch| {
        cells.extend((0..batch.num_rows()).map(|row| batch.columns[0].get(row).to_owned()));
        seconds |= batch.columns[0].seconds;
        places.extend(batch.places);
        true
    })?;
    Ok((cells, seconds, places))
}

/// The cells of one group without nulls.
fn of<T: DataType>(column: &str, values: &[T::T]) -> (Vec<String>, bool) {
    let write = |writer: &mut SerializedColumnWriter, _| writer.typed::<T>().write_batch(values, None, None);
    let (_dir, path) = file(&format!("required {column}"), 1, WriterProperties::default(), &write);
    let (cells, seconds, places) = cells(&path).unwrap();
    assert!(places.into_iter().eq(1..=values.len() as u64));
    (cells, seconds)
}

fn fixed(bytes: &[u8]) -> FixedLenByteArray {
    ByteArray::from(bytes.to_vec()).into()
}

fn assert_cells((cells, seconds): (Vec<String>, bool), expected: &[&str], is_time: bool) {
    assert_eq!(cells, expected);
    assert_eq!(seconds, is_time, "{expected:?}");
}

#[test]
fn numbers_texts_and_booleans_are_what_a_text_table_would_hold() {
    assert_cells(of::<BoolType>("boolean c", &[true, false]), &["true", "false"], false);
    assert_cells(of::<Int32Type>("int32 c", &[7, i32::MIN]), &["7", "-2147483648"], false);
    assert_cells(of::<Int32Type>("int32 c (INTEGER(8,true))", &[-1, 127]), &["-1", "127"], false);
    assert_cells(of::<Int32Type>("int32 c (INTEGER(32,false))", &[-1, 3]), &["4294967295", "3"], false);
    assert_cells(of::<Int32Type>("int32 c (UINT_16)", &[65_535]), &["65535"], false);
    assert_cells(of::<Int64Type>("int64 c", &[i64::MIN, 0]), &["-9223372036854775808", "0"], false);
    assert_cells(of::<Int64Type>("int64 c (INTEGER(64,false))", &[-1]), &["18446744073709551615"], false);
    assert_cells(of::<FloatType>("float c", &[0.1, 3.0, f32::NAN, -1e-7]), &["0.1", "3", "", "-0.0000001"], false);
    assert_cells(of::<DoubleType>("double c", &[0.1, f64::NAN, 1e21]), &["0.1", "", "1000000000000000000000"], false);
    let texts = ["", "é, \"quoted\"", "x"].map(ByteArray::from);
    for column in ["binary c", "binary c (UTF8)", "binary c (STRING)", "binary c (ENUM)", "binary c (JSON)"] {
        assert_cells(of::<ByteArrayType>(column, &texts), &["", "é, \"quoted\"", "x"], false);
    }
    let halves = [fixed(&half::f16::from_f32(1.5).to_le_bytes()), fixed(&half::f16::NAN.to_le_bytes())];
    assert_cells(of::<FixedLenByteArrayType>("fixed_len_byte_array(2) c (FLOAT16)", &halves), &["1.5", ""], false);
}

#[test]
fn decimals_keep_all_their_digits() {
    assert_cells(of::<Int32Type>("int32 c (DECIMAL(9,2))", &[-5, 12_345, 0]), &["-0.05", "123.45", "0.00"], false);
    assert_cells(of::<Int64Type>("int64 c (DECIMAL(18,0))", &[-7, 10]), &["-7", "10"], false);
    let bytes = [ByteArray::from(vec![0xff, 0x00]), ByteArray::from(vec![0x01, 0x00]), ByteArray::from(vec![0x80])];
    assert_cells(of::<ByteArrayType>("binary c (DECIMAL(10,3))", &bytes), &["-0.256", "0.256", "-0.128"], false);
    let wide = [fixed(&i128::MIN.to_be_bytes()), fixed(&1i128.to_be_bytes())];
    assert_cells(
        of::<FixedLenByteArrayType>("fixed_len_byte_array(16) c (DECIMAL(38,1))", &wide),
        &["-17014118346046923173168730371588410572.8", "0.1"],
        false,
    );
}

#[test]
fn times_are_seconds_since_1970_whatever_their_unit() {
    assert_cells(of::<Int32Type>("int32 c (DATE)", &[1, -1]), &["86400", "-86400"], true);
    for column in
        ["int64 c (TIMESTAMP_MILLIS)", "int64 c (TIMESTAMP(MILLIS,true))", "int64 c (TIMESTAMP(MILLIS,false))"]
    {
        assert_cells(of::<Int64Type>(column, &[1_999, -1]), &["1", "-1"], true);
    }
    assert_cells(of::<Int64Type>("int64 c (TIMESTAMP_MICROS)", &[1_999_999]), &["1"], true);
    assert_cells(of::<Int64Type>("int64 c (TIMESTAMP(NANOS,true))", &[2_000_000_000]), &["2"], true);
    let mut time = Int96::new();
    // 1 January 1970 is day 2,440,588 of the Julian calendar; an hour and a nanosecond of the next day.
    let nanoseconds = 3_600_000_000_001u64;
    time.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, 2_440_589);
    assert_cells(of::<Int96Type>("int96 c", &[time]), &["90000"], true);
    assert_cells(of::<Int32Type>("int32 c (TIME_MILLIS)", &[45_296_789]), &["12:34:56.789"], false);
    assert_cells(of::<Int64Type>("int64 c (TIME(MICROS,true))", &[45_296_000_000]), &["12:34:56"], false);
}

#[test]
fn nulls_are_empty_cells_across_pages_and_groups() {
    // More rows than one batch, in three groups, with pages of few rows, with a dictionary and without.
    const GROUP: usize = 5_000;
    let value = |row: usize| (!row.is_multiple_of(3)).then(|| format!("v{}", row % 700));
    for has_dictionary in [true, false] {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(has_dictionary)
            .set_data_page_row_count_limit(300)
            .set_write_batch_size(100)
            .set_compression(Compression::SNAPPY)
            .set_encoding(Encoding::PLAIN)
            .build();
        let write = |writer: &mut SerializedColumnWriter, group: usize| {
            let cells: Vec<Option<String>> = (group * GROUP..(group + 1) * GROUP).map(value).collect();
            let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
            let present: Vec<ByteArray> = cells.iter().flatten().map(|cell| cell.as_str().into()).collect();
            writer.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None)
        };
        let (_dir, path) = file("optional binary c (UTF8)", 3, properties, &write);
        let (cells, _, places) = cells(&path).unwrap();
        assert!(places.into_iter().eq(1..=3 * GROUP as u64));
        assert!(cells.iter().enumerate().all(|(row, cell)| *cell == value(row).unwrap_or_default()));
    }
    let write =
        |writer: &mut SerializedColumnWriter, _| writer.typed::<Int64Type>().write_batch(&[5], Some(&[0, 1]), None);
    let (_dir, path) = file("optional int64 c", 1, WriterProperties::default(), &write);
    assert_eq!(cells(&path).unwrap().0, ["", "5"]);
}

#[test]
fn what_is_no_cell_is_refused_by_column_and_what_is_damaged_by_rows() {
    let error = |path: &Path| cells(path).unwrap_err().to_string();
    let nothing = WriterProperties::default;
    let text = |writer: &mut SerializedColumnWriter, _| {
        writer.typed::<ByteArrayType>().write_batch(&["a".into()], Some(&[1]), Some(&[0]))
    };
    for (column, found) in [
        ("repeated binary c (UTF8)", "a list"),
        ("optional group c { required binary x; }", "a structure of 1 columns"),
    ] {
        let (_dir, path) = file(column, 1, nothing(), &text);
        let error = error(&path);
        assert!(error.contains("column `c`: expected one value per row, found ") && error.contains(found), "{error}");
        assert!(error.contains("flatten the table"), "{error}");
    }
    let bytes = |writer: &mut SerializedColumnWriter, _| {
        writer.typed::<FixedLenByteArrayType>().write_batch(&[fixed(&[0; 16])], None, None)
    };
    let (_dir, path) = file("required fixed_len_byte_array(16) c (UUID)", 1, nothing(), &bytes);
    assert!(error(&path).contains("found values of the type FIXED_LEN_BYTE_ARRAY"), "{}", error(&path));

    let long = |writer: &mut SerializedColumnWriter, _| {
        let cells = ["short".into(), "x".repeat((1 << 20) + 1).as_str().into()];
        writer.typed::<ByteArrayType>().write_batch(&cells, None, None)
    };
    let (_dir, path) = file("required binary c", 1, nothing(), &long);
    assert!(error(&path).contains("row 2, column `c`: expected a cell of at most 1 MiB"), "{}", error(&path));
    let latin = |writer: &mut SerializedColumnWriter, _| {
        writer.typed::<ByteArrayType>().write_batch(&["a".into(), vec![0xe9u8].into()], None, None)
    };
    let (_dir, path) = file("required binary c", 1, nothing(), &latin);
    assert!(error(&path).contains("row 2, column `c`: expected UTF-8 text"), "{}", error(&path));

    let numbers = |writer: &mut SerializedColumnWriter, _| {
        writer.typed::<Int64Type>().write_batch(&(0..9_000).collect::<Vec<i64>>(), None, None)
    };
    let packed = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
    let (_dir, path) = file("required int64 c", 1, packed, &numbers);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[4..200].fill(0xaa);
    fs::write(&path, damaged).unwrap();
    assert!(error(&path).contains("rows 1 to 4096, column `c`: expected Parquet data"), "{}", error(&path));
    fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    assert!(error(&path).contains("footer"), "{}", error(&path));
}
