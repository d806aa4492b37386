//! Parquet files, written some rows at a time.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

/// The cells of one column for some rows; `None` in columns that are optional.
pub(crate) enum Cells {
    Text(Vec<Option<ByteArray>>),
    Int32(Vec<Option<i32>>),
    Int64(Vec<i64>),
    Float(Vec<Option<f32>>),
    Double(Vec<Option<f64>>),
}

/// Writes rows as Parquet, packed by Zstandard.
pub(crate) struct ParquetFile<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> ParquetFile<W> {
    /// `columns` in Parquet's notation: `required binary id (STRING)`, one per column.
    pub fn new(out: W, columns: &[&str]) -> Result<Self> {
        let schema = parse_message_type(&format!("message table {{ {}; }}", columns.join("; ")))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(Default::default()))
            .set_created_by(concat!("graphsieve ", env!("CARGO_PKG_VERSION")).into())
            .build();
        Ok(Self(SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?))
    }

    /// Writes rows as a group of their own; one entry of `columns` per column of the file, all of one length.
    pub fn write(&mut self, columns: &[Cells]) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        let mut columns = columns.iter();
        while let Some(mut writer) = group.next_column()? {
            match columns.next().expect("cells for every column") {
                Cells::Text(cells) => write_nullable::<ByteArrayType>(&mut writer, cells)?,
                Cells::Int64(cells) => writer.typed::<Int64Type>().write_batch(cells, None, None)?,
                Cells::Int32(cells) => write_nullable::<Int32Type>(&mut writer, cells)?,
                Cells::Float(cells) => write_nullable::<FloatType>(&mut writer, cells)?,
                Cells::Double(cells) => write_nullable::<DoubleType>(&mut writer, cells)?,
            };
            writer.close()?;
        }
        group.close().map(|_| ())
    }

    /// Writes the footer.
    pub fn finish(self) -> Result<W> {
        self.0.into_inner()
    }
}

fn write_nullable<T: DataType>(writer: &mut SerializedColumnWriter, cells: &[Option<T::T>]) -> Result<usize> {
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let present: Vec<T::T> = cells.iter().flatten().cloned().collect();
    writer.typed::<T>().write_batch(&present, Some(&levels), None)
}
