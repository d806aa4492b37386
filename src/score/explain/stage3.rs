//! Stage 3: exact Shapley values of columns and blocks, and what the sum loses without each neighbour.

use std::path::Path;

use graphsieve_kernels::GraphBackend;

use super::explanation::{BlockPart, ColumnPart, Explanation, Method, NeighbourPart};
use super::names::Names;
use super::similar::Known;
use super::{MOST_NEIGHBOURS, by_magnitude};
use crate::error::Result;
use crate::features::{Execution, FeatureTable, IncidentValues, Neighbourhood};
use crate::graph::{Adjacency, Features, HeteroGraph, Relation};
use crate::infer::tree_table::{EMBEDDING, STAGE2_EMBEDDING};
use crate::models::tree_ensemble::{TreeCheckpoint, TreeEnsemble};
use crate::trees::Matrix;

const TEXT: &str = "\
    The sum is that of any node plus what each column adds: exact Shapley values of the trees, which add up \
    exactly, over blocks of columns as over columns. A neighbour adds the sum less that without all edges \
    between the two, with the outputs of the stages before as they are; what neighbours add does not add up.";

/// What explanations of a run start from.
pub(in crate::score) struct Forest<'a> {
    pub names: &'a Names<'a>,
    pub checkpoint: &'a TreeCheckpoint,
    pub table: &'a FeatureTable,
    /// Where the data were read from.
    pub data: &'a Path,
    pub known: Option<&'a Known<'a>>,
}

impl Forest<'_> {
    /// Explains the score of a node.
    ///
    /// # Errors
    /// A node that the table does not have.
    pub fn explain<B: GraphBackend>(
        &self,
        probability: Option<f64>,
        node: u32,
        device: &B::Device,
    ) -> Result<Explanation> {
        let (names, table, ensemble) = (self.names, self.table, &self.checkpoint.ensemble);
        let feature_names = names.dataset.feature_names.as_deref().unwrap_or_default();
        let method = Method { name: "Shapley values of trees".into(), additive: false, text: TEXT.into() };
        let begun = Explanation::of(node, names, self.known, probability, method)?;
        let row = table.row(node as usize);
        let attributions = ensemble.shap(&Matrix::f32(&row, row.len())?)?;
        let value = |at: usize| attributions.values[at];
        let mut blocks: Vec<BlockPart> = table
            .blocks()
            .into_iter()
            .map(|(block, columns)| BlockPart {
                block: block.to_string(),
                contribution: columns.iter().map(|&at| value(at)).sum(),
            })
            .collect();
        let mut columns: Vec<ColumnPart> = table
            .columns()
            .iter()
            .enumerate()
            .map(|(at, column)| ColumnPart {
                column: column.named(feature_names),
                block: column.block.to_string(),
                value: row[at],
                written: None,
                contribution: value(at),
            })
            .collect();
        let (mut neighbours, more_neighbours) = self.neighbours::<B>(node, device)?;
        blocks.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        columns.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        neighbours.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        Ok(Explanation {
            unit: match ensemble {
                TreeEnsemble::Booster(_) => "log-odds".into(),
                TreeEnsemble::Forest(_) => "score".into(),
            },
            base: attributions.base,
            sum: attributions.base + attributions.values.iter().sum::<f64>(),
            blocks,
            columns,
            neighbours,
            more_neighbours,
            ..begun
        })
    }

    /// What the edges to each neighbour add: the sum less that of the graph without them. Of the neighbours with the
    /// highest scores.
    fn neighbours<B: GraphBackend>(&self, node: u32, device: &B::Device) -> Result<(Vec<NeighbourPart>, usize)> {
        let (names, table) = (self.names, self.table);
        let graph = names.graph();
        let mut ends = sources_of(graph, node);
        let Some(features) = names.dataset.features.as_ref().filter(|_| !ends.is_empty()) else {
            return Ok((Vec::new(), 0));
        };
        let score = |end: u32| names.score(end).unwrap_or(f32::NEG_INFINITY);
        ends.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        let more = ends.len().saturating_sub(MOST_NEIGHBOURS);
        ends.truncate(MOST_NEIGHBOURS);
        let config = &self.checkpoint.inputs.neighbourhood;
        let width = Neighbourhood::new(graph, features, config)?.columns().len();
        let reach = config.hops.max(config.wavelet_order) + 1;
        let ego = Ego::around(graph, node, reach, features);
        let own = ego.number(node).unwrap_or_else(|| unreachable!("a node reaches itself"));
        let sum = |row: &[f32]| -> Result<f64> {
            let attributions = self.checkpoint.ensemble.shap(&Matrix::f32(row, row.len())?)?;
            Ok(attributions.base + attributions.values.iter().sum::<f64>())
        };
        let of_node = table.row(node as usize);
        let with = sum(&of_node)?;
        let edges = config.edge_values.then(|| IncidentValues::of(names.dataset)).transpose()?;
        let mut parts = Vec::with_capacity(ends.len());
        for end in ends {
            let without = ego.without(node, end);
            let of_ego =
                Neighbourhood::new(&without, &ego.features, config)?.table::<B>(device, Execution::default())?;
            debug_assert_eq!(of_ego.columns().len(), width, "{}", self.data.display());
            // The blocks of the stages before stay as they are.
            let mut row = of_node.clone();
            row[..width].copy_from_slice(&of_ego.row(own));
            if let Some(edges) = &edges {
                let of_edges = edges.row_without(node, end);
                row[width..width + of_edges.len()].copy_from_slice(&of_edges);
            }
            let removal = with - sum(&row)?;
            parts.push(NeighbourPart {
                node: end,
                name: names.name(end),
                relation: names.relation(first_relation(graph, node, end)),
                score: names.score(end),
                label: names.label(end),
                attention: None,
                contribution: removal,
                removal: Some(removal),
                paths: Vec::new(),
                more_paths: 0,
            });
        }
        Ok((parts, more))
    }
}

