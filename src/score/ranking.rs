//! Scores in the terms of the data: nodes by original id, from the most to the least suspicious.

use std::borrow::Cow;
use std::io::{self, Write};

use parquet::data_type::ByteArray;
use rayon::prelude::*;
use serde::Serialize;

use crate::data::parquet_file::{Cells, ParquetFile};
use crate::data::split::{Part, Split};
use crate::error::{Error, Result, nearest_name};
use crate::graph::Dataset;
use crate::metrics::Calibration;

/// One line of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedNode<'a> {
    /// From 1, among the nodes that are listed.
    pub rank: u64,
    /// Name of the node type.
    #[serde(rename = "type")]
    pub node_type: &'a str,
    /// The id of the raw data; the number within the type, from 0, where nodes have no ids.
    pub id: Cow<'a, str>,
    /// None where the stage has no score for the node: such nodes come last.
    pub score: Option<f32>,
    /// None without a calibration.
    pub probability: Option<f64>,
    /// 1 anomalous, 0 normal, none unknown.
    pub label: Option<u8>,
    /// The part of its run's labels that the label was in: `training` and `validation` were used to make the model,
    /// `test` was not. None without a label, and for labels that the run did not have.
    pub known: Option<&'static str>,
    /// Global id.
    #[serde(skip)]
    pub node: u32,
}

/// Which nodes a ranking lists.
#[derive(Clone, Debug, Default)]
pub struct RankingFilter {
    /// At most so many.
    pub top: Option<usize>,
    /// Of one type only.
    pub node_type: Option<String>,
    /// Only nodes that have no label in the data.
    pub unlabelled: bool,
}

/// Nodes by descending score; equal scores by id, then by type, so that the order never depends on anything else.
/// `split` is how the run that gave the scores divided the labels of these data.
///
/// # Errors
/// [`Error::Usage`] for a type that the graph does not have.
///
/// # Panics
/// When there is not one score per node.
pub fn rank<'a>(
    dataset: &'a Dataset,
    scores: &[f32],
    calibration: Option<&Calibration>,
    split: Option<&Split>,
    filter: &RankingFilter,
) -> Result<Vec<RankedNode<'a>>> {
    let graph = &dataset.graph;
    assert_eq!(scores.len(), graph.num_nodes(), "one score per node");
    let types = graph.node_types();
    let listed = match &filter.node_type {
        None => 0..graph.num_nodes() as u32,
        Some(name) => {
            let known = || types.iter().map(|of_type| of_type.name.as_str());
            let found = types.iter().find(|of_type| of_type.name == *name).ok_or_else(|| Error::Usage {
                argument: format!("--node-type {name}"),
                expected: format!("a node type of the data: {}", known().collect::<Vec<_>>().join(", ")),
                found: format!("`{name}`"),
                help: match nearest_name(name, known()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => "leave it out for all types".into(),
                },
            })?;
            found.offset as u32..(found.offset + found.count) as u32
        }
    };
    let id = |node: u32| match &dataset.ids {
        Some(ids) => Cow::Borrowed(ids.get(node as usize).unwrap_or_default()),
        None => Cow::Owned((node as usize - types[graph.type_of(node as usize)].offset).to_string()),
    };
    let mut labels = vec![None; if dataset.labels.is_some() { scores.len() } else { 0 }];
    for &(node, label) in dataset.labels.iter().flat_map(|labels| &labels.entries) {
        labels[node as usize] = Some(label);
    }
    let label = |node: u32| labels.get(node as usize).copied().flatten();
    let mut order: Vec<u32> = listed.filter(|&node| !filter.unlabelled || label(node).is_none()).collect();
    let descending = |&a: &u32, &b: &u32| {
        let [score_a, score_b] = [a, b].map(|node| scores[node as usize]);
        score_a
            .is_nan()
            .cmp(&score_b.is_nan())
            .then(score_b.partial_cmp(&score_a).unwrap_or(std::cmp::Ordering::Equal))
            .then_with(|| id(a).cmp(&id(b)))
            .then(a.cmp(&b))
    };
    // Of many nodes only those that are asked for are put in order.
    if let Some(top) = filter.top.filter(|&top| top > 0 && top < order.len()) {
        order.select_nth_unstable_by(top - 1, descending);
    }
    order.truncate(filter.top.unwrap_or(usize::MAX));
    order.par_sort_unstable_by(descending);
    let line = |(at, node): (usize, u32)| {
        let score = scores[node as usize];
        RankedNode {
            rank: at as u64 + 1,
            node_type: &types[graph.type_of(node as usize)].name,
            id: id(node),
            score: Some(score).filter(|score| !score.is_nan()),
            probability: calibration.and_then(|calibration| calibration.probability(score)),
            label: label(node),
            known: split.and_then(|split| split.part_of(node)).map(Part::name),
            node,
        }
    };
    Ok(order.into_iter().enumerate().map(line).collect())
}

