use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::*;

/// Writes MAT files byte by byte, little- or big-endian.
#[derive(Clone, Copy)]
struct Writer {
    big: bool,
    deflate: bool,
}

const PLAIN: Writer = Writer { big: false, deflate: false };

/// Values of a matrix, column by column.
enum Values<'a> {
    Dense(&'a [f64]),
    /// Rows, column starts, values.
    Sparse(&'a [u32], &'a [u32], &'a [f64]),
    /// Another class, with bytes that nobody reads.
    Other(u32),
}

impl Writer {
    fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn f64(self, value: f64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|&value| self.u32(value)).collect()
    }

    fn element(self, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = [self.u32(kind), self.u32(data.len() as u32)].concat();
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// A name of up to four characters is a small element.
    fn name(self, name: &str) -> Vec<u8> {
        if name.len() > 4 {
            return self.element(1, name.as_bytes());
        }
        let mut bytes = self.u32((name.len() as u32) << 16 | 1).to_vec();
        bytes.extend(name.as_bytes());
        bytes.resize(8, 0);
        bytes
    }

    fn variable(self, name: &str, shape: [u32; 2], values: Values) -> Vec<u8> {
        let reals = |values: &[f64]| self.element(9, &values.iter().flat_map(|&v| self.f64(v)).collect::<Vec<_>>());
        let class = match values {
            Values::Dense(_) => 6,
            Values::Sparse(..) => 5,
            Values::Other(class) => class,
        };
        let mut data = self.element(6, &self.words(&[class, 0]));
        data.extend(self.element(5, &self.words(&shape)));
        data.extend(self.name(name));
        match values {
            Values::Dense(values) => data.extend(reals(values)),
            Values::Sparse(rows, starts, values) => {
                data.extend(self.element(5, &self.words(rows)));
                data.extend(self.element(5, &self.words(starts)));
                data.extend(reals(values));
            }
            Values::Other(_) => data.extend(self.element(4, b"text")),
        }
        let element = self.element(14, &data);
        if !self.deflate {
            return element;
        }
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&element).unwrap();
        let packed = packed.finish().unwrap();
        // Not padded.
        [&self.u32(15)[..], &self.u32(packed.len() as u32), &packed].concat()
    }

    fn file(self, variables: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = b"MATLAB 5.0 MAT-file, made by a test".to_vec();
        bytes.resize(124, b' ');
        bytes.extend(if self.big { *b"\x01\x00MI" } else { *b"\x00\x01IM" });
        bytes.extend(variables.concat());
        bytes
    }

    /// A ring of three nodes both ways, an arc 0 -> 2 and a loop, their union, features and labels.
    fn fraud(self) -> Vec<u8> {
        let ring = Values::Sparse(&[1, 2, 0, 2, 0, 1], &[0, 2, 4, 6], &[1.0; 6]);
        let arc = Values::Sparse(&[1, 0], &[0, 0, 1, 2], &[0.5, 2.0]);
        let union = Values::Sparse(&[1, 2, 0, 2, 0, 1], &[0, 2, 4, 6], &[1.0; 6]);
        self.file(&[
            self.variable("homo", [3, 3], union),
            self.variable("net_ring", [3, 3], ring),
            self.variable("arc", [3, 3], arc),
            self.variable("note", [1, 4], Values::Other(4)),
            self.variable("features", [3, 2], Values::Sparse(&[0, 2, 1], &[0, 2, 3], &[0.5, -1.0, 0.1])),
            self.variable("label", [1, 3], Values::Dense(&[0.0, 1.0, f64::NAN])),
        ])
    }
}

fn read_with(bytes: &[u8], options: MatOptions) -> Result<Dataset> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.mat");
    fs::write(&path, bytes).unwrap();
    read(&MatOptions { path, ..options })
}

fn fault_with(bytes: &[u8], options: MatOptions) -> String {
    let fault = read_with(bytes, options).unwrap_err().to_string();
    assert!(fault.contains("graph.mat: ") && fault.contains("help: "), "{fault}");
    fault
}

fn fault(bytes: &[u8]) -> String {
    fault_with(bytes, MatOptions::default())
}

