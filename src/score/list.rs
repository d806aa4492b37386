//! Files of ranked nodes: CSV, JSON and Parquet, which say the same. The column `class` is in lists of node classifiers
//! alone.

use std::io::{self, Write};

use parquet::data_type::ByteArray;

use super::ranking::RankedNode;
use crate::data::parquet_file::{Cells, ParquetFile};

/// Writes a ranking as CSV with a header; what is not known is empty. Probabilities have six digits.
///
/// # Errors
/// What the writer refuses.
pub fn write_csv(ranking: &[RankedNode], classes: bool, out: impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let text = |value: Option<String>| value.unwrap_or_default();
    let mut write = |[rank, node_type, id, class, score, probability, label, known]: [&str; 8]| {
        let class = [class];
        let class = if classes { &class[..] } else { &[] };
        csv.write_record([&[rank, node_type, id], class, &[score, probability, label, known]].concat())
    };
    write(["rank", "type", "id", "class", "score", "probability", "label", "known"])?;
    for node in ranking {
        write([
            &node.rank.to_string(),
            node.node_type,
            &node.id,
            &text(node.class.map(|class| class.to_string())),
            &text(node.score.map(|score| score.to_string())),
            &text(node.probability.map(|probability| format!("{probability:.6}"))),
            &text(node.label.map(|label| label.to_string())),
            node.known.unwrap_or_default(),
        ])?;
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
pub fn write_parquet(ranking: &[RankedNode], classes: bool, out: impl Write + Send) -> io::Result<()> {
    /// Rows of one group.
    const ROWS: usize = 1 << 17;
    let class = "required int32 class (INTEGER(32,false))";
    let label =
        if classes { "optional int32 label (INTEGER(32,false))" } else { "optional int32 label (INTEGER(8,true))" };
    let columns = [
        "required int64 rank (INTEGER(64,false))",
        "required binary type (STRING)",
        "required binary id (STRING)",
        class,
        "optional float score",
        "optional double probability",
        label,
        "optional binary known (STRING)",
    ];
    let columns: Vec<&str> = columns.into_iter().filter(|column| classes || *column != class).collect();
    let mut file = ParquetFile::new(out, &columns).map_err(io::Error::other)?;
    for nodes in ranking.chunks(ROWS) {
        let texts = |of: fn(&RankedNode) -> Option<ByteArray>| Cells::Text(nodes.iter().map(of).collect());
        let numbers = |of: fn(&RankedNode) -> Option<u32>| {
            Cells::Int32(nodes.iter().map(|node| of(node).map(|number| number as i32)).collect())
        };
        let mut cells = vec![
            Cells::Int64(nodes.iter().map(|node| node.rank as i64).collect()),
            texts(|node| Some(node.node_type.into())),
            texts(|node| Some((&*node.id).into())),
        ];
        cells.extend(classes.then(|| numbers(|node| node.class)));
        cells.extend([
            Cells::Float(nodes.iter().map(|node| node.score).collect()),
            Cells::Double(nodes.iter().map(|node| node.probability).collect()),
            numbers(|node| node.label),
            texts(|node| node.known.map(ByteArray::from)),
        ]);
        file.write(&cells).map_err(io::Error::other)?;
    }
    file.finish().map(|_| ()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};

    use super::*;

    fn ranking(classes: bool) -> Vec<RankedNode<'static>> {
        let node = |rank, id: &'static str, score, label, known| RankedNode {
            rank,
            node_type: if rank == 2 { "product" } else { "user" },
            id: Cow::Borrowed(id),
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
        for classes in [false, true] {
            same(classes);
        }
    }

    fn same(classes: bool) {
        let ranking = ranking(classes);
        let header = match classes {
            false => "rank,type,id,score,probability,label,known",
            true => "rank,type,id,class,score,probability,label,known",
        };
        let mut csv = Vec::new();
        write_csv(&ranking, classes, &mut csv).unwrap();
        let text = String::from_utf8(csv.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], header);
        let expected = match classes {
            false => ["1,user,x,1,0.333333,0,training", "3,user,\"c, \"\"d\"\"\",,,,"],
            true => ["1,user,x,7,1,0.333333,300,training", "3,user,\"c, \"\"d\"\"\",21,,,,"],
        };
        assert_eq!([lines[1], lines[3]], expected);
        let mut json = Vec::new();
        write_json(&ranking, &mut json).unwrap();
        let json: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
        assert!(json.iter().all(|node| node.get("class").is_some() == classes));
        let mut parquet = Vec::new();
        write_parquet(&ranking, classes, &mut parquet).unwrap();
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
