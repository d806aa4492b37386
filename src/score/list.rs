//! Files of ranked nodes: CSV, JSON and Parquet, which say the same.

use std::borrow::Cow;
use std::io::{self, Write};

use parquet::data_type::ByteArray;

use super::ranking::{RankedEnds, RankedNode};
use crate::data::parquet_file::{Cells, ParquetFile};

/// Columns that not every list has.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListColumns {
    /// `src` and `dst`, in lists of data with nodes that are edges of the raw tables.
    pub ends: bool,
    /// `class`, in lists of node classifiers.
    pub classes: bool,
}

impl ListColumns {
    /// The columns that there are, in their order.
    fn of<T>(self, start: [T; 3], ends: [T; 2], class: T, rest: [T; 4]) -> impl Iterator<Item = T> {
        let ends = ends.into_iter().filter(move |_| self.ends);
        let class = std::iter::once(class).filter(move |_| self.classes);
        start.into_iter().chain(ends).chain(class).chain(rest)
    }
}

/// The id of an end of a node, where it has one.
fn end<'a>(node: &'a RankedNode, of: fn(&'a RankedEnds<'a>) -> &'a Option<Cow<'a, str>>) -> Option<&'a str> {
    of(node.ends.as_ref()?).as_deref()
}

/// Writes a ranking as CSV with a header; what is not known is empty. Probabilities have six digits.
///
/// # Errors
/// What the writer refuses.
pub fn write_csv(ranking: &[RankedNode], columns: ListColumns, out: impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let text = |value: Option<String>| value.unwrap_or_default();
    let rest = ["score", "probability", "label", "known"];
    csv.write_record(columns.of(["rank", "type", "id"], ["src", "dst"], "class", rest))?;
    for node in ranking {
        let ends = [end(node, |ends| &ends.src), end(node, |ends| &ends.dst)];
        let start = [&node.rank.to_string(), node.node_type, &node.id];
        csv.write_record(columns.of(
            start,
            ends.map(Option::unwrap_or_default),
            &text(node.class.map(|class| class.to_string())),
            [
                &text(node.score.map(|score| score.to_string())),
                &text(node.probability.map(|probability| format!("{probability:.6}"))),
                &text(node.label.map(|label| label.to_string())),
                node.known.unwrap_or_default(),
            ],
        ))?;
    }
    csv.flush()
}

/// Writes a ranking as a JSON array of objects; what is not known is `null`.
///
/// # Errors
/// What the writer refuses.
pub fn write_json(ranking: &[RankedNode], mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, ranking)?;
    out.write_all(b"\n")
}