fn rows(dataset: &Dataset, relation: usize) -> Vec<Vec<u32>> {
    let forward = &dataset.graph.relations()[relation].forward;
    (0..forward.num_rows()).map(|row| forward.row(row).to_vec()).collect()
}

fn names(dataset: &Dataset) -> Vec<&str> {
    dataset.graph.relations().iter().map(|relation| relation.name.as_str()).collect()
}

#[test]
fn a_fraud_graph_is_read_in_either_byte_order_and_deflated() {
    for (big, deflate) in [(false, false), (true, false), (false, true), (true, true)] {
        let dataset = read_with(&Writer { big, deflate }.fraud(), MatOptions::default()).unwrap();
        assert_eq!(names(&dataset), ["net_ring", "arc", "arc_T"], "the union is left out");
        assert_eq!(rows(&dataset, 0), [vec![1, 2], vec![0, 2], vec![0, 1]]);
        assert!(dataset.graph.relations()[0].is_symmetric());
        // Entry (1, 1) is a loop; (0, 2) an edge from 0 to 2.
        assert_eq!([rows(&dataset, 1), rows(&dataset, 2)], [[vec![], vec![], vec![0]], [vec![2], vec![], vec![]]]);
        let features = dataset.features.as_ref().unwrap();
        let found: Vec<Vec<f32>> = (0..3).map(|node| features.row(node).collect()).collect();
        assert_eq!(found, [[0.5, 0.0], [0.0, 0.1], [-1.0, 0.0]]);
        assert_eq!(dataset.classes.as_ref().unwrap().of_node(), [Some(0), Some(1), None]);
        assert_eq!(dataset.labels.as_ref().unwrap().entries, [(0, 0), (1, 1)]);
        assert!(dataset.notes[0].contains("arc: its entries are weights"), "{:?}", dataset.notes);
        assert!(dataset.notes[1].contains("arc: 1 self-loops were removed"), "{:?}", dataset.notes);
    }
}