/// Writes a ranking as CSV with a header; what is not known is empty. Probabilities have six digits.
///
/// # Errors
/// What the writer refuses.
pub fn write_csv(ranking: &[RankedNode], out: impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["rank", "type", "id", "score", "probability", "label", "known"])?;
    let text = |value: Option<String>| value.unwrap_or_default();
    for node in ranking {
        csv.write_record([
            &node.rank.to_string(),
            node.node_type,
            &node.id,
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
pub fn write_parquet(ranking: &[RankedNode], out: impl Write + Send) -> io::Result<()> {
    /// Rows of one group.
    const ROWS: usize = 1 << 17;
    let columns = [
        "required int64 rank (INTEGER(64,false))",
        "required binary type (STRING)",
        "required binary id (STRING)",
        "optional float score",
        "optional double probability",
        "optional int32 label (INTEGER(8,true))",
        "optional binary known (STRING)",
    ];
    let mut file = ParquetFile::new(out, &columns).map_err(io::Error::other)?;
    for nodes in ranking.chunks(ROWS) {
        let texts = |of: fn(&RankedNode) -> Option<ByteArray>| Cells::Text(nodes.iter().map(of).collect());
        let cells = [
            Cells::Int64(nodes.iter().map(|node| node.rank as i64).collect()),
            texts(|node| Some(node.node_type.into())),
            texts(|node| Some((&*node.id).into())),
            Cells::Float(nodes.iter().map(|node| node.score).collect()),
            Cells::Double(nodes.iter().map(|node| node.probability).collect()),
            Cells::Int32(nodes.iter().map(|node| node.label.map(i32::from)).collect()),
            texts(|node| node.known.map(ByteArray::from)),
        ];
        file.write(&cells).map_err(io::Error::other)?;
    }
    file.finish().map(|_| ()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};

    use super::*;
    use crate::graph::{HeteroGraph, IdMaps, Labels};

    /// Users b, a, "c, \"d\"" and products x, b.
    fn dataset(ids: bool) -> Dataset {
        let graph = HeteroGraph::new(vec![("user".into(), 3), ("product".into(), 2)], Vec::new()).unwrap();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let ids = ids.then(|| IdMaps(vec![names(&["b", "a", "c, \"d\""]), names(&["x", "b"])]));
        Dataset::new(graph, None, Some(Labels { entries: vec![(4, 1), (0, 0)] }), ids)
    }

    fn names<'a>(ranking: &'a [RankedNode]) -> Vec<(&'a str, &'a str)> {
        ranking.iter().map(|node| (node.node_type, &*node.id)).collect()
    }

    #[test]
    fn equal_scores_go_by_id_then_by_type_and_nodes_without_a_score_come_last() {
        let data = dataset(true);
        let scores = [0.5, 0.5, f32::NAN, 0.9, 0.5];
        let ranking = rank(&data, &scores, None, None, &RankingFilter::default()).unwrap();
        let expected = [("product", "x"), ("user", "a"), ("user", "b"), ("product", "b"), ("user", "c, \"d\"")];
        assert_eq!(names(&ranking), expected);
        assert_eq!(ranking.iter().map(|node| node.label).collect::<Vec<_>>(), [None, None, Some(0), Some(1), None]);
        assert_eq!((ranking[4].score, ranking[4].rank), (None, 5));
        for top in 0..6 {
            let filter = RankingFilter { top: Some(top), ..Default::default() };
            let fewer = rank(&data, &scores, None, None, &filter).unwrap();
            assert_eq!(fewer, ranking[..top.min(5)], "the first {top}");
        }
    }

    #[test]
    fn one_type_is_ranked_among_itself() {
        let data = dataset(false);
        let filter = RankingFilter { node_type: Some("product".into()), ..Default::default() };
        let ranking = rank(&data, &[0.1, 0.2, 0.3, 0.4, 0.5], None, None, &filter).unwrap();
        assert_eq!(names(&ranking), [("product", "1"), ("product", "0")]);
        assert_eq!(ranking[0].rank, 1);
        let filter = RankingFilter { node_type: Some("prodct".into()), ..Default::default() };
        let error = rank(&data, &[0.0; 5], None, None, &filter).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("did you mean product?"), "{error}");
    }

    #[test]
    fn labelled_nodes_are_left_out_and_the_part_of_their_label_is_told() {
        let data = dataset(true);
        let split = Split { train: vec![(0, 0)], validation: Vec::new(), test: vec![(4, 1)] };
        let scores = [0.5, 0.4, 0.3, 0.2, 0.1];
        let ranking = rank(&data, &scores, None, Some(&split), &RankingFilter::default()).unwrap();
        let known: Vec<_> = ranking.iter().map(|node| node.known).collect();
        assert_eq!(known, [Some("training"), None, None, None, Some("test")]);
        let filter = RankingFilter { unlabelled: true, top: Some(2), ..Default::default() };
        let ranking = rank(&data, &scores, None, Some(&split), &filter).unwrap();
        assert_eq!(names(&ranking), [("user", "a"), ("user", "c, \"d\"")]);
        assert_eq!((ranking[0].rank, ranking[0].known), (1, None));
    }

    #[test]
    fn the_three_formats_say_the_same() {
        let data = dataset(true);
        let calibration = Calibration::fit(&[0.25, 0.75], &[0, 1]).unwrap();
        let scores = [0.25, 0.75, f32::NAN, 1.0, 0.0];
        let split = Split { train: vec![(0, 0)], validation: Vec::new(), test: vec![(4, 1)] };
        let ranking = rank(&data, &scores, Some(&calibration), Some(&split), &RankingFilter::default()).unwrap();

        let mut csv = Vec::new();
        write_csv(&ranking, &mut csv).unwrap();
        let text = String::from_utf8(csv.clone()).unwrap();
        assert!(text.starts_with("rank,type,id,score,probability,label,known\n1,product,x,1,0."), "{text}");
        assert!(text.ends_with("5,user,\"c, \"\"d\"\"\",,,,\n") && text.contains(",0,training\n"), "{text}");
        let mut json = Vec::new();
        write_json(&ranking, &mut json).unwrap();
        let json: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
        let mut parquet = Vec::new();
        write_parquet(&ranking, &mut parquet).unwrap();
        let reader = SerializedFileReader::new(bytes(parquet)).unwrap();
        let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 5);
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
            for (at, name) in ["rank", "type", "id", "score", "probability", "label", "known"].into_iter().enumerate() {
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
