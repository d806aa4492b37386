//! Labels of nodes: anomalous or normal.

use std::fmt::Display;
use std::path::Path;

use ndarray::Array2;
use ndarray_npy::WriteNpyExt;

use super::formats::{map_file, write_new};
use super::hetero::NodeType;
use super::ids::IdMaps;
use super::npy::Npy;
use crate::error::{Error, Result};

/// Labels of some nodes: `(global id, class)`, class 1 = anomalous, 0 = normal; every id at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    pub entries: Vec<(u32, u8)>,
}

impl Labels {
    /// Reads an integer `.npy` array `[L, 2]` of `(global id, 0/1)`.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for another type or shape, an id out of range, a repeated id (both rows named)
    /// or a class other than 0 and 1.
    pub fn read_npy(path: &Path, num_nodes: usize) -> Result<Self> {
        const HELP: &str = "labels are a C-ordered integer array [L, 2] of (global id, 0 or 1)";
        let npy = Npy::open(path)?;
        let [rows, cols] = npy.matrix_shape(HELP)?;
        if cols != 2 {
            return Err(npy.error("shape", format!("[{rows}, 2]"), format!("[{rows}, {cols}]"), HELP));
        }
        let mut values = npy.integers(HELP)?;
        let mut checked = Checked::new(rows, num_nodes);
        let mut row = 0;
        while let (Some(id), Some(class)) = (values.next(), values.next()) {
            checked
                .push(row, id, class, &id)
                .map_err(|fault| npy.error(format!("row {row}"), fault.expected.as_str(), fault.found("row"), HELP))?;
            row += 1;
        }
        Ok(checked.labels)
    }

    /// Reads a table with the columns `id` and `label` (others are ignored). An id is `TYPE:ID`, an id of `ids`, or a
    /// global integer id; without `ids` an `ID` counts from 0 within the type.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] with the line of an unknown or ambiguous id, a repeated id (both lines), a
    /// label other than 0 and 1, or a malformed row.
    pub fn from_csv(path: impl AsRef<Path>, ids: Option<&IdMaps>, types: &[NodeType]) -> Result<Self> {
        const HELP: &str = "the table has a header `id,label`, then TYPE:ID, a string or global id and 0 or 1 per line";
        let path = path.as_ref();
        let map = map_file(path)?;
        let error = |line: u64, expected: String, found: String| {
            Error::format(path, format!("line {line}"), expected, found, HELP)
        };
        let malformed = |source: csv::Error| {
            let line = source.position().map_or(1, csv::Position::line);
            error(line, "a row of comma-separated UTF-8 text".into(), source.to_string())
        };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(&map[..]);
        let header = reader.headers().map_err(malformed)?.clone();
        let column = |name: &str| {
            header.iter().position(|column| column.eq_ignore_ascii_case(name)).ok_or_else(|| {
                let found: Vec<&str> = header.iter().collect();
                error(1, format!("a header with a column `{name}`"), format!("{:?}", found.join(",")))
            })
        };
        let (id_column, label_column) = (column("id")?, column("label")?);
        let index = ids.map(IdMaps::index);
        // Written as we write it only: a mistyped string id such as 0042 must not become node 42.
        let number = |text: &str| text.parse().ok().filter(|number: &i128| number.to_string() == text);
        let of_type = |text: &str| {
            let (name, id) = text.split_once(':')?;
            let at = types.iter().position(|of| of.name == name)?;
            let [first, count] = [types[at].offset, types[at].count].map(|of| of as i128);
            match &index {
                Some(index) => index.get(at)?.get(id).map(|&node| i128::from(node)),
                None => number(id).filter(|id| (0..count).contains(id)).map(|id| first + id),
            }
        };

        let mut checked = Checked::new(0, types.iter().map(|of| of.count).sum());
        for record in reader.records() {
            let record = record.map_err(malformed)?;
            let line = record.position().map_or(0, csv::Position::line);
            let (id, label) = (&record[id_column], &record[label_column]);
            let class = label.parse().map_err(|_| error(line, "a label of 0 or 1".into(), format!("{label:?}")))?;
            let mut named = index.iter().flatten().filter_map(|of| of.get(id));
            let node = match (of_type(id), named.next(), named.next()) {
                (Some(node), ..) => node,
                (None, Some(&node), None) => i128::from(node),
                (None, Some(_), Some(_)) => {
                    let expected = "an id of one node type only, TYPE:ID, or a global id";
                    return Err(error(line, expected.into(), format!("{id:?}, an id of several types")));
                }
                (None, None, _) => number(id).ok_or_else(|| {
                    let expected = match index {
                        Some(_) => "an id of node_id_mappings.json, TYPE:ID or a global id",
                        None => "TYPE:NUMBER or a global id (the data directory has no node_id_mappings.json)",
                    };
                    error(line, expected.into(), format!("unknown id {id:?}"))
                })?,
            };
            let place = usize::try_from(line).unwrap_or(usize::MAX);
            checked
                .push(place, node, class, &id)
                .map_err(|fault| error(line, fault.expected.clone(), fault.found("line")))?;
        }
        Ok(checked.labels)
    }