/// The embeddings among the columns of a table, one row per node: of Stage 2, or else of Stage 1.
pub(in crate::score) fn embeddings_of(table: &FeatureTable) -> Option<Features> {
    let blocks = table.blocks();
    let block = |name: &str| blocks.iter().find(|(block, _)| block.to_string() == name);
    let (_, columns) = block(STAGE2_EMBEDDING).or_else(|| block(EMBEDDING))?;
    let rows = |node: usize| {
        let row = table.row(node);
        columns.iter().map(move |&at| row[at])
    };
    Some(Features::from_f32((0..table.num_rows()).flat_map(rows).collect(), table.num_rows(), columns.len()))
}

/// The first relation over which `source` leads to `node`.
fn first_relation(graph: &HeteroGraph, node: u32, source: u32) -> usize {
    let types = graph.node_types();
    let [dst, src] = [node, source].map(|node| graph.type_of(node as usize));
    let [row, column] = [(node, dst), (source, src)].map(|(node, t)| node as usize - types[t].offset);
    let leads = |relation: &Relation| {
        (relation.src, relation.dst) == (src, dst) && relation.forward.row(row).contains(&(column as u32))
    };
    graph.relations().iter().position(leads).unwrap_or_default()
}

/// The nodes with an edge to `node` over any relation, without itself.
fn sources_of(graph: &HeteroGraph, node: u32) -> Vec<u32> {
    let types = graph.node_types();
    let t = graph.type_of(node as usize);
    let mut sources = Vec::new();
    for relation in graph.relations().iter().filter(|relation| relation.dst == t) {
        let first = types[relation.src].offset as u32;
        sources.extend(relation.forward.row(node as usize - types[t].offset).iter().map(|&source| first + source));
    }
    sources.retain(|&source| source != node);
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// The nodes within some edges of one, with the edges among them: enough for the features of that node, since only
/// nodes on the border lack edges.
struct Ego<'a> {
    graph: &'a HeteroGraph,
    /// Global ids, ascending.
    nodes: Vec<u32>,
    features: Features,
}