#[test]
fn a_directory_made_of_a_file_says_the_same() {
    let dataset = read_with(&PLAIN.fraud(), MatOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    dataset.write(&path).unwrap();
    let read = Dataset::open(&path).unwrap();
    assert_eq!(names(&read), names(&dataset));
    (0..3).for_each(|relation| assert_eq!(rows(&read, relation), rows(&dataset, relation)));
    assert_eq!((&read.labels, &read.classes), (&dataset.labels, &dataset.classes));
    let [found, expected] = [&read, &dataset].map(|data| data.features.as_ref().unwrap());
    (0..3).for_each(|node| assert!(found.row(node).eq(expected.row(node)), "0.1 is no f16"));
}

#[test]
fn an_anomaly_benchmark_is_read_with_its_one_network() {
    let both_ways = || Values::Sparse(&[1, 0], &[0, 1, 2], &[1.0; 2]);
    let bytes = PLAIN.file(&[
        PLAIN.variable("Network", [2, 2], both_ways()),
        PLAIN.variable("Attributes", [2, 3], Values::Dense(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        PLAIN.variable("Label", [2, 1], Values::Sparse(&[1], &[0, 1], &[1.0])),
        PLAIN.variable("Class", [2, 1], Values::Dense(&[1.0, 3.0])),
        PLAIN.variable("other", [2, 2], both_ways()),
    ]);
    let dataset = read_with(&bytes, MatOptions::default()).unwrap();
    assert_eq!(names(&dataset), ["Network"]);
    assert_eq!(dataset.features.as_ref().unwrap().row(1).collect::<Vec<_>>(), [2.0, 4.0, 6.0], "column by column");
    assert_eq!(dataset.labels.as_ref().unwrap().entries, [(0, 0), (1, 1)]);
    assert!(dataset.notes.is_empty(), "{:?}", dataset.notes);
    let relations = vec!["other".to_owned(), "Network".into()];
    let chosen = MatOptions { labels: Some("Class".into()), relations, ..MatOptions::default() };
    let dataset = read_with(&bytes, chosen).unwrap();
    assert_eq!(names(&dataset), ["other", "Network"]);
    assert_eq!(dataset.classes.unwrap().of_node(), [Some(0), Some(2)]);
    assert_eq!((dataset.labels, &*dataset.notes[0]), (None, "Class: classes 1 to 3 became 0 to 2"));
}

#[test]
fn the_union_is_taken_where_it_is_all_there_is() {
    let bytes = PLAIN.file(&[
        PLAIN.variable("homo", [2, 2], Values::Sparse(&[1], &[0, 1, 1], &[1.0])),
        PLAIN.variable("X", [2, 1], Values::Dense(&[1.0, 2.0])),
    ]);
    let dataset = read_with(&bytes, MatOptions::default()).unwrap();
    assert_eq!(names(&dataset), ["homo", "homo_T"]);
    assert!(dataset.classes.is_none() && dataset.notes[0].contains("no labels"), "{:?}", dataset.notes);
}

#[test]
fn what_is_no_file_of_level_5_is_refused_with_the_way_out() {
    let mut hdf5 = PLAIN.file(&[]);
    hdf5.resize(512, 0);
    hdf5.extend(b"\x89HDF\r\n\x1a\n");
    assert!(fault(&hdf5).contains("HDF5 file (MATLAB's v7.3)") && fault(&hdf5).contains("save -v7"));
    let level4 = [[0u32, 2, 2, 0, 2].map(u32::to_le_bytes).concat(), b"A\0".to_vec(), vec![0; 32]].concat();
    assert!(fault(&level4).contains("level 4") && fault(&level4).contains("scipy.io.savemat"));
    assert!(fault(b"id,label\n1,0\n").contains("found other bytes\n"));
    assert!(fault(b"").contains("found other bytes\n"));
}

#[test]
fn an_unknown_layout_is_refused_with_what_there_is() {
    let bytes = PLAIN.file(&[
        PLAIN.variable("M", [2, 3], Values::Sparse(&[1], &[0, 1, 1, 1], &[1.0])),
        PLAIN.variable("F", [2, 1], Values::Dense(&[1.0, 2.0])),
        PLAIN.variable("info", [1, 1], Values::Other(2)),
    ]);
    let all = "found M (2x3 sparse), F (2x1 double), info (1x1 struct)";
    assert!(fault(&bytes).contains(all), "{}", fault(&bytes));
    let with = |features: &str, relations: &[&str]| {
        let relations = relations.iter().map(ToString::to_string).collect();
        fault_with(&bytes, MatOptions { features: Some(features.into()), relations, ..MatOptions::default() })
    };
    for (fault, expected) in [
        (with("F", &[]), "expected a square sparse matrix, found M (2x3 sparse)"),
        (with("F", &["M"]), "M: expected a square sparse matrix, found M (2x3 sparse)"),
        (with("f", &[]), "expected `f`, named by --features, found M (2x3 sparse)"),
        (with("info", &[]), "info: expected a dense or sparse matrix, found a struct"),
    ] {
        assert!(fault.contains(expected), "{fault}\nlacks {expected}");
    }
    assert!(fault(&PLAIN.file(&[])).contains("found no variables"));
}

#[test]
fn parts_that_do_not_fit_are_named() {
    let ring = || PLAIN.variable("net", [2, 2], Values::Sparse(&[1, 0], &[0, 1, 2], &[1.0; 2]));
    let x = || PLAIN.variable("X", [2, 1], Values::Dense(&[1.0, 2.0]));
    let y = |values: &[f64]| PLAIN.variable("y", [values.len() as u32, 1], Values::Dense(values));
    let wide = PLAIN.variable("wide", [3, 3], Values::Sparse(&[], &[0; 4], &[]));
    let name = |name: &str| PLAIN.variable(name, [2, 2], Values::Sparse(&[], &[0; 3], &[]));
    let cases = [
        (vec![ring(), wide, x()], "wide: expected 2x2, as `net`, found wide (3x3 sparse)"),
        (vec![ring(), PLAIN.variable("X", [1, 2], Values::Dense(&[1.0, 2.0]))], "X: expected [2, columns]"),
        (vec![ring(), PLAIN.variable("X", [2, 1], Values::Dense(&[1.0, f64::INFINITY]))], "X, row 1, column 0"),
        (vec![ring(), PLAIN.variable("X", [2, 1], Values::Dense(&[1e300, 0.0]))], "X, row 0, column 0"),
        (vec![ring(), x(), y(&[0.0, 1.0, 0.0])], "y: expected 2 labels"),
        (vec![ring(), x(), y(&[0.0, 0.5])], "y, node 1: expected an integer"),
        (vec![ring(), x(), y(&[-2.0, 0.0])], "y, node 0: expected an integer"),
        (vec![ring(), x(), y(&[f64::NAN, -1.0])], "y: expected at least one labelled node"),
        (vec![name("../up"), x()], "variable name: expected letters"),
        (vec![PLAIN.variable("net", [2, 2], Values::Sparse(&[2], &[0, 1, 1], &[1.0])), x()], "entry 0: expected a row"),
        (vec![PLAIN.variable("net", [2, 2], Values::Sparse(&[0], &[0, 1, 0], &[1.0])), x()], "never decrease"),
        (vec![PLAIN.variable("net", [2, 2], Values::Sparse(&[0], &[0, 1, 2], &[1.0])), x()], "an entry for each"),
        (vec![PLAIN.variable("net", [2, 2], Values::Sparse(&[0], &[0, 1], &[1.0])), x()], "column starts"),
        (vec![ring(), PLAIN.variable("X", [2, 1], Values::Dense(&[1.0]))], "as many values as the shape"),
    ];
    for (variables, expected) in cases {
        let fault = fault(&PLAIN.file(&variables));
        assert!(fault.contains(expected), "{fault}\nlacks {expected}");
    }
}

#[test]
fn a_header_that_promises_more_than_the_file_has_allocates_nothing() {
    let huge = 0x7fff_ffff;
    let sparse = PLAIN.variable("net", [huge, huge], Values::Sparse(&[0], &[0, 1], &[1.0]));
    let x = || PLAIN.variable("X", [2, 1], Values::Dense(&[1.0, 2.0]));
    assert!(fault(&PLAIN.file(&[sparse, x()])).contains("column starts of 2147483647 columns"));
    let ring = || PLAIN.variable("net", [2, 2], Values::Sparse(&[1, 0], &[0, 1, 2], &[1.0; 2]));
    let starts = vec![0; (1 << 20) + 1];
    let tall = PLAIN.variable("net", [1 << 20, 1 << 20], Values::Sparse(&[], &starts, &[]));
    let spread = PLAIN.variable("X", [1 << 20, 1 << 20], Values::Sparse(&[], &starts, &[]));
    assert!(fault(&PLAIN.file(&[tall, spread])).contains("X: expected features that fit the memory"));
    let dense = PLAIN.variable("X", [2, huge], Values::Dense(&[1.0, 2.0]));
    assert!(fault(&PLAIN.file(&[ring(), dense])).contains("X: expected"));
    // An element of 2 GiB, plain and deflated.
    let mut cut = PLAIN.file(&[ring()]);
    cut[132..136].copy_from_slice(&huge.to_le_bytes());
    assert!(fault(&cut).contains("an element of 2147483647 at byte 128"), "{}", fault(&cut));
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&[PLAIN.u32(14), PLAIN.u32(huge)].concat()).unwrap();
    let packed = packed.finish().unwrap();
    let bytes = PLAIN.file(&[[&PLAIN.u32(15)[..], &PLAIN.u32(packed.len() as u32), &packed].concat()]);
    assert!(fault(&bytes).contains("a size that the packed bytes can hold"), "{}", fault(&bytes));
}

#[test]
fn no_cut_and_no_changed_byte_ends_the_program() {
    for deflate in [false, true] {
        let whole = Writer { big: false, deflate }.fraud();
        for length in 0..whole.len() {
            // A cut between two variables leaves a file of fewer.
            let _ = read_with(&whole[..length], MatOptions::default());
        }
        for at in (124..whole.len()).step_by(if deflate { 7 } else { 1 }) {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = read_with(&bytes, MatOptions::default());
            }
        }
    }
}

#[test]
fn a_missing_file_is_an_error_of_the_system() {
    let fault = read(&MatOptions { path: Path::new("no/such.mat").into(), ..MatOptions::default() }).unwrap_err();
    assert!(matches!(fault, crate::Error::Io { .. }), "{fault}");
}
