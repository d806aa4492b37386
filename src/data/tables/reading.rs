//! Tables read in pieces: one thread finds where they begin and end, all threads make cells of them, and batches of
//! cells come out in the order of the rows.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rayon::prelude::*;

use super::cells::{Batch, Column};
use super::files::TableFile;
use super::input::{Layout, Limits};
use super::{parquet, separated};
use crate::data::Progress;
use crate::error::Result;

/// Bytes of pieces and of their cells that are held at once, at most; what unpacks to more is read batch by batch.
pub(super) const MAX_HELD: u64 = 512 << 20;

/// Reads tables and tells how far it is.
pub(super) struct Reading<'a> {
    pub limits: Limits,
    pub stage: &'static str,
    pub progress: &'a dyn Fn(Progress),
    /// Bytes of this stage that earlier tables had.
    pub done: u64,
    /// Bytes of all tables of this stage.
    pub total: u64,
    /// Bytes of pieces and of their cells that are held at once.
    pub most_held: u64,
}

/// What one thread reads.
enum Piece {
    Text(separated::Piece),
    /// A group of rows of a Parquet file.
    Group(Arc<parquet::Groups>, usize),
}

impl Piece {
    /// Bytes that it takes, about.
    fn size(&self) -> u64 {
        match self {
            Self::Text(piece) => 2 * piece.len() as u64,
            Self::Group(groups, at) => groups.promised(*at),
        }
    }

    /// Its rows, as long as their cells take no more than `most` bytes.
    fn read(self, most: u64) -> Result<Rows> {
        let (groups, at) = match self {
            Self::Text(piece) => return Ok(Rows::All(vec![piece.read()?])),
            Self::Group(groups, at) => (groups, at),
        };
        let (mut batches, mut held, mut is_whole) = (Vec::new(), 0, true);
        groups.read(at, &mut |batch| {
            held += batch.columns.iter().map(|column| column.num_bytes() as u64).sum::<u64>();
            is_whole = held <= most;
            batches.push(batch);
            is_whole
        })?;
        Ok(if is_whole { Rows::All(batches) } else { Rows::TooMany(groups, at) })
    }
}

/// What became of a piece.
enum Rows {
    All(Vec<Batch>),
    /// Its cells take too much room: they are read one batch at a time.
    TooMany(Arc<parquet::Groups>, usize),
}

/// The columns that are read from files, and the others, which a partition gives.
struct Wanted<'a> {
    of_file: Arc<[String]>,
    /// Position among all columns, and the value.
    constant: Vec<(usize, &'a str)>,
}

impl<'a> Wanted<'a> {
    /// A partition says what its rows are: a column of the file with the same name is not read.
    fn of(file: &'a TableFile, names: &[String]) -> Self {
        let value = |name: &String| file.partition.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let constant = names.iter().enumerate().filter_map(|(at, name)| Some((at, value(name)?))).collect();
        Self { of_file: names.iter().filter(|name| value(name).is_none()).cloned().collect(), constant }
    }

    fn complete(&self, batch: &mut Batch) {
        for &(at, value) in &self.constant {
            batch.columns.insert(at, Column::constant(value, batch.num_rows()));
        }
    }
}

/// What the thread that cuts sends: a piece of the file of a number.
type Sent = Result<(usize, Piece)>;

/// Cuts the files one behind another until they end or nobody is interested any more.
fn cut(files: &[TableFile], wanted: &[Wanted], limits: Limits, sender: &SyncSender<Sent>) {
    for (at, (file, wanted)) in files.iter().zip(wanted).enumerate() {
        let send = |piece| sender.send(Ok((at, piece))).is_ok();
        let goes_on = match file.layout {
            Layout::Separated(separator) => {
                separated::cut(&file.path, separator, &wanted.of_file, limits, &mut |piece| send(Piece::Text(piece)))
            }
            Layout::Parquet => parquet::Groups::open(&file.path, &wanted.of_file, limits).map(|groups| {
                let groups = Arc::new(groups);
                (0..groups.len()).all(|at| send(Piece::Group(Arc::clone(&groups), at)))
            }),
        };
        match goes_on {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                // A receiver that hung up has met an error of its own.
                let _ = sender.send(Err(error));
                return;
            }
        }
    }
}

/// The pieces that are there, at least one and at most `most`, as far as they may be held together; `next` keeps the
/// one that was too much.
fn take(pieces: &Receiver<Sent>, next: &mut Option<Sent>, most: usize, most_held: u64) -> Vec<Sent> {
    let size = |sent: &Sent| sent.as_ref().map_or(0, |(_, piece)| piece.size());
    let Some(first) = next.take().or_else(|| pieces.recv().ok()) else { return Vec::new() };
    let mut held = size(&first);
    let mut taken = vec![first];
    while taken.len() < most
        && let Ok(piece) = pieces.try_recv()
    {
        held += size(&piece);
        if held > most_held {
            *next = Some(piece);
            break;
        }
        taken.push(piece);
    }
    taken
}