impl<'a> Ego<'a> {
    fn around(graph: &'a HeteroGraph, node: u32, reach: usize, features: &Features) -> Self {
        let mut nodes = vec![node];
        let mut border = vec![node];
        for _ in 0..reach {
            let mut next: Vec<u32> = border.iter().flat_map(|&node| sources_of(graph, node)).collect();
            next.sort_unstable();
            next.dedup();
            next.retain(|node| nodes.binary_search(node).is_err());
            nodes.extend(&next);
            nodes.sort_unstable();
            border = next;
        }
        let values: Vec<f32> = nodes.iter().flat_map(|&node| features.row(node as usize)).collect();
        let features = Features::from_f32(values, nodes.len(), features.dim());
        Self { graph, nodes, features }
    }

    fn number(&self, node: u32) -> Option<usize> {
        self.nodes.binary_search(&node).ok()
    }

    /// The graph of these nodes without the edges between `a` and `b`.
    fn without(&self, a: u32, b: u32) -> HeteroGraph {
        let types = self.graph.node_types();
        let first = |t: usize| self.nodes.partition_point(|&node| (node as usize) < types[t].offset);
        let count = |t: usize| {
            self.nodes.partition_point(|&node| (node as usize) < types[t].offset + types[t].count) - first(t)
        };
        let kept = |relation: &Relation| {
            let (src, dst) = (relation.src, relation.dst);
            let mut edges = Vec::new();
            for (row, &node) in self.nodes[first(dst)..first(dst) + count(dst)].iter().enumerate() {
                for &source in relation.forward.row(node as usize - types[dst].offset) {
                    let source = types[src].offset as u32 + source;
                    let cut = (node, source) == (a, b) || (node, source) == (b, a);
                    if let (false, Some(at)) = (cut, self.number(source)) {
                        edges.push((row as u32, (at - first(src)) as u32));
                    }
                }
            }
            Adjacency::from_edges(count(dst), count(src), &edges)
        };
        let counts: Vec<usize> = (0..types.len()).map(count).collect();
        self.graph.with_rows(&counts, self.graph.relations().iter().map(kept).collect())
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::features::NeighbourhoodConfig;
    use crate::graph::{Dataset, RelationSpec};

    /// A path of typed nodes: users 0 to 5, products 6 to 8.
    fn dataset() -> Dataset {
        let buys = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (0, 2)];
        let adjacency = Adjacency::from_edges(6, 3, &buys);
        let relation = RelationSpec::new;
        let reverse = adjacency.reverse();
        let relations = vec![relation("up", 1, 0, adjacency), relation("pu", 0, 1, reverse)];
        let graph = HeteroGraph::new(vec![("user".into(), 6), ("product".into(), 3)], relations).unwrap();
        let features = Features::from_f32((0..18).map(|k| ((k * 7) % 11) as f32).collect(), 9, 2);
        Dataset::new(graph, Some(features), None, None)
    }

    #[test]
    fn the_features_of_a_node_need_only_the_nodes_around_it() {
        let dataset = dataset();
        let features = dataset.features.as_ref().unwrap();
        let config = NeighbourhoodConfig { max: true, sum: true, ..Default::default() };
        let of = |graph: &HeteroGraph, features: &Features| {
            Neighbourhood::new(graph, features, &config)
                .unwrap()
                .table::<Flex>(&FlexDevice, Execution::default())
                .unwrap()
        };
        let whole = of(&dataset.graph, features);
        for node in 0..9 {
            let ego = Ego::around(&dataset.graph, node, 3, features);
            // Nothing is cut between a node and itself.
            let part = of(&ego.without(node, node), &ego.features);
            let row = part.row(ego.number(node).unwrap());
            for (at, (a, b)) in whole.row(node as usize).iter().zip(row).enumerate() {
                assert!((a - b).abs() < 1e-5, "node {node}, {}: {a} and {b}", whole.columns()[at].name);
            }
        }
        let ego = Ego::around(&dataset.graph, 0, 3, features);
        let cut = of(&ego.without(0, 6), &ego.features);
        assert_ne!(cut.row(ego.number(0).unwrap()), whole.row(0));
    }

    #[test]
    fn sources_of_a_node_are_those_of_all_relations_into_it() {
        let graph = dataset().graph;
        assert_eq!(sources_of(&graph, 0), [6, 8]);
        assert_eq!(graph.relations()[first_relation(&graph, 0, 8)].name, "up");
    }
}
