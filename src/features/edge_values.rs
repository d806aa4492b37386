//! What the edges to a node carry: means and ends of their values, relation by relation.

use std::sync::Arc;

use rayon::prelude::*;

use super::columns::{Block, Column};
use crate::error::Result;
use crate::graph::{
    Adjacency, Dataset, EdgeMatrix, Events, HeteroGraph, MAX_EDGE_COLUMNS, Relation, Subset, missing_flags,
};

/// What is made of a value of all edges to a node.
const PARTS: [&str; 3] = ["mean", "min", "max"];

/// The values of the edges of some data as columns of the nodes that they lead to. Of every relation with values there
/// are the mean, the smallest and the largest of each: `pays.edge_mean.e0`, called `pays.edge_mean.amount`. A generated
/// reverse has columns of its own, so that a node is told by what leads to it and by what leads from it.
///
/// A value that an edge lacks, as the column beside it says ([`missing_flags`]), does not count, whatever stands in
/// its place. A node without such an edge, or without such a value, has none of them (NaN). Edges count that were there
/// when the node was: an edge with a time that leads to an event has none after that of the event.
pub struct IncidentValues {
    relations: Vec<Incident>,
    columns: Vec<Column>,
    nodes: usize,
}

/// Those of one relation.
struct Incident {
    /// The first nodes of the types at both ends.
    src: usize,
    dst: usize,
    forward: Arc<Adjacency>,
    /// NaN where an edge is later than its event.
    values: Arc<EdgeMatrix>,
    /// By column the one that says where its value is missing.
    flags: Vec<Option<usize>>,
    /// Where its columns begin.
    first: usize,
}

/// Sum and number, smallest and largest of some values.
#[derive(Clone, Copy)]
struct Summary {
    sum: f64,
    count: usize,
    min: f32,
    max: f32,
}

impl Summary {
    const NONE: Self = Self { sum: 0.0, count: 0, min: f32::INFINITY, max: f32::NEG_INFINITY };

    fn add(&mut self, value: f32) {
        self.sum += f64::from(value);
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// As [`PARTS`] names them.
    fn parts(self) -> [f32; PARTS.len()] {
        match self.count {
            0 => [f32::NAN; PARTS.len()],
            count => [(self.sum / count as f64) as f32, self.min, self.max],
        }
    }
}

impl IncidentValues {
    /// Those of some data; without a column where no edge has values.
    ///
    /// # Errors
    /// Values or times of edges that cannot be read.
    pub fn of(dataset: &Dataset) -> Result<Self> {
        let graph = dataset.graph_with_edge_values()?;
        let (mut relations, mut columns) = (Vec::new(), Vec::new());
        for (relation, names) in graph.relations().iter().zip(dataset.edge_value_names()) {
            let Some(values) = &relation.values else { continue };
            let first = columns.len();
            for (part, (at, name)) in PARTS.iter().flat_map(|part| names.iter().enumerate().map(move |of| (part, of))) {
                let prefix = format!("{}.edge_{part}.", relation.name);
                let (name, title) = (format!("{prefix}e{at}"), Some(format!("{prefix}{name}")));
                columns.push(Column { name, block: Block::Edges, title });
            }
            let [src, dst] = [relation.src, relation.dst].map(|t| graph.node_types()[t].offset);
            let values = without_later(dataset, &graph, relation, values)?;
            let flags = missing_flags(&names);
            relations.push(Incident { src, dst, forward: relation.forward.clone(), values, flags, first });
        }
        Ok(Self { relations, columns, nodes: graph.num_nodes() })
    }

    /// Names of the columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The values of all nodes, or of the nodes of a part of the data by what its edges carry: `[nodes, columns]`,
    /// row-major.
    pub fn rows(&self, part: Option<&Subset>) -> Vec<f32> {
        match part {
            None => self.rows_of(&(0..self.nodes as u32).collect::<Vec<_>>(), |_| true),
            Some(part) => {
                let places = part.places(self.nodes);
                self.rows_of(&part.nodes, |node| places[node as usize].is_some())
            }
        }
    }

    /// The values of a node without the edges from one of its neighbours.
    pub fn row_without(&self, node: u32, neighbour: u32) -> Vec<f32> {
        self.rows_of(&[node], |source| source != neighbour)
    }

