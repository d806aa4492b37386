//! The neighbourhood of some nodes as data of their own.

use std::collections::BTreeMap;

use half::f16;

use super::made::MadeRows;
use crate::error::Result;
use crate::graph::{Dataset, EdgeColumns, EdgeValues, Events, FeatureValues, Features, HeteroGraph, NodeType, Values};

/// What a model reads to score some nodes: they, what they are joined to, and what that is joined to, as far as the
/// model looks.
///
/// Rows of its graph are those of the whole graph, or what was drawn of them, in the same order; nodes are numbered in
/// the order in which they were found, type by type. So the same neighbourhood is the same part, bit for bit.
#[derive(Clone, Debug)]
pub struct Part {
    /// Types, relations, features and events as the whole has them, of these nodes; ids, labels, names of columns, and
    /// of events all but their times and when labels became known, where they were asked for
    /// ([`Draw::named`](super::Draw::named)).
    pub dataset: Dataset,
    /// What is scored, by global id in the part.
    pub targets: Vec<u32>,
    /// By global id in the part: the node in the data that were refreshed last, by global id there, if it was in them.
    /// What was computed then, such as embeddings, has a row for it.
    pub refreshed: Vec<Option<u32>>,
    /// By global id in the part, where it was asked for ([`Draw::makes`](super::Draw::makes)): what was made of a node,
    /// and places to keep the rest.
    pub made: BTreeMap<u32, MadeRows>,
}

impl Part {
    /// Parts of one graph as one, without an edge between two of them: of every type the nodes of one behind those of
    /// another ([`HeteroGraph::side_by_side`]), and the targets of all, one part behind another. Labels, ids, names
    /// of columns, ends, and of events all but their times and when labels became known are left out.
    ///
    /// # Errors
    /// What edges carry that cannot be read.
    ///
    /// # Panics
    /// Without a part.
    pub fn join(parts: &[Self]) -> Result<Self> {
        let graphs: Vec<&HeteroGraph> = parts.iter().map(|part| &part.dataset.graph).collect();
        let graph = HeteroGraph::side_by_side(&graphs);
        let (mut targets, mut made) = (Vec::new(), BTreeMap::new());
        // Of the next part: where its nodes of every type begin.
        let mut first: Vec<usize> = graph.node_types().iter().map(|of| of.offset).collect();
        for part in parts {
            let own = part.dataset.graph.node_types();
            let joined = |&node: &u32| {
                let t = part.dataset.graph.type_of(node as usize);
                (first[t] + node as usize - own[t].offset) as u32
            };
            targets.extend(part.targets.iter().map(joined));
            made.extend(part.made.iter().map(|(node, rows)| (joined(node), rows.clone())));
            first.iter_mut().zip(own).for_each(|(first, of)| *first += of.count);
        }
        let refreshed = spans(parts, &graph, |at| &parts[at].refreshed[..], 1);
        let features: Option<Vec<&Features>> = parts.iter().map(|part| part.dataset.features.as_ref()).collect();
        let features = features.map(|features| joined_features(parts, &graph, &features));
        let events: Option<Vec<&Events>> = parts.iter().map(|part| part.dataset.events.as_ref()).collect();
        let events = events.map(|events| {
            let of = |values: fn(&Events) -> &Vec<i64>| spans(parts, &graph, |at| &values(events[at])[..], 1);
            Events { time: of(|of| &of.time), known: of(|of| &of.known), amount: None, value: None, alert: None }
        });
        let edge_values = joined_values(parts)?;
        let dataset = Dataset { edge_values, events, ..Dataset::new(graph, features, None, None) };
        Ok(Self { dataset, targets, refreshed, made })
    }

    /// The nodes at most so many edges from the targets, in ascending order.
    pub fn within(&self, edges: usize) -> Vec<u32> {
        self.around(&self.targets, edges)
    }

    /// The nodes at most so many edges from some nodes, in ascending order.
    pub fn around(&self, nodes: &[u32], edges: usize) -> Vec<u32> {
        let graph = &self.dataset.graph;
        let types = graph.node_types();
        let (mut found, mut first) = (nodes.to_vec(), 0);
        let mut is_found = vec![false; graph.num_nodes()];
        found.retain(|&node| !std::mem::replace(&mut is_found[node as usize], true));
        for _ in 0..edges {
            for at in std::mem::replace(&mut first, found.len())..found.len() {
                let (node, t) = (found[at] as usize, graph.type_of(found[at] as usize));
                for relation in graph.relations().iter().filter(|relation| relation.dst == t) {
                    let sources = relation.forward.row(node - types[t].offset);
                    let sources = sources.iter().map(|&source| types[relation.src].offset as u32 + source);
                    found.extend(sources.filter(|&node| !std::mem::replace(&mut is_found[node as usize], true)));
                }
            }
        }
        found.sort_unstable();
        found
    }
}

/// The rows of all parts, which `rows` gives by their place, type by type; of `width` values each.
fn spans<'a, T: Copy + 'a>(
    parts: &[Part],
    graph: &HeteroGraph,
    rows: impl Fn(usize) -> &'a [T],
    width: usize,
) -> Vec<T> {
    let mut all = Vec::with_capacity(graph.num_nodes() * width);
    for t in 0..graph.node_types().len() {
        for (at, part) in parts.iter().enumerate() {
            let NodeType { offset, count, .. } = part.dataset.graph.node_types()[t];
            all.extend_from_slice(&rows(at)[offset * width..(offset + count) * width]);
        }
    }
    all
}

fn joined_features(parts: &[Part], graph: &HeteroGraph, features: &[&Features]) -> Features {
    let (nodes, dim) = (graph.num_nodes(), features[0].dim());
    let halves: Option<Vec<&[f16]>> = features
        .iter()
        .map(|features| match features.values() {
            FeatureValues::Half(values) => Some(values),
            FeatureValues::Single(_) => None,
        })
        .collect();
    match halves {
        Some(halves) => Features::from_vec(spans(parts, graph, |at| halves[at], dim), nodes, dim),
        None => {
            let wide = |features: &&Features| (0..features.num_rows()).flat_map(|node| features.row(node)).collect();
            let singles: Vec<Vec<f32>> = features.iter().map(wide).collect();
            Features::from_f32(spans(parts, graph, |at| &singles[at][..], dim), nodes, dim)
        }
    }
}

/// What the edges of a relation carry in all parts, where they do.
fn joined_values(parts: &[Part]) -> Result<Vec<EdgeValues>> {
    let joined = |of: &EdgeValues| {
        let (mut weight, mut time, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for Part { dataset, .. } in parts {
            weight.extend_from_slice(&dataset.edge_weights(&of.relation)?.unwrap_or_default());
            time.extend_from_slice(&dataset.edge_times(&of.relation)?.unwrap_or_default());
            columns.extend(dataset.edge_columns(&of.relation)?.iter().flat_map(|columns| columns.values()));
        }
        let names = of.columns.as_ref().map(|columns| columns.names.clone());
        Ok(EdgeValues {
            relation: of.relation.clone(),
            weight: of.weight.is_some().then(|| Values::Made(weight.into())),
            time: of.time.is_some().then(|| Values::Made(time.into())),
            columns: names.map(|names| EdgeColumns { names, values: Values::Made(columns.into()) }),
        })
    };
    parts.first().map_or(&[][..], |part| &part.dataset.edge_values).iter().map(joined).collect()
}