    /// Writes `labels.npy`: i64, `[L, 2]`.
    pub(crate) fn write_npy(&self, path: &Path) -> Result<()> {
        let table = Array2::from_shape_fn((self.entries.len(), 2), |(row, column)| {
            let (id, class) = self.entries[row];
            if column == 0 { i64::from(id) } else { i64::from(class) }
        });
        write_new(path, |file| table.write_npy(file).map_err(std::io::Error::other))
    }

    /// Checks ids and classes of labels that were built in memory.
    pub(crate) fn check(&self, num_nodes: usize) -> Result<()> {
        let mut checked = Checked::new(self.entries.len(), num_nodes);
        for (row, &(id, class)) in self.entries.iter().enumerate() {
            checked.push(row, i128::from(id), i128::from(class), &id).map_err(|fault| Error::Data {
                what: format!("label {row}"),
                expected: fault.expected.clone(),
                found: fault.found("label"),
                help: "every node has at most one label, 0 or 1".into(),
            })?;
        }
        Ok(())
    }
}

/// Labels read so far, each with the place where it was seen.
struct Checked {
    labels: Labels,
    places: Vec<usize>,
    /// A bit for every node.
    seen: Vec<u64>,
    num_nodes: usize,
}

struct Fault {
    expected: String,
    found: String,
    earlier: Option<usize>,
}

impl Fault {
    fn found(&self, unit: &str) -> String {
        match self.earlier {
            Some(place) => format!("{} again, first in {unit} {place}", self.found),
            None => self.found.clone(),
        }
    }
}

impl Checked {
    fn new(capacity: usize, num_nodes: usize) -> Self {
        // More labels than nodes cannot be right, so a header never makes us reserve more.
        let capacity = capacity.min(num_nodes);
        Self {
            labels: Labels { entries: Vec::with_capacity(capacity) },
            places: Vec::with_capacity(capacity),
            seen: vec![0; num_nodes.div_ceil(64)],
            num_nodes,
        }
    }