    /// Those of some nodes by the edges from sources with `keep`.
    fn rows_of(&self, nodes: &[u32], keep: impl Fn(u32) -> bool + Sync) -> Vec<f32> {
        let width = self.columns.len();
        let mut rows = vec![f32::NAN; nodes.len() * width];
        if width == 0 {
            return rows;
        }
        rows.par_chunks_exact_mut(width).zip(nodes).with_min_len(64).for_each(|(row, &node)| {
            self.relations.iter().for_each(|of| of.write(node as usize, &keep, row));
        });
        rows
    }
}

impl Incident {
    fn write(&self, node: usize, keep: impl Fn(u32) -> bool, row: &mut [f32]) {
        let own = node.checked_sub(self.dst).filter(|&own| own < self.forward.num_rows());
        let Some(own) = own else { return };
        let mut summaries = [Summary::NONE; MAX_EDGE_COLUMNS];
        for (entry, &source) in self.forward.entries(own).zip(self.forward.row(own)) {
            let values = self.values.row(entry);
            if keep(self.src as u32 + source) && !values[0].is_nan() {
                for ((summary, &value), flag) in summaries.iter_mut().zip(values).zip(&self.flags) {
                    if flag.is_none_or(|flag| values[flag] != 1.0) {
                        summary.add(value);
                    }
                }
            }
        }
        let width = self.values.width();
        for (at, summary) in summaries[..width].iter().enumerate() {
            for (part, value) in summary.parts().into_iter().enumerate() {
                row[self.first + part * width + at] = value;
            }
        }
    }
}

/// The values of a relation, NaN for edges that are later than the event that they lead to.
fn without_later(
    dataset: &Dataset,
    graph: &HeteroGraph,
    relation: &Relation,
    values: &Arc<EdgeMatrix>,
) -> Result<Arc<EdgeMatrix>> {
    let (Some(events), Some(times)) = (&dataset.events, dataset.edge_times(&relation.name)?) else {
        return Ok(values.clone());
    };
    let (width, first) = (values.width(), graph.node_types()[relation.dst].offset);
    let mut kept = values.values().to_vec();
    for row in 0..relation.forward.num_rows() {
        let time = events.time[first + row];
        let later = |entry: &usize| time != Events::NO_TIME && times[*entry] > time;
        for entry in relation.forward.entries(row).filter(later) {
            kept[entry * width..(entry + 1) * width].fill(f32::NAN);
        }
    }
    Ok(Arc::new(EdgeMatrix::new(kept, width)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{EdgeColumns, EdgeValues, RelationSpec, Values};

    /// Payments among accounts, a loop and two of the same two accounts among them: source, destination, two values.
    const PAID: [(u32, u32, [f32; 2]); 7] = [
        (0, 1, [2.0, -1.0]),
        (0, 1, [5.0, 0.5]),
        (2, 1, [-4.0, 3.0]),
        (3, 0, [1.0, 1.0]),
        (1, 3, [7.0, 2.0]),
        (3, 3, [0.25, 9.0]),
        (2, 0, [6.0, -2.0]),
    ];

    /// Five accounts, the last of which neither pays nor is paid.
    fn payments() -> Dataset {
        let edges: Vec<(u32, u32)> = PAID.iter().map(|&(src, dst, _)| (dst, src)).collect();
        let mut row_ptr = vec![0u64];
        let (mut cols, mut values) = (Vec::new(), Vec::new());
        for row in 0..5 {
            for (at, _) in edges.iter().enumerate().filter(|(_, edge)| edge.0 == row) {
                cols.push(edges[at].1);
                values.extend(PAID[at].2);
            }
            row_ptr.push(cols.len() as u64);
        }
        let adjacency = Adjacency::new(row_ptr, cols, 5).unwrap();
        let spec = RelationSpec::new("pays", 0, 0, adjacency);
        let types = vec![("account".into(), 5)];
        let graph = HeteroGraph::with_reverse_relations(types, vec![spec], |_| false).unwrap();
        let columns = EdgeColumns { names: vec!["amount".into(), "a fee".into()], values: Values::Made(values.into()) };
        let carried = EdgeValues { relation: "pays".into(), weight: None, time: None, columns: Some(columns) };
        Dataset { edge_values: vec![carried], ..Dataset::new(graph, None, None, None) }
    }

    /// The columns of a node by plain loops over the payments that `is_there` says of.
    fn expected(node: u32, is_there: impl Fn(u32, u32) -> bool) -> Vec<f32> {
        let mut row = Vec::new();
        for incoming in [true, false] {
            let own = PAID.iter().filter(|&&(src, dst, _)| {
                (if incoming { dst } else { src }) == node && is_there(if incoming { src } else { dst }, node)
            });
            let columns: Vec<Vec<f32>> = (0..2).map(|k| own.clone().map(|paid| paid.2[k]).collect()).collect();
            let or_missing = |of: &Vec<f32>, value: f32| if of.is_empty() { f32::NAN } else { value };
            row.extend(columns.iter().map(|of| or_missing(of, of.iter().sum::<f32>() / of.len() as f32)));
            row.extend(columns.iter().map(|of| or_missing(of, of.iter().copied().fold(f32::INFINITY, f32::min))));
            row.extend(columns.iter().map(|of| or_missing(of, of.iter().copied().fold(f32::NEG_INFINITY, f32::max))));
        }
        row
    }

    fn same(got: &[f32], want: &[f32]) -> bool {
        let close = |(a, b): (&f32, &f32)| a.is_nan() && b.is_nan() || (a - b).abs() < 1e-6;
        got.len() == want.len() && got.iter().zip(want).all(close)
    }

    #[test]
    fn columns_of_edges_are_those_of_a_plain_loop() {
        let data = payments();
        let incident = IncidentValues::of(&data).unwrap();
        let names: Vec<&str> = incident.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names[..4], ["pays.edge_mean.e0", "pays.edge_mean.e1", "pays.edge_min.e0", "pays.edge_min.e1"]);
        assert_eq!((names.len(), names[6]), (12, "pays_T.edge_mean.e0"));
        // The names of features have no part in it.
        assert_eq!(incident.columns()[5].named(&["x".into(), "y".into()]), "pays.edge_max.a fee");
        let rows = incident.rows(None);
        for (node, row) in rows.chunks(12).enumerate() {
            let want = expected(node as u32, |_, _| true);
            assert!(same(row, &want), "{node}: {row:?} for {want:?}");
            for neighbour in 0..5 {
                let want = expected(node as u32, |source, _| source != neighbour);
                assert!(same(&incident.row_without(node as u32, neighbour), &want), "{node} without {neighbour}");
            }
        }
        assert!(rows[48..].iter().all(|value| value.is_nan()), "no edge leads to or from the last account");
        // Of a part there are the edges between its nodes.
        let part = data.subset(&[true, true, false, true, false]);
        for (row, node) in incident.rows(Some(&part)).chunks(12).zip([0, 1, 3]) {
            assert!(same(row, &expected(node, |source, _| source != 2)), "{node}: {row:?}");
        }
        let plain = Dataset { edge_values: Vec::new(), ..payments() };
        assert!(IncidentValues::of(&plain).unwrap().columns().is_empty());
    }

    /// A card that is used by events at 10 and 20, each over an edge with a time of its own, the second one twice.
    fn uses(times: [i64; 3], values: [f32; 3]) -> Dataset {
        let adjacency = Adjacency::new(vec![0, 1, 3], vec![0, 0, 0], 1).unwrap();
        let spec = RelationSpec::new("used", 0, 1, adjacency);
        let graph = HeteroGraph::new(vec![("card".into(), 1), ("payment".into(), 2)], vec![spec]).unwrap();
        let columns = EdgeColumns { names: vec!["fee".into()], values: Values::Made(values.to_vec().into()) };
        let (time, columns) = (Some(Values::Made(times.to_vec().into())), Some(columns));
        let carried = EdgeValues { relation: "used".into(), weight: None, time, columns };
        let time = vec![Events::NO_TIME, 10, 20];
        let events = Some(Events { known: vec![Events::NEVER; 3], time, amount: None, value: None, alert: None });
        Dataset { edge_values: vec![carried], events, ..Dataset::new(graph, None, None, None) }
    }

    #[test]
    fn a_value_that_is_missing_does_not_count() {
        let mut data = uses([10, 3, 20], [0.0; 3]);
        let names = ["fee", "fee_missing", "kind_frequency", "kind_missing"].map(String::from).to_vec();
        // What stands for a fee that is missing is the median. The last payment uses the card twice.
        let values = vec![0.5, 1.0, 0.0, 1.0, 0.5, 1.0, 0.75, 0.0, -3.0, 0.0, 0.25, 0.0];
        data.edge_values[0].columns = Some(EdgeColumns { names, values: Values::Made(values.into()) });
        let rows = IncidentValues::of(&data).unwrap().rows(None);
        let none = f32::NAN;
        assert!(same(&rows[12..24], &[none, 1.0, none, 1.0, none, 1.0, none, 1.0, none, 1.0, none, 1.0]), "{rows:?}");
        let [means, least, most] = [[-3.0, 0.5, 0.5, 0.0], [-3.0, 0.0, 0.25, 0.0], [-3.0, 1.0, 0.75, 0.0]];
        assert!(same(&rows[24..], &[means, least, most].concat()), "{rows:?}");
    }

    #[test]
    fn an_edge_that_is_later_than_its_event_tells_it_nothing() {
        let rows = |times, values| IncidentValues::of(&uses(times, values)).unwrap().rows(None);
        let all = rows([10, 3, 20], [1.0, 2.0, 6.0]);
        assert!(all[..3].iter().all(|value| value.is_nan()) && all[3..] == [1.0, 1.0, 1.0, 4.0, 2.0, 6.0]);
        // One of them is not there yet.
        assert_eq!(rows([10, 3, 21], [1.0, 2.0, 6.0])[3..], [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        let [without, other] = [6.0, -9.0].map(|later| rows([11, 3, 21], [1.0, 2.0, later]));
        assert!(without[3..6].iter().all(|value| value.is_nan()) && same(&without, &other));
    }
}
