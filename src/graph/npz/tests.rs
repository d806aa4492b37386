use std::fs::File;
use std::path::PathBuf;

use ndarray::{Array1, Array2, Ix1, Ix2, array};
use ndarray_npy::{NpzWriter, WritableElement};
use tempfile::TempDir;

use super::*;
use crate::graph::Dataset;

/// Arrays to be written, each under its name.
struct Archive {
    dir: TempDir,
    writer: NpzWriter<File>,
}

impl Archive {
    fn new(compressed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("graph.npz")).unwrap();
        let writer = if compressed { NpzWriter::new_compressed(file) } else { NpzWriter::new(file) };
        Self { dir, writer }
    }

    fn vector<T: WritableElement + Clone>(mut self, name: &str, values: &[T]) -> Self {
        self.writer.add_array::<_, ndarray::ArrayBase<_, Ix1>>(name, &Array1::from_vec(values.to_vec())).unwrap();
        self
    }

    fn matrix<T: WritableElement + Clone>(mut self, name: &str, values: &Array2<T>) -> Self {
        self.writer.add_array::<_, ndarray::ArrayBase<_, Ix2>>(name, values).unwrap();
        self
    }

    fn finish(self) -> (TempDir, PathBuf) {
        self.writer.finish().unwrap();
        let path = self.dir.path().join("graph.npz");
        (self.dir, path)
    }

    fn open(self) -> Result<Dataset> {
        let (_dir, path) = self.finish();
        Dataset::open(&path)
    }

    fn fault(self) -> String {
        let message = self.open().unwrap_err().to_string();
        assert!(message.contains("graph.npz: ") && message.contains("help: "), "{message}");
        message
    }

    fn features(self) -> Self {
        self.matrix("node_features", &array![[1.0f32, 0.5], [2.0, 0.0], [3.0, -1.0], [4.0, 65e4]])
    }

    fn labels(self) -> Self {
        self.vector("node_labels", &[0i64, 2, -1, 1])
    }

    fn edges(self) -> Self {
        self.matrix("edges", &array![[0i64, 1], [1, 2], [1, 2], [3, 3], [2, 1]])
    }
}

fn rows(dataset: &Dataset) -> Vec<Vec<u32>> {
    let forward = &dataset.graph.relations()[0].forward;
    (0..forward.num_rows()).map(|row| forward.row(row).to_vec()).collect()
}

#[test]
fn a_file_is_read_and_what_was_done_to_its_edges_is_said() {
    for compressed in [false, true] {
        let dataset = Archive::new(compressed).features().labels().edges().open().unwrap();
        assert_eq!(rows(&dataset), [vec![1], vec![0, 2], vec![1], vec![]]);
        assert!(dataset.graph.relations()[0].is_symmetric());
        assert_eq!(dataset.graph.relations().len(), 1);
        assert_eq!(dataset.features.as_ref().unwrap().row(3).collect::<Vec<_>>(), [4.0, 65e4], "beyond f16");
        let classes = dataset.classes.unwrap();
        assert_eq!((classes.of_node(), classes.count()), (&[Some(0), Some(2), None, Some(1)][..], 3));
        assert!(dataset.labels.is_none() && classes.masks().is_empty());
        let notes = dataset.notes.join("\n");
        assert!(notes.contains("1 of 5 entries repeat") && notes.contains("1 self-loops"), "{notes}");
        assert!(notes.contains("1 edges lacked their mirror image"), "{notes}");
    }
}

#[test]
fn edges_may_stay_one_way_and_a_symmetric_list_stays_as_it_is() {
    let (_dir, path) = Archive::new(false).features().labels().edges().finish();
    let dataset = Dataset::open_with(&path, EdgeReading { directed: true }).unwrap();
    assert_eq!(rows(&dataset), [vec![], vec![0, 2], vec![1], vec![]]);
    let symmetric = array![[0i64, 1], [1, 0]];
    let dataset = Archive::new(false).features().labels().matrix("edges", &symmetric).open().unwrap();
    assert_eq!((rows(&dataset)[0].as_slice(), dataset.notes.len()), (&[1][..], 0));
}