/// Writes a ranking as a Parquet file; what is not known is null.
///
/// # Errors
/// What the writer refuses.
pub fn write_parquet(ranking: &[RankedNode], columns: ListColumns, out: impl Write + Send) -> io::Result<()> {
    /// Rows of one group.
    const ROWS: usize = 1 << 17;
    let label = match columns.classes {
        true => "optional int32 label (INTEGER(32,false))",
        false => "optional int32 label (INTEGER(8,true))",
    };
    let schema = columns.of(
        ["required int64 rank (INTEGER(64,false))", "required binary type (STRING)", "required binary id (STRING)"],
        ["optional binary src (STRING)", "optional binary dst (STRING)"],
        "required int32 class (INTEGER(32,false))",
        ["optional float score", "optional double probability", label, "optional binary known (STRING)"],
    );
    let mut file = ParquetFile::new(out, &schema.collect::<Vec<_>>()).map_err(io::Error::other)?;
    for nodes in ranking.chunks(ROWS) {
        let texts = |of: fn(&RankedNode) -> Option<ByteArray>| Cells::Text(nodes.iter().map(of).collect());
        let numbers = |of: fn(&RankedNode) -> Option<u32>| {
            Cells::Int32(nodes.iter().map(|node| of(node).map(|number| number as i32)).collect())
        };
        let cells = columns.of(
            [
                Cells::Int64(nodes.iter().map(|node| node.rank as i64).collect()),
                texts(|node| Some(node.node_type.into())),
                texts(|node| Some((&*node.id).into())),
            ],
            [
                texts(|node| end(node, |ends| &ends.src).map(ByteArray::from)),
                texts(|node| end(node, |ends| &ends.dst).map(ByteArray::from)),
            ],
            numbers(|node| node.class),
            [
                Cells::Float(nodes.iter().map(|node| node.score).collect()),
                Cells::Double(nodes.iter().map(|node| node.probability).collect()),
                numbers(|node| node.label),
                texts(|node| node.known.map(ByteArray::from)),
            ],
        );
        file.write(&cells.collect::<Vec<_>>()).map_err(io::Error::other)?;
    }
    file.finish().map(|_| ()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};

    use super::*;

    fn ranking(columns: ListColumns) -> Vec<RankedNode<'static>> {
        let ListColumns { ends, classes } = columns;
        let node = |rank, id: &'static str, score, label, known| RankedNode {
            rank,
            node_type: if rank == 2 { "product" } else { "user" },
            id: Cow::Borrowed(id),
            // The first is no edge; of the last one end is not known.
            ends: (ends && rank > 1)
                .then(|| RankedEnds { src: Some("A, B".into()), dst: (rank == 2).then(|| "C".into()) }),
            class: classes.then_some(7 * rank as u32),
            score,
            probability: score.map(|score| f64::from(score) / 3.0),
            label: if classes { label } else { label.map(|label| label % 2) },
            known,
            node: 0,
        };
        vec![
            node(1, "x", Some(1.0), Some(300), Some("training")),
            node(2, "b", Some(0.25), Some(1), Some("test")),
            node(3, "c, \"d\"", None, None, None),
        ]
    }

    #[test]
    fn the_three_formats_say_the_same() {
        for (ends, classes) in [(false, false), (false, true), (true, false)] {
            same(ListColumns { ends, classes });
        }
    }

    fn same(columns: ListColumns) {
        let ranking = ranking(columns);
        let (header, expected) = match (columns.ends, columns.classes) {
            (true, _) => (
                "rank,type,id,src,dst,score,probability,label,known",
                ["1,user,x,,,1,0.333333,0,training", "3,user,\"c, \"\"d\"\"\",\"A, B\",,,,,"],
            ),
            (_, false) => (
                "rank,type,id,score,probability,label,known",
                ["1,user,x,1,0.333333,0,training", "3,user,\"c, \"\"d\"\"\",,,,"],
            ),
            (_, true) => (
                "rank,type,id,class,score,probability,label,known",
                ["1,user,x,7,1,0.333333,300,training", "3,user,\"c, \"\"d\"\"\",21,,,,"],
            ),
        };
        let mut csv = Vec::new();
        write_csv(&ranking, columns, &mut csv).unwrap();
        let text = String::from_utf8(csv.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], header);
        assert_eq!([lines[1], lines[3]], expected);
        let mut json = Vec::new();
        write_json(&ranking, &mut json).unwrap();
        let json: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
        assert!(json.iter().all(|node| node.get("class").is_some() == columns.classes));
        let mut parquet = Vec::new();
        write_parquet(&ranking, columns, &mut parquet).unwrap();
        let reader = SerializedFileReader::new(bytes(parquet)).unwrap();
        let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!((rows.len(), rows[0].get_column_iter().count()), (3, header.split(',').count()));
        let shown = |name: &str, row: usize| {
            let (_, field) = rows[row].get_column_iter().find(|(column, _)| *column == name).unwrap();
            match field {
                Field::Str(text) => text.clone(),
                Field::Null => String::new(),
                number => number.to_string(),
            }
        };
        for (row, line) in csv::Reader::from_reader(&csv[..]).records().enumerate() {
            let line = line.unwrap();
            let plain = |value: &serde_json::Value| match value {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            for (at, name) in header.split(',').enumerate() {
                let values = [line[at].to_owned(), plain(&json[row][name]), shown(name, row)];
                match values[0].parse::<f64>() {
                    Ok(number) => values.iter().for_each(|value| {
                        assert!((value.parse::<f64>().unwrap() - number).abs() < 1e-6, "{name}: {values:?}");
                    }),
                    Err(_) => assert!(values.iter().all(|value| *value == values[0]), "{name}: {values:?}"),
                }
            }
        }
    }

    fn bytes(content: Vec<u8>) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        file
    }
}