    /// Takes the label of the node `id`, which is called `name` at `place`.
    fn push(&mut self, place: usize, id: i128, class: i128, name: &dyn Display) -> std::result::Result<(), Fault> {
        let fault = |expected: String, found: String| Fault { expected, found, earlier: None };
        let node = u32::try_from(id).ok().filter(|&node| (node as usize) < self.num_nodes);
        let node = node.ok_or_else(|| {
            fault(format!("a global id in [0, {})", self.num_nodes), format!("id out of range: {id}"))
        })?;
        if class != 0 && class != 1 {
            return Err(fault("a label of 0 or 1".into(), format!("label {class} of node {name}")));
        }
        let (word, bit) = (&mut self.seen[node as usize / 64], 1 << (node % 64));
        if *word & bit != 0 {
            let first = self.labels.entries.iter().position(|&(known, _)| known == node);
            return Err(Fault {
                expected: "every id once".into(),
                found: format!("duplicate id: {name}"),
                earlier: first.map(|at| self.places[at]),
            });
        }
        *word |= bit;
        self.labels.entries.push((node, class as u8));
        self.places.push(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ndarray::{Array2, array};

    use super::*;

    fn written<A: ndarray_npy::WritableElement>(array: &Array2<A>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        array.write_npy(fs::File::create(file.path()).unwrap()).unwrap();
        file
    }

    fn csv(text: &str, ids: Option<&IdMaps>) -> Result<Labels> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let types = [("user", 0, 3), ("product", 3, 3), ("seller", 6, 4)];
        let types = types.map(|(name, offset, count)| NodeType { name: name.into(), offset, count });
        Labels::from_csv(file.path(), ids, &types)
    }

    fn ids() -> IdMaps {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        IdMaps(vec![names(&["ann", "bob", "both"]), names(&["0007", "7", "both"])])
    }

    #[test]
    fn every_integer_type_is_accepted() {
        fn entries<A: ndarray_npy::WritableElement>(array: &Array2<A>) -> Vec<(u32, u8)> {
            Labels::read_npy(written(array).path(), 130).unwrap().entries
        }
        let expected = [(3, 1), (120, 0)];
        assert_eq!(entries(&array![[3i8, 1], [120, 0]]), expected);
        assert_eq!(entries(&array![[3u8, 1], [120, 0]]), expected);
        assert_eq!(entries(&array![[3i16, 1], [120, 0]]), expected);
        assert_eq!(entries(&array![[3i32, 1], [120, 0]]), expected);
        assert_eq!(entries(&array![[3u32, 1], [120, 0]]), expected);
        assert_eq!(entries(&array![[3i64, 1], [120, 0]]), expected);
        assert_eq!(entries(&array![[3u64, 1], [120, 0]]), expected);
    }

    #[test]
    fn wrong_labels_are_named_by_row() {
        let error = |array: &Array2<i64>| Labels::read_npy(written(array).path(), 10).unwrap_err().to_string();
        let cases = [
            (array![[0, 1], [10, 1]], "row 1: expected a global id in [0, 10), found id out of range: 10"),
            (array![[-1, 1]], "row 0: expected a global id in [0, 10), found id out of range: -1"),
            (
                array![[4, 1], [5, 0], [4, 0]],
                "row 2: expected every id once, found duplicate id: 4 again, first in row 0",
            ),
            (array![[0, 1], [1, 2]], "row 1: expected a label of 0 or 1, found label 2 of node 1"),
            (array![[0, 1, 1]], "shape: expected [1, 2], found [1, 3]"),
        ];
        for (array, expected) in cases {
            let error = error(&array);
            assert!(error.contains(expected), "{error}\nlacks {expected}");
        }
        let float = written(&array![[0.0f64, 1.0]]);
        let error = Labels::read_npy(float.path(), 10).unwrap_err().to_string();
        assert!(error.contains("dtype: expected a little-endian integer type, e.g. <i8, found <f8"), "{error}");
    }

    #[test]
    fn a_table_of_labels_may_use_string_or_global_ids() {
        let labels = csv("label, id\n1, bob\n0, 0007\n1, 7\n0, 9\n", Some(&ids())).unwrap();
        assert_eq!(labels.entries, [(1, 1), (3, 0), (4, 1), (9, 0)]);
        assert_eq!(csv("id,label\n7,1\n", None).unwrap().entries, [(7, 1)]);
        // An id of two types is told by its type.
        let labels = csv("id,label\nproduct:both,1\nuser:both,0\nproduct:0007,1\n", Some(&ids())).unwrap();
        assert_eq!(labels.entries, [(5, 1), (2, 0), (3, 1)]);
        assert_eq!(csv("id,label\nproduct:0,1\n", None).unwrap().entries, [(3, 1)]);
    }

    #[test]
    fn a_wrong_table_of_labels_is_named_by_line() {
        let cases = [
            (
                "id,label\nann,1\ncarl,0\n",
                "line 3: expected an id of node_id_mappings.json, TYPE:ID or a global id, found unknown id \"carl\"",
            ),
            (
                "id,label\nann,1\nbob,0\nann,1\n",
                "line 4: expected every id once, found duplicate id: ann again, first in line 2",
            ),
            ("id,label\nuser:ann,1\nann,0\n", "line 3: expected every id once, found duplicate id: ann again"),
            ("id,label\nuser:carl,1\n", "line 2: expected an id of node_id_mappings.json, TYPE:ID or a global id"),
            (
                "id,label\n0008,1\n",
                "line 2: expected an id of node_id_mappings.json, TYPE:ID or a global id, found unknown id \"0008\"",
            ),
            ("id,label\nann,2\n", "line 2: expected a label of 0 or 1, found label 2 of node ann"),
            ("id,label\nann,yes\n", "line 2: expected a label of 0 or 1, found \"yes\""),
            ("id,label\n10,1\n", "line 2: expected a global id in [0, 10), found id out of range: 10"),
            ("id,label\nboth,1\n", "line 2: expected an id of one node type only"),
            ("node,label\nann,1\n", "line 1: expected a header with a column `id`"),
            ("", "line 1: expected a header with a column `id`"),
            ("id,label\nann,1\nbob\n", "line 3: expected a row"),
        ];
        for (text, expected) in cases {
            let error = csv(text, Some(&ids())).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks {expected}");
        }
        let error = csv("id,label\nann,1\n", None).unwrap_err().to_string();
        assert!(
            error.contains(
                "line 2: expected TYPE:NUMBER or a global id (the data directory has no node_id_mappings.json)"
            ),
            "{error}"
        );
    }
}