#[test]
fn every_storage_that_can_be_meant_is_read() {
    let narrow = Archive::new(true)
        .matrix("node_features", &array![[1.0f64], [2.0], [0.0]])
        .vector("node_labels", &[true, false, true])
        .matrix("edges", &array![[0i32, 1, 2], [1, 2, 0]]);
    let dataset = narrow.open().unwrap();
    assert_eq!(dataset.labels.unwrap().entries, [(0, 1), (1, 0), (2, 1)]);
    assert_eq!(dataset.graph.num_edges(), 6, "[2, m] is read as well");
    let by_column = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]].reversed_axes();
    let dataset = Archive::new(false)
        .matrix("node_features", &by_column)
        .vector("node_labels", &[1u64, 0, 1])
        .matrix("edges", &array![[0u64, 1]])
        .open()
        .unwrap();
    assert_eq!(dataset.labels.unwrap().entries, [(0, 1), (1, 0), (2, 1)]);
    assert_eq!(dataset.features.unwrap().row(0).collect::<Vec<_>>(), [1.0, 4.0], "Fortran order");
}

#[test]
fn features_of_any_kind_of_number_are_read() {
    fn read<T: WritableElement + Clone>(values: [T; 4]) -> Vec<f32> {
        let matrix = Array2::from_shape_vec((4, 1), values.to_vec()).unwrap();
        let dataset = Archive::new(true).matrix("node_features", &matrix).labels().edges().open().unwrap();
        let features = dataset.features.unwrap();
        (0..4).map(|node| features.row(node).next().unwrap()).collect()
    }
    assert_eq!(read([-3i64, 0, 7, 1 << 40]), [-3.0, 0.0, 7.0, (1u64 << 40) as f32]);
    assert_eq!(read([-3i8, 0, 7, 127]), [-3.0, 0.0, 7.0, 127.0]);
    assert_eq!(read([3u16, 0, 7, 65535]), [3.0, 0.0, 7.0, 65535.0]);
    assert_eq!(read([true, false, true, true]), [1.0, 0.0, 1.0, 1.0]);
}

#[test]
fn masks_of_one_or_of_several_splits_are_read() {
    let masked = |archive: Archive| archive.features().vector("node_labels", &[0i32, 1, 0, 1]).edges();
    let one = masked(Archive::new(false))
        .vector("train_mask", &[true, true, false, false])
        .vector("val_mask", &[false, false, true, false])
        .vector("test_mask", &[false, false, false, true]);
    let classes = one.open().unwrap().classes.unwrap();
    let expected = Masks { train: vec![0, 1], validation: vec![2], test: vec![3] };
    assert_eq!(classes.masks(), [expected]);
    let column = |a: usize, b: usize| Array2::from_shape_fn((4, 2), |(row, column)| row == [a, b][column]);
    let two = masked(Archive::new(false))
        .matrix("train_mask", &column(0, 1))
        .matrix("val_mask", &column(1, 2))
        .matrix("test_mask", &column(2, 3));
    let masks = two.open().unwrap().classes.unwrap().masks().to_vec();
    assert_eq!((masks[0].train[0], masks[1].train[0], masks[1].test[0]), (0, 1, 3));
}

#[test]
fn masks_with_a_row_per_split_are_read_and_named() {
    let masked = || Archive::new(true).features().vector("node_labels", &[0i64, 1, 0, 1]).edges();
    let row = |a: usize, b: usize| Array2::from_shape_fn((2, 4), |(split, node)| node == [a, b][split]);
    let (train, validation, test) = (row(0, 1), row(1, 2), row(2, 3));
    let three = || masked().matrix("train_masks", &train).matrix("val_masks", &validation);
    let masks = three().matrix("test_masks", &test).open().unwrap().classes.unwrap().masks().to_vec();
    let of = |train: u32, validation: u32, test: u32| Masks {
        train: vec![train],
        validation: vec![validation],
        test: vec![test],
    };
    assert_eq!(masks, [of(0, 1, 2), of(1, 2, 3)]);
    // As many splits as nodes: the name says which way they lie.
    let square = |shift: usize| Array2::from_shape_fn((4, 4), |(split, node)| node == (split + shift) % 4);
    let squares = masked().matrix("train_masks", &square(1)).matrix("val_masks", &square(2));
    let masks = squares.matrix("test_masks", &square(3)).open().unwrap().classes.unwrap().masks().to_vec();
    assert_eq!((masks.len(), &masks[0], &masks[3]), (4, &of(1, 2, 3), &of(0, 1, 2)));

    let says = |archive: Archive, text: &str| {
        let fault = archive.fault();
        assert!(fault.contains(text), "{fault}\nlacks {text}");
    };
    says(
        three(),
        "train_masks, val_masks, test_masks: expected these three arrays alone, found train_masks, val_masks",
    );
    says(three().matrix("test_mask", &test), "found test_mask, train_masks, val_masks");
    says(three().matrix("test_masks", &test.t().to_owned()), "test_masks, shape: expected [splits, 4], found [4, 2]");
    says(
        three().vector("test_masks", &[false, false, true, true]),
        "test_masks, shape: expected [splits, 4], found [4]",
    );
    says(three().matrix("test_masks", &test.mapv(u8::from)), "test_masks, dtype: expected bool, found uint8");
    says(three().matrix("test_masks", &validation), "test_masks, split 0, node 1: expected a node of no other mask");
    let first = test.slice(ndarray::s![..1, ..]).to_owned();
    says(three().matrix("test_masks", &first), "expected the same number of splits, found [2, 2, 1]");
}

