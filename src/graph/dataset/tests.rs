use half::f16;
use proptest::prelude::*;

use super::*;
use crate::graph::{Adjacency, FeatureValues};

fn features(rows: usize, dim: usize) -> Features {
    let value = |at: usize| f16::from_f32((at % 97) as f32 / 8.0);
    Features::from_vec((0..rows * dim).map(value).collect(), rows, dim)
}

fn marketplace(dim: usize) -> Dataset {
    let epu = Adjacency::from_edges(3, 4, &[(0, 1), (0, 3), (2, 1)]);
    let eps = Adjacency::from_edges(4, 2, &[(0, 1), (3, 0)]);
    let euu = Adjacency::from_edges(3, 3, &[(0, 0), (1, 1), (2, 2), (0, 2), (2, 0)]);
    let names = |prefix: &str, count| (0..count).map(|at| format!("{prefix}\"{}", 9 - at)).collect();
    Dataset::new(
        HeteroGraph::marketplace(3, 4, 2, epu, eps, euu).unwrap(),
        Some(features(9, dim)),
        Some(Labels { entries: vec![(8, 1), (0, 0), (3, 1)] }),
        Some(IdMaps(vec![names("u", 3), names("p", 4), names("s", 2)])),
    )
}

fn assert_same(found: &Dataset, expected: &Dataset) {
    assert_eq!(found.graph.node_types(), expected.graph.node_types());
    let shape = |dataset: &Dataset| {
        let relations = dataset.graph.relations().iter();
        relations
            .map(|r| (r.name.clone(), r.src, r.dst, r.stream.clone(), r.primary, r.is_symmetric()))
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(found), shape(expected));
    for (found, expected) in found.graph.relations().iter().zip(expected.graph.relations()) {
        assert_eq!(found.forward, expected.forward, "{}", expected.name);
        assert_eq!(found.reverse, expected.reverse, "{}", expected.name);
    }
    let raw = |dataset: &Dataset| {
        let rows = |f: &Features| (0..f.num_rows()).map(|row| f.row(row).collect()).collect::<Vec<Vec<f32>>>();
        dataset.features.as_ref().map(|f| (f.dim(), rows(f)))
    };
    assert_eq!(raw(found), raw(expected));
    assert_eq!((&found.labels, &found.classes, &found.ids), (&expected.labels, &expected.classes, &expected.ids));
}

/// A marketplace directory to be damaged by `damage`; returns the error of opening it.
fn error_after(damage: impl FnOnce(&Path)) -> Error {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    marketplace(128).write(&dir).unwrap();
    damage(&dir);
    Dataset::open(&dir).unwrap_err()
}

fn edit(path: PathBuf, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn i32s(path: &Path) -> Vec<i32> {
    fs::read(path).unwrap().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn set_i32(path: PathBuf, index: usize, value: i32) {
    edit(path, |bytes| bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes()));
}

#[track_caller]
fn assert_names(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text}\nlacks {part}");
    }
    assert!(text.contains("help: "), "{text}");
}

#[test]
fn a_marketplace_is_read_as_it_was_written() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("new/data");
    let dataset = marketplace(128);
    let paths = dataset.write(&dir).unwrap();
    assert_eq!(paths.len(), 15);
    assert!(paths.iter().all(|path| path.is_file()));
    assert!(!dir.join("graph.toml").exists());
    let found = Dataset::open(&dir).unwrap();
    assert_same(&found, &dataset);
    assert!(found.graph.is_marketplace());
    let removed: Vec<usize> = found.graph.relations().iter().map(|r| r.loops.removed).collect();
    assert_eq!(removed, [3, 4, 4, 2, 0]);
    assert_eq!(found.graph.relations()[4].loops.in_range, 3);
}