impl Reading<'_> {
    /// Calls `consume` on all rows of `files`, in their order; only the columns `names` are kept.
    ///
    /// # Errors
    /// Those of the readers and of `consume`.
    pub fn for_each_batch(
        &mut self,
        files: &[TableFile],
        names: &[String],
        mut consume: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<()> {
        let wanted: Vec<Wanted> = files.iter().map(|file| Wanted::of(file, names)).collect();
        let ends: Vec<u64> = files
            .iter()
            .scan(self.done, |end, file| {
                *end += file.bytes;
                Some(*end)
            })
            .collect();
        let Self { limits, stage, total, progress, most_held, .. } = *self;
        let mut finish = |file: usize, mut batch: Batch| {
            wanted[file].complete(&mut batch);
            consume(&batch)?;
            let done = (ends[file] - files[file].bytes + batch.consumed).min(total);
            progress(Progress { stage, done, total });
            Ok(())
        };
        let threads = rayon::current_num_threads();
        std::thread::scope(|scope| {
            // As many pieces wait as are read: memory stays bounded.
            let (sender, pieces) = sync_channel::<Sent>(threads);
            let wanted = &wanted;
            scope.spawn(move || cut(files, wanted, limits, &sender));
            let mut next = None;
            loop {
                let taken = take(&pieces, &mut next, threads, most_held);
                if taken.is_empty() {
                    return Ok(());
                }
                let most = most_held / taken.len() as u64;
                let read = |sent: Sent| sent.and_then(|(file, piece)| Ok((file, piece.read(most)?)));
                let read: Vec<_> = taken.into_par_iter().with_max_len(1).map(read).collect();
                for of_piece in read {
                    let (file, rows) = of_piece?;
                    match rows {
                        Rows::All(batches) => batches.into_iter().try_for_each(|batch| finish(file, batch))?,
                        Rows::TooMany(groups, at) => stream(&groups, at, &mut |batch| finish(file, batch))?,
                    }
                }
            }
        })?;
        self.done = ends.last().copied().unwrap_or(self.done);
        Ok(())
    }
}

/// Reads a group of rows batch by batch.
fn stream(groups: &parquet::Groups, at: usize, consume: &mut dyn FnMut(Batch) -> Result<()>) -> Result<()> {
    let mut refused = Ok(());
    groups.read(at, &mut |batch| {
        refused = consume(batch);
        refused.is_ok()
    })?;
    refused
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::super::files::files_of;
    use super::*;

    /// Lines, rows and an error, if any, of a text table.
    fn cells(name: &str, content: &[u8], columns: &[&str]) -> Result<Vec<(u64, Vec<String>)>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let names: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
        let mut rows = Vec::new();
        let limits = Limits::new(1 << 30);
        let mut reading =
            Reading { limits, stage: "test", progress: &|_| {}, done: 0, total: u64::MAX, most_held: MAX_HELD };
        reading.for_each_batch(&files_of(&[path], limits)?, &names, |batch| {
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
    fn pieces_end_where_rows_do_whatever_cells_hold() {
        // As the table has a cell, and what it means.
        let cells_of = [
            ("\"x\n\ny\"", "x\n\ny"),
            ("", ""),
            ("\"say \"\"7\"\"\"", "say \"7\""),
            ("5\" disk", "5\" disk"),
            ("\u{feff}z", "\u{feff}z"),
            ("\"a,b\r\n\"", "a,b\r\n"),
            ("\"half\" open", "half open"),
        ];
        for (rows, kinds) in [(300_000u64, &cells_of[..]), (300_000, &cells_of[3..5]), (400_000, &cells_of[1..2])] {
            let (mut text, mut line) = ("\u{feff}b,a\n".to_owned(), 2);
            let mut expected = Vec::new();
            for at in 0..rows {
                let (written, meant) = kinds[(at * at % 11) as usize % kinds.len()];
                text += &format!("{written},{at}\n");
                expected.push((line, vec![at.to_string(), meant.to_owned()]));
                line += 1 + written.matches('\n').count() as u64;
                if at % 1000 == 0 {
                    text += "\n";
                    line += 1;
                }
            }
            assert!(text.len() > 2 << 20, "several pieces");
            assert!(cells("t.csv", text.as_bytes(), &["a", "b"]).unwrap() == expected);
            text += "1,2,3\n";
            let error = cells("t.csv", text.as_bytes(), &["a", "b"]).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}: expected 2 cells")), "{error}");
        }
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
        let error = cells("t.csv", &[&b"\xff\xfe"[..], &utf16].concat(), &["a", "b"]).unwrap_err().to_string();
        assert!(error.contains("t.csv: line 1: expected UTF-8 text, found UTF-16 text"), "{error}");
    }
}