#[test]
fn a_wrong_array_is_named_with_what_was_expected_and_found() {
    let new = || Archive::new(false);
    let says = |archive: Archive, parts: &[&str]| {
        let fault = archive.fault();
        parts.iter().for_each(|part| assert!(fault.contains(part), "{fault}\nlacks {part}"));
    };
    says(new().features().edges(), &["node_labels: expected an array", "only edges, node_features"]);
    says(new().labels().edges(), &["node_features: expected", "only edges, node_labels"]);
    says(new().features().labels(), &["edges: expected"]);
    says(new().features().vector("node_labels", &[0.5f32; 4]).edges(), &["node_labels, dtype", "float32"]);
    says(new().features().labels().matrix("edges", &array![[0.0f64, 1.0]]), &["edges, dtype", "float64"]);
    says(new().vector("node_features", &[1.0f32; 4]).labels().edges(), &["node_features, shape", "found [4]"]);
    says(new().features().vector("node_labels", &[0i64; 3]).edges(), &["node_labels, shape: expected [4]", "[3]"]);
    says(new().features().labels().matrix("edges", &array![[0i64, 1, 2]]), &["edges, shape", "[1, 3]"]);
    says(
        new().features().labels().matrix("edges", &array![[0i64, 1], [0, 4]]),
        &["edge 1, destination", "0 to 3", "4"],
    );
    says(new().features().labels().matrix("edges", &array![[-1i64, 1]]), &["edge 0, source", "found -1"]);
    says(new().features().labels().matrix("edges", &Array2::<i64>::zeros((0, 2))), &["edges: expected at least one"]);
    says(
        new().matrix("node_features", &array![[1.0f32, 1.0], [1.0, f32::INFINITY]]).labels().edges(),
        &["node_features, row 1, column 1", "found inf", "NaN for a missing one"],
    );
    says(new().matrix("node_features", &Array2::<f32>::zeros((0, 2))).labels().edges(), &["at least one node"]);
    says(new().features().vector("node_labels", &[0i64, 1, -2, 0]).edges(), &["node_labels, node 2", "found -2"]);
    says(new().features().vector("node_labels", &[0i64, 1, 4, 0]).edges(), &["node_labels, node 2", "below 4"]);
    says(new().features().vector("node_labels", &[-1i64; 4]).edges(), &["at least one labelled node"]);
}

#[test]
fn a_feature_that_is_nan_is_missing() {
    let values = array![[1.0f64, f64::NAN], [1.0, 2.0], [3.0, 4.0], [f64::NAN, 0.0]];
    let read = Archive::new(false).matrix("node_features", &values).labels().edges().open().unwrap();
    let features = read.features.unwrap();
    assert_eq!(features.missing(), [true, true]);
    assert!(features.row(3).next().unwrap().is_nan() && features.row(1).eq([1.0, 2.0]));
}