#[test]
fn files_have_the_layout_of_the_original() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    marketplace(128).write(&dir).unwrap();
    let ids = |name: &str| i32s(&dir.join(name));
    assert_eq!(ids("epu_row_ptr.bin"), [0, 3, 4, 6]);
    assert_eq!(ids("epu_col_idx.bin"), [0, 4, 6, 1, 2, 4]);
    assert_eq!(ids("epu_T_col_idx.bin"), [3, 0, 2, 4, 5, 0, 6]);
    assert_eq!(ids("euu_col_idx.bin"), [0, 2, 1, 0, 2]);
    assert_eq!(fs::metadata(dir.join("X_combined.memmap")).unwrap().len(), 9 * 128 * 2);
    let text = fs::read_to_string(dir.join("node_id_mappings.json")).unwrap();
    assert!(text.starts_with(r#"{"user_map":{"u\"9":0,"u\"8":1,"u\"7":2},"product_map":{"p\"9":3,"#), "{text}");
    let counts = fs::read_to_string(dir.join("node_counts.json")).unwrap();
    assert_eq!(counts.split_whitespace().collect::<String>(), r#"{"users":3,"products":4,"sellers":2,"total":9}"#);
}

#[test]
fn another_feature_width_is_recorded_in_a_manifest() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    marketplace(5).write(&dir).unwrap();
    let found = Dataset::open(&dir).unwrap();
    assert_same(&found, &marketplace(5));
    assert_eq!(found.graph.relations()[0].loops.removed, 3);
}

#[test]
fn a_general_graph_is_read_as_it_was_written() {
    let citations = Adjacency::from_edges(5, 5, &[(0, 1), (1, 4), (3, 3)]);
    let similar = Adjacency::from_edges(5, 5, &[(0, 1), (1, 0)]);
    let writes = Adjacency::from_edges(5, 2, &[(0, 1), (4, 0)]);
    let relation = RelationSpec::new;
    let types = vec![("author".into(), 2), ("paper".into(), 5)];
    let specs =
        vec![relation("cites", 1, 1, citations), relation("similar", 1, 1, similar), relation("writes", 0, 1, writes)];
    let graph = HeteroGraph::with_reverse_relations(types, specs, |name| name == "cites").unwrap();
    assert_eq!(graph.relations().len(), 4);
    let dataset = Dataset::new(graph, Some(features(7, 3)), None, None);
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    dataset.write(&dir).unwrap();
    assert!(!dir.join("node_counts.json").exists());
    let found = Dataset::open(&dir).unwrap();
    assert_same(&found, &dataset);
    assert!(found.graph.relations().iter().all(|r| r.loops.removed == 0));
}

#[test]
fn a_manifest_generates_the_reverse_and_may_name_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = r#"
        [[node_types]]
        name = "a"
        count = 2
        [[node_types]]
        name = "b"
        count = 3
        [[relations]]
        name = "r"
        src = "b"
        dst = "a"
        row_ptr = "starts.i32"
        col_idx = "ends.i32"
    "#;
    fs::write(dir.path().join("graph.toml"), manifest).unwrap();
    fs::write(dir.path().join("starts.i32"), [0i32, 2, 4].map(i32::to_le_bytes).concat()).unwrap();
    fs::write(dir.path().join("ends.i32"), [0i32, 4, 2, 1].map(i32::to_le_bytes).concat()).unwrap();
    let dataset = Dataset::open(dir.path()).unwrap();
    let [r, r_t] = dataset.graph.relations() else { panic!("two relations") };
    assert_eq!((r.forward.row(0), r.forward.row(1), r.loops.removed), (&[2][..], &[0][..], 2));
    assert_eq!((r_t.name.as_str(), r_t.stream.as_str(), r_t.primary, r_t.src, r_t.dst), ("r_T", "r", false, 0, 1));
    assert!(Arc::ptr_eq(&r.reverse, &r_t.forward));
    assert!(dataset.features.is_none() && dataset.labels.is_none() && dataset.ids.is_none());
}

#[test]
fn empty_relations_and_types_are_read_as_they_were_written() {
    let relation =
        |name: &str, src, dst, rows, cols| RelationSpec::new(name, src, dst, Adjacency::from_edges(rows, cols, &[]));
    let types = vec![("a".into(), 0), ("b".into(), 2)];
    let graph = HeteroGraph::new(types, vec![relation("r", 0, 1, 2, 0), relation("s", 1, 1, 2, 2)]).unwrap();
    let dataset = Dataset::new(graph, Some(features(2, 0)), Some(Labels::default()), None);
    let parent = tempfile::tempdir().unwrap();
    dataset.write(&parent.path().join("data")).unwrap();
    assert_same(&Dataset::open(&parent.path().join("data")).unwrap(), &dataset);
}

#[test]
fn an_existing_directory_is_never_overwritten() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    fs::create_dir(&dir).unwrap();
    marketplace(128).write(&dir).unwrap();
    assert!(matches!(marketplace(128).write(&dir), Err(Error::Exists { .. })));
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(marketplace(128).write(&file), Err(Error::Exists { .. })));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
}

