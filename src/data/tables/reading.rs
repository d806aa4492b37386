//! Tables read in batches: one thread unpacks and cuts into cells while others make sense of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::cells::Batch;
use super::input::{Layout, Limits, layout_of};
use super::{parquet, separated};
use crate::data::Progress;
use crate::error::{Error, Result};

/// Reads tables and tells how far it is.
pub(super) struct Reading<'a> {
    pub limits: Limits,
    pub stage: &'static str,
    pub progress: &'a dyn Fn(Progress),
    /// Bytes of this stage that earlier tables had.
    pub done: u64,
    /// Bytes of all tables of this stage.
    pub total: u64,
}

impl Reading<'_> {
    /// Calls `consume` on all rows of `files`, in their order; only the columns `names` are kept.
    ///
    /// # Errors
    /// Those of the readers and of `consume`.
    pub fn for_each_batch(
        &mut self,
        files: &[PathBuf],
        names: &[String],
        mut consume: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<()> {
        for path in files {
            let path: Arc<Path> = path.as_path().into();
            let layout = layout_of(&path)?;
            let limits = self.limits;
            let done = self.done;
            std::thread::scope(|scope| {
                // Two batches wait at most: memory stays bounded.
                let (sender, batches) = sync_channel::<Result<Batch>>(2);
                let reader_path = Arc::clone(&path);
                scope.spawn(move || {
                    // A receiver that hung up has met an error of its own.
                    let mut send = |batch| sender.send(Ok(batch)).is_ok();
                    let outcome = match layout {
                        Layout::Separated(separator) => {
                            separated::read(&reader_path, separator, names, limits, &mut send)
                        }
                        Layout::Parquet => parquet::read(&reader_path, names, limits, &mut send),
                    };
                    if let Err(error) = outcome {
                        let _ = sender.send(Err(error));
                    }
                });
                for batch in batches {
                    let batch = batch?;
                    consume(&batch)?;
                    let done = (done + batch.consumed).min(self.total);
                    (self.progress)(Progress { stage: self.stage, done, total: self.total });
                }
                Ok(())
            })?;
            self.done += file_size(&path)?;
        }
        Ok(())
    }
}

/// Bytes of a file.
pub(super) fn file_size(path: &Path) -> Result<u64> {
    fs::metadata(path).map(|metadata| metadata.len()).map_err(|source| Error::io(path, "read", source))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Lines, rows and an error, if any, of a text table.
    fn cells(name: &str, content: &[u8], columns: &[&str]) -> Result<Vec<(u64, Vec<String>)>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let names: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
        let mut rows = Vec::new();
        let limits = Limits::new(1 << 30);
        let mut reading = Reading { limits, stage: "test", progress: &|_| {}, done: 0, total: u64::MAX };
        reading.for_each_batch(&[path], &names, |batch| {
            for (row, &place) in batch.places.iter().enumerate() {
                rows.push((place, batch.columns.iter().map(|column| column.get(row).to_owned()).collect()));
            }
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn lines_are_those_of_the_file_whatever_cells_hold() {
        let text = "\u{feff}a,b,c\n1,\"x\ny\",3\n\n 4 ,\"q\"\"q\",é\r\n";
        let expected = [(2, vec!["3".to_owned(), "1".into()]), (5, vec!["é".into(), " 4 ".into()])];
        assert_eq!(cells("t.csv", text.as_bytes(), &["c", "a"]).unwrap(), expected);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        assert_eq!(cells("t.csv.gz", &packed.finish().unwrap(), &["c", "a"]).unwrap(), expected);
        assert_eq!(cells("t.csv.zst", &zstd::encode_all(text.as_bytes(), 1).unwrap(), &["c", "a"]).unwrap(), expected);
        let tabs = text.replace(',', "\t");
        assert_eq!(cells("t.tsv", tabs.as_bytes(), &["c", "a"]).unwrap(), expected);
    }

    #[test]
    fn more_rows_than_a_batch_keep_their_order() {
        let text: String = std::iter::once("n\n".to_owned()).chain((0..100_000).map(|n| format!("{n}\n"))).collect();
        let rows = cells("t.csv", text.as_bytes(), &["n"]).unwrap();
        assert_eq!(rows.len(), 100_000);
        assert!(
            rows.iter().enumerate().all(|(at, (line, cells))| *line == at as u64 + 2 && cells[0] == at.to_string())
        );
    }

    #[test]
    fn what_is_no_table_is_named_by_file_line_and_column() {
        let long = format!("a,b\n1,{}\n", "x".repeat((1 << 20) + 1));
        let gzip = {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(b"a,b\n1,2\n3,4\n").unwrap();
            packed.finish().unwrap()
        };
        let mut damaged = zstd::encode_all(&b"a,b\n1,2\n"[..], 1).unwrap();
        damaged.truncate(damaged.len() - 4);
        let cases: [(&str, &[u8], &str); 10] = [
            ("t.csv", b"a,b\n1,2\n3\n", "t.csv: line 3: expected 2 cells, as in the header, found a ragged row of 1"),
            ("t.csv", b"a,b\n1,2\n3,4,5\n", "line 3: expected 2 cells"),
            ("t.csv", b"a,b\n1,2\n3,\xe9t\xe9\n", "t.csv: line 3, column `b`: expected UTF-8 text"),
            ("t.csv", long.as_bytes(), "line 2, column `b`: expected a cell of at most 1 MiB, found 1048577 bytes"),
            ("t.csv", b"", "t.csv: file length: expected a table, found 0 bytes"),
            ("t.csv", b"\n\n", "t.csv: line 1: expected a header"),
            (
                "t.csv",
                b"a,B\n1,2\n",
                "header: expected a column `b`, found the columns a, B\n  help: did you mean `B`?",
            ),
            ("t.csv", b"a,b,b\n1,2,3\n", "header: expected one column `b`, found several"),
            ("t.csv.gz", &gzip[..gzip.len() - 9], "t.csv.gz: behind line"),
            ("t.csv.zst", &damaged, "t.csv.zst: behind line"),
        ];
        for (name, content, expected) in cases {
            let error = cells(name, content, &["a", "b"]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks {expected}");
        }
        assert!(cells("t.parquet", b"PAR1 no", &["a"]).unwrap_err().to_string().contains("footer"));
        let utf16: Vec<u8> = "a,b\n1,2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(cells("t.csv", &[&b"\xff\xfe"[..], &utf16].concat(), &["a", "b"]).is_err());
    }
}
