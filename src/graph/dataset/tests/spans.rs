//! Rows as spans on disk.

use super::*;
use crate::graph::Values;

/// Five payments of two cards, of which each has the earlier ones of its card as a span.
fn histories() -> Dataset {
    let spans = Adjacency::from_spans(vec![0, 0, 3, 1, 3], vec![0, 1, 3, 2, 4], vec![0, 1, 3, 2, 4], 5).unwrap();
    let relation = |name: &str, adjacency| RelationSpec::new(name, 1, 1, adjacency);
    let relations = vec![relation("earlier", spans), relation("lists", Adjacency::from_edges(5, 5, &[(0, 1)]))];
    let types = vec![("card".into(), 2), ("payment".into(), 5)];
    let graph = HeteroGraph::with_reverse_relations(types, relations, |name| name == "earlier").unwrap();
    Dataset::new(graph, None, None, None)
}

#[test]
fn rows_as_spans_are_stored_once_and_read_as_they_were_written() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let dataset = histories();
    dataset.write(&dir).unwrap();
    assert_eq!(i32s(&dir.join("earlier_col_idx.bin")), [0, 1, 3, 2, 4]);
    assert_eq!(i32s(&dir.join("earlier_row_start.bin")), [0, 0, 3, 1, 3]);
    assert_eq!(i32s(&dir.join("earlier_row_end.bin")), [0, 1, 3, 2, 4]);
    assert!(!dir.join("earlier_row_ptr.bin").exists() && !dir.join("lists_row_start.bin").exists());
    assert_same(&Dataset::open(&dir).unwrap(), &dataset);
}

#[test]
fn bad_spans_are_named_by_file_and_row() {
    let error = |change: &dyn Fn(&Path)| {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        histories().write(&dir).unwrap();
        change(&dir);
        Dataset::open(&dir).unwrap_err()
    };
    let set = |file: &'static str, at, value| move |dir: &Path| set_i32(dir.join(file), at, value);
    let (start, end, entries) = ("earlier_row_start.bin", "earlier_row_end.bin", "earlier_col_idx.bin");
    assert_names(
        &error(&set(start, 3, -1)),
        &["earlier_row_start.bin: row 3: expected a start of at least 0, found -1"],
    );
    assert_names(&error(&set(end, 3, 0)), &["earlier_row_end.bin: row 3: expected an end of at least 1", "found 0"]);
    assert_names(&error(&set(end, 4, 6)), &["earlier_row_end.bin: row 4: expected an end of at most 5", "found 6"]);
    assert_names(&error(&set(entries, 2, 5)), &["earlier_col_idx.bin: entry 2", "[0, 5)", "id out of range: 5"]);
    let cut = |dir: &Path| edit(dir.join("earlier_row_end.bin"), |bytes| bytes.truncate(12));
    assert_names(
        &error(&cut),
        &["earlier_row_end.bin: file length", "20 bytes (i32) or 40 (i64)", "3 `payment` nodes"],
    );
    let cut = |dir: &Path| edit(dir.join("earlier_col_idx.bin"), |bytes| bytes.truncate(18));
    assert_names(&error(&cut), &["earlier_col_idx.bin: file length", "18 bytes"]);
    let manifest = |from: &'static str, to: &'static str| {
        move |dir: &Path| {
            let text = fs::read_to_string(dir.join("graph.toml")).unwrap();
            assert!(text.contains(from), "{text}");
            fs::write(dir.join("graph.toml"), text.replace(from, to)).unwrap();
        }
    };
    let given = "row_end = \"earlier_row_end.bin\"\n";
    assert_names(&error(&manifest(given, "")), &["`earlier`, row_end", "their starts alone"]);
    let with_weights = "row_end = \"earlier_row_end.bin\"\nweight = \"w.bin\"\n";
    assert_names(&error(&manifest(given, with_weights)), &["`earlier`, weight", "where rows share entries"]);
}

#[test]
fn spans_of_events_are_in_the_order_of_time_and_end_before_their_row() {
    let parent = tempfile::tempdir().unwrap();
    let no = Events::NO_TIME;
    let open = |name: &str, time: [i64; 5]| {
        let time = [vec![no; 2], time.to_vec()].concat();
        let events = Some(Events { known: vec![Events::NEVER; 7], time, amount: None, value: None, alert: None });
        let dir = parent.path().join(name);
        Dataset { events, ..histories() }.write(&dir).unwrap();
        Dataset::open(&dir)
    };
    // Cards have 0, 1, 3 and 2, 4.
    assert!(open("fine", [1, 2, 1, 3, 2]).is_ok());
    assert!(open("entities", [no, 2, no, 3, no]).is_ok());
    let place = "rows of relation `earlier`: expected spans of events in the order of time";
    assert_names(&open("order", [4, 2, 5, 5, 6]).unwrap_err(), &["graph.toml", "row 1 of relation `earlier`"]);
    let wide = || {
        let spans = Adjacency::from_spans(vec![0], vec![2], vec![1, 0], 2).unwrap();
        let spec = RelationSpec {
            name: "earlier".into(),
            src: 0,
            dst: 1,
            stream: "e".into(),
            primary: true,
            adjacency: spans,
        };
        let types = vec![("old".into(), 2), ("new".into(), 1)];
        let graph = HeteroGraph::new(types, vec![spec]).unwrap();
        let events =
            Some(Events { known: vec![Events::NEVER; 3], time: vec![1, 2, 9], amount: None, value: None, alert: None });
        Dataset { events, ..Dataset::new(graph, None, None, None) }
    };
    wide().write(&parent.path().join("wide")).unwrap();
    assert_names(&Dataset::open(&parent.path().join("wide")).unwrap_err(), &["graph.toml", place]);
}

#[test]
fn values_of_edges_that_share_entries_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let values = EdgeValues {
        relation: "earlier".into(),
        weight: Some(Values::Made(vec![1.0; 5].into())),
        time: None,
        columns: None,
    };
    let dataset = Dataset { edge_values: vec![values], ..histories() };
    let error = dataset.write(&parent.path().join("data")).unwrap_err();
    assert_names(&error, &["values of edges of `earlier`", "rows as spans"]);
}