#[test]
fn parts_that_do_not_fit_are_refused_before_anything_is_written() {
    let parent = tempfile::tempdir().unwrap();
    let write = |change: fn(&mut Dataset)| {
        let mut dataset = marketplace(128);
        change(&mut dataset);
        dataset.write(&parent.path().join("data")).unwrap_err()
    };
    assert_names(&write(|d| d.features = Some(features(8, 128))), &["features", "9 rows", "found 8"]);
    assert_names(
        &write(|d| d.labels = Some(Labels { entries: vec![(1, 0), (1, 1)] })),
        &["label 1", "duplicate id: 1"],
    );
    assert_names(&write(|d| d.ids.as_mut().unwrap().0[1][2] = "p\"9".into()), &["nodes 0 and 2", "product"]);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn missing_files_are_named() {
    for name in ["epu_row_ptr.bin", "eps_T_col_idx.bin"] {
        let error = error_after(|dir| fs::remove_file(dir.join(name)).unwrap());
        assert!(matches!(&error, Error::Io { path, .. } if path.ends_with(name)), "{error}");
    }
    assert!(matches!(Dataset::open(Path::new("no/such/dir")), Err(Error::Io { .. })));
}

#[test]
fn a_row_ptr_of_the_wrong_length_says_what_would_fit() {
    let error = error_after(|dir| edit(dir.join("epu_row_ptr.bin"), |bytes| bytes.truncate(12)));
    assert_names(
        &error,
        &["epu_row_ptr.bin: file length", "16 bytes (i32) or 32 (i64) for 3 `user` rows", "12 bytes", "2 `user` nodes"],
    );
    let error = error_after(|dir| edit(dir.join("epu_row_ptr.bin"), |bytes| bytes.truncate(15)));
    assert_names(&error, &["epu_row_ptr.bin: file length", "found 15 bytes"]);
    let error = error_after(|dir| edit(dir.join("epu_row_ptr.bin"), Vec::clear));
    assert_names(&error, &["epu_row_ptr.bin: file length", "found 0 bytes"]);
}

#[test]
fn a_row_ptr_that_is_no_row_ptr_names_the_row() {
    let error = error_after(|dir| set_i32(dir.join("eps_row_ptr.bin"), 0, 1));
    assert_names(&error, &["eps_row_ptr.bin: row 0: expected a start of 0, found 1"]);
    let error = error_after(|dir| set_i32(dir.join("epu_row_ptr.bin"), 2, 1));
    assert_names(&error, &["epu_row_ptr.bin: row 1: expected an end of at least 3, its start, found 1"]);
    let error = error_after(|dir| set_i32(dir.join("epu_row_ptr.bin"), 1, i32::MIN));
    assert_names(&error, &["epu_row_ptr.bin: row 0", "found -2147483648"]);
}

#[test]
fn a_col_idx_of_another_length_shows_both_numbers() {
    let error = error_after(|dir| edit(dir.join("epu_col_idx.bin"), |bytes| bytes.truncate(20)));
    assert_names(
        &error,
        &[
            "epu_col_idx.bin: file length",
            "expected 6 entries (24 bytes), the last value of",
            "epu_row_ptr.bin",
            "found 5 entries (20 bytes)",
        ],
    );
    let error = error_after(|dir| edit(dir.join("epu_col_idx.bin"), |bytes| bytes.extend([0; 3])));
    assert_names(&error, &["epu_col_idx.bin: file length", "27 bytes, not a multiple of 4"]);
    let error = error_after(|dir| set_i32(dir.join("epu_row_ptr.bin"), 3, i32::MAX));
    assert_names(&error, &["epu_col_idx.bin: file length", "2147483647 entries", "found 6 entries"]);
}

#[test]
fn ids_out_of_range_name_entry_and_range() {
    // Entry 3 is the loop of user 1; another user's id there is no loop.
    for id in [2, -1, 7, i32::MAX, i32::MIN] {
        let error = error_after(|dir| set_i32(dir.join("epu_col_idx.bin"), 3, id));
        let found = format!("found id out of range: {id}");
        assert_names(
            &error,
            &["epu_col_idx.bin: entry 3, row 1: expected a `product` id in [3, 7) (or the row's own id 1)", &found],
        );
    }
}

#[test]
fn a_reverse_that_holds_other_edges_is_refused() {
    let error = error_after(|dir| set_i32(dir.join("epu_T_col_idx.bin"), 1, 1));
    assert_names(
        &error,
        &["node_counts.json: relations `epu_T` and `epu`", "the same edges, in one of them the other way round"],
    );
}

#[test]
fn features_of_the_wrong_width_or_length_say_what_would_fit() {
    let error = error_after(|dir| edit(dir.join("X_combined.memmap"), |bytes| bytes.truncate(9 * 64 * 2)));
    assert_names(
        &error,
        &["X_combined.memmap: file length", "2304 bytes: 9 nodes x 128 columns", "1152 bytes", "64 columns would fit"],
    );
    let error = error_after(|dir| edit(dir.join("X_combined.memmap"), |bytes| bytes.truncate(8 * 128 * 2)));
    assert_names(&error, &["8 nodes of 128 columns would fit"]);
    let error = error_after(|dir| edit(dir.join("X_combined.memmap"), |bytes| bytes.truncate(2301)));
    assert_names(&error, &["found 2301 bytes", "truncated"]);
    let error = error_after(|dir| edit(dir.join("X_combined.memmap"), Vec::clear));
    assert_names(&error, &["found 0 bytes", "truncated"]);
}

#[test]
fn infinite_features_name_row_and_column() {
    for (value, name) in [(f16::INFINITY, "inf"), (f16::NEG_INFINITY, "-inf")] {
        let error = error_after(|dir| {
            edit(dir.join("X_combined.memmap"), |bytes| {
                bytes[(4 * 128 + 17) * 2..][..2].copy_from_slice(&value.to_le_bytes());
            });
        });
        assert_names(&error, &["X_combined.memmap: row 4, column 17", &format!("found {name}")]);
    }
}

#[test]
fn a_feature_that_is_missing_is_written_and_read_as_such() {
    let dir = tempfile::tempdir().unwrap();
    for (at, other) in [(0, 0.5), (1, 1e6)] {
        let adjacency = Adjacency::from_edges(2, 2, &[(0, 1)]);
        let edge = RelationSpec::new("edge", 0, 0, adjacency);
        let graph = HeteroGraph::new(vec![("node".into(), 2)], vec![edge]).unwrap();
        // In f16 where that holds all that is known, and in f32.
        let features = Features::from_f32(vec![1.0, f32::NAN, other, 2.0], 2, 2);
        assert_eq!(features.missing(), [false, true]);
        let path = dir.path().join(at.to_string());
        Dataset::new(graph, Some(features), None, None).write(&path).unwrap();
        let read = Dataset::open(&path).unwrap().features.unwrap();
        assert_eq!(matches!(read.values(), FeatureValues::Half(_)), at == 0);
        assert_eq!(read.missing(), [false, true]);
        let row: Vec<f32> = read.row(0).collect();
        assert!(row[0] == 1.0 && row[1].is_nan() && read.row(1).eq([other, 2.0]));
        let error = read.check_complete(&path, Some(&["a".into(), "b".into()])).unwrap_err().to_string();
        assert!(error.contains("missing values in 1 of 2 columns, the first `b`"), "{error}");
    }
    assert!(Features::from_f32(vec![1.0, 0.0], 1, 2).check_complete(dir.path(), None).is_ok());
}

#[test]
fn absurd_counts_are_refused_without_allocating() {
    let counts = |users: u64| format!(r#"{{"users": {users}, "products": 4, "sellers": 2, "total": {}}}"#, users + 6);
    for users in [1 << 40, u64::MAX / 2, 4_000_000_000] {
        let error = error_after(|dir| {
            fs::write(dir.join("node_counts.json"), counts(users)).unwrap();
            fs::remove_file(dir.join("X_combined.memmap")).unwrap();
        });
        let name = if users > u64::from(u32::MAX) { "node_counts.json" } else { "epu_row_ptr.bin: file length" };
        assert_names(&error, &[name, &users.to_string()]);
    }
}

#[test]
fn damaged_labels_and_ids_are_refused_with_the_directory() {
    let error = error_after(|dir| edit(dir.join("labels.npy"), |bytes| bytes.truncate(bytes.len() - 1)));
    assert_names(&error, &["labels.npy: file length"]);
    let error = error_after(|dir| fs::write(dir.join("node_id_mappings.json"), "{\n\"user_map\": 3}").unwrap());
    assert_names(&error, &["node_id_mappings.json: line 2"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_marketplace_survives_a_round_trip(
        (users, products, sellers) in (1..6usize, 1..6usize, 1..4usize),
        picks in prop::collection::vec((any::<u32>(), any::<u32>()), 0..40),
    ) {
        let pairs = |rows: usize, cols: usize| -> Vec<(u32, u32)> {
            picks.iter().map(|&(row, col)| (row % rows as u32, col % cols as u32)).collect()
        };
        let mut together = pairs(users, users);
        together.extend(together.clone().into_iter().map(|(a, b)| (b, a)));
        together.extend((0..users as u32).map(|user| (user, user)));
        let graph = HeteroGraph::marketplace(
            users,
            products,
            sellers,
            Adjacency::from_edges(users, products, &pairs(users, products)),
            Adjacency::from_edges(products, sellers, &pairs(products, sellers)),
            Adjacency::from_edges(users, users, &together),
        ).unwrap();
        let dataset = Dataset::new(graph, None, None, None);
        let parent = tempfile::tempdir().unwrap();
        dataset.write(&parent.path().join("data")).unwrap();
        assert_same(&Dataset::open(&parent.path().join("data")).unwrap(), &dataset);
    }

    #[test]
    fn damaged_bytes_never_cause_a_panic(
        file in 0..15usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        keep in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let paths = marketplace(128).write(&dir).unwrap();
        edit(paths[file].clone(), |bytes| {
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Some(length) = keep {
                bytes.truncate(length.index(bytes.len()));
            }
        });
        if let Err(error) = Dataset::open(&dir) {
            prop_assert!(error.to_string().contains("data"), "{}", error);
        }
    }
}

/// A graph of three nodes with these classes and this split, written; `damage` changes its directory before it is read.
fn classified(masks: Vec<super::super::Masks>, damage: impl FnOnce(&Path)) -> Result<Dataset> {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let ring = Adjacency::from_edges(3, 3, &[(0, 1), (1, 2), (2, 0)]);
    let spec = RelationSpec::new("r", 0, 0, ring);
    let graph = HeteroGraph::new(vec![("node".into(), 3)], vec![spec]).unwrap();
    let classes = Classes::new(vec![Some(2), Some(0), Some(1)]).with_masks(masks);
    let features = Features::from_f32(vec![0.5, 1.0, -2.0], 3, 1);
    let dataset = Dataset { classes: Some(classes), ..Dataset::new(graph, Some(features), None, None) };
    dataset.write(&dir).unwrap();
    damage(&dir);
    let read = Dataset::open(&dir)?;
    assert_same(&read, &dataset);
    Ok(read)
}

fn npy(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn values_that_f16_holds_are_stored_in_f16() {
    let size = |value: f32| {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let mut dataset = marketplace(128);
        let mut values = vec![0.25f32; 9 * 128];
        values[77] = value;
        dataset.features = Some(Features::from_f32(values, 9, 128));
        dataset.write(&dir).unwrap();
        assert_same(&Dataset::open(&dir).unwrap(), &dataset);
        (fs::metadata(dir.join(FEATURES_FILE)).unwrap().len(), dir.join("graph.toml").exists())
    };
    assert_eq!([size(0.5), size(0.1)], [(9 * 128 * 2, false), (9 * 128 * 4, true)]);
}

#[test]
fn classes_and_splits_survive_and_damage_to_them_is_named() {
    let split = || super::super::Masks { train: vec![0], validation: vec![2], test: vec![1] };
    assert_eq!(classified(vec![split(), split()], |_| {}).unwrap().labels, None);
    classified(Vec::new(), |_| {}).unwrap();
    let fault = |file: &str, bytes: Vec<u8>| {
        let damage = |dir: &Path| fs::write(dir.join(file), bytes).unwrap();
        classified(vec![split()], damage).unwrap_err().to_string()
    };
    let cases = [
        ("classes.npy", npy("|i1", "(2,)", &[0, 1]), "shape: expected [3], found [2]"),
        ("classes.npy", npy("|i1", "(3,)", &[0, 1, 3]), "node 2: expected -1 or a class below 3, found 3"),
        ("classes.npy", npy("|i1", "(3,)", &[255, 255, 255]), "at least one labelled node"),
        ("classes.npy", npy("|i1", "(3,)", &[0, 1, 255]), "node 2, split 0: expected a node with a class"),
        ("classes.npy", npy("<f4", "(3,)", &[0; 12]), "dtype"),
        ("masks.npy", npy("|i1", "(3,)", &[1, 2, 3]), "shape"),
        ("masks.npy", npy("|i1", "(3, 1)", &[1, 2, 4]), "node 2, split 0: expected 0, 1, 2 or 3, found 4"),
        ("masks.npy", npy("|i1", "(3, 1)", &[1, 2, 0]), "split 0: expected at least one node in every part"),
    ];
    for (file, bytes, expected) in cases {
        let fault = fault(file, bytes);
        assert!(fault.contains(".npy: ") && fault.contains(expected), "{fault}\nlacks {expected}");
    }
}

mod spans;