#[test]
fn masks_that_contradict_each_other_or_the_labels_are_refused() {
    let with = |train: &[bool], validation: &[bool], test: &[bool]| {
        let archive = Archive::new(false).features().labels().edges();
        archive.vector("train_mask", train).vector("val_mask", validation).vector("test_mask", test).fault()
    };
    let (first, second, third, fourth) = (
        [true, false, false, false],
        [false, true, false, false],
        [false, false, true, false],
        [false, false, false, true],
    );
    assert!(with(&first, &first, &fourth).contains("val_mask, split 0, node 0: expected a node of no other mask"));
    assert!(with(&first, &second, &third).contains("test_mask, split 0, node 2: expected a labelled node"));
    assert!(with(&first, &second, &[false; 4]).contains("test_mask, split 0: expected at least one node"));
    assert!(with(&[true; 3], &second, &fourth).contains("train_mask, shape: expected [4]"));
    let some = Archive::new(false).features().labels().edges().vector("train_mask", &first);
    let fault = some.fault();
    assert!(
        fault.contains("train_mask, val_mask, test_mask: expected these three arrays alone, found train_mask\n"),
        "{fault}"
    );
    let numbers = Archive::new(false).features().labels().edges();
    let numbers = numbers.vector("train_mask", &[1i64; 4]).vector("val_mask", &second).vector("test_mask", &fourth);
    assert!(numbers.fault().contains("train_mask, dtype: expected bool"));
}

#[test]
fn what_is_no_archive_is_a_typed_error() {
    let (_dir, path) = Archive::new(true).features().labels().edges().finish();
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 10, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let fault = Dataset::open(&path).unwrap_err();
        assert!(matches!(&fault, Error::Format { place, .. } if place == "archive"), "{fault}");
    }
    let damaged: Vec<u8> =
        whole.iter().enumerate().map(|(at, byte)| if at == 60 { byte ^ 0xff } else { *byte }).collect();
    std::fs::write(&path, damaged).unwrap();
    assert!(matches!(Dataset::open(&path).unwrap_err(), Error::Format { .. }));
    assert!(matches!(Dataset::open(&path.with_file_name("none.npz")).unwrap_err(), Error::Io { .. }));
}

#[test]
fn a_header_that_asks_for_more_than_there_is_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("graph.npz");
    let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 32), }\n";
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((header.len() as u16).to_le_bytes());
    array.extend(header.as_bytes());
    archive.start_file("node_features.npy", zip::write::SimpleFileOptions::default()).unwrap();
    std::io::Write::write_all(&mut archive, &array).unwrap();
    archive.finish().unwrap();
    let message = Dataset::open(&path).unwrap_err().to_string();
    assert!(message.contains("node_features") && message.contains("140737488355328 bytes"), "{message}");
    assert!(message.contains("0 bytes"), "{message}");
}

#[test]
fn a_file_written_as_a_directory_says_the_same() {
    let masks = [
        array![[true, false], [false, true], [false, false], [false, false]],
        array![[false, true], [true, false], [false, false], [false, false]],
    ];
    let test = array![[false, false], [false, false], [false, false], [true, true]];
    let with_masks = || {
        let archive = Archive::new(false).features().labels().edges();
        archive.matrix("train_mask", &masks[0]).matrix("val_mask", &masks[1]).matrix("test_mask", &test)
    };
    let binary = || Archive::new(false).features().vector("node_labels", &[0i64, 1, -1, 1]).edges();
    for (archive, directed) in [(with_masks(), false), (with_masks(), true), (binary(), false), (binary(), true)] {
        let (dir, path) = archive.finish();
        let file = Dataset::open_with(&path, EdgeReading { directed }).unwrap();
        let written = dir.path().join("data");
        file.write(&written).unwrap();
        let read = Dataset::open(&written).unwrap();
        assert_eq!((&read.classes, &read.labels), (&file.classes, &file.labels));
        assert_eq!(read.graph.node_types(), file.graph.node_types());
        assert_eq!(read.graph.relations().len(), 1);
        let [found, expected] = [&read, &file].map(|dataset| &dataset.graph.relations()[0]);
        assert_eq!((&found.name, &found.stream, found.primary), (&expected.name, &expected.stream, expected.primary));
        assert_eq!((&found.forward, &found.reverse), (&expected.forward, &expected.reverse));
        assert_eq!(found.is_symmetric(), !directed);
        let [found, expected] = [&read, &file].map(|dataset| dataset.features.as_ref().unwrap());
        assert_eq!(found.dim(), expected.dim());
        for node in 0..4 {
            assert!(found.row(node).eq(expected.row(node)), "650,000 is beyond f16");
        }
        let manifest = std::fs::read_to_string(written.join("graph.toml")).unwrap();
        assert!(manifest.contains("dtype = \"f32\""), "{manifest}");
    }
}
