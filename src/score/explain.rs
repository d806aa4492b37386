//! Why trees gave one node its score: exact Shapley values of columns and blocks, and what each neighbour adds.

use std::fmt;
use std::path::Path;

use graphsieve_kernels::GraphBackend;
use serde::Serialize;

use super::trees::{TableOptions, table};
use crate::error::{Error, Result};
use crate::features::{Execution, FeatureTable, Neighbourhood};
use crate::graph::{Adjacency, Dataset, Features, HeteroGraph, RelationSpec};
use crate::models::tree_ensemble::{TreeCheckpoint, TreeEnsemble, matrix};
use crate::trees::Matrix;

/// Neighbours whose part is computed: those with the highest scores.
pub const MOST_NEIGHBOURS: usize = 20;

/// One column of the node.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnPart {
    pub column: String,
    pub block: String,
    pub value: f32,
    /// What it adds to the sum.
    pub contribution: f64,
}

/// All columns of one block.
#[derive(Clone, Debug, Serialize)]
pub struct BlockPart {
    pub block: String,
    /// What they add to the sum.
    pub contribution: f64,
}

/// One neighbour.
#[derive(Clone, Debug, Serialize)]
pub struct NeighbourPart {
    pub node: u32,
    pub name: String,
    /// The neighbour's own score.
    pub score: f32,
    /// The sum less what it would be without the edges between the two.
    pub contribution: f64,
}

/// Why a node has its score.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub node: u32,
    pub name: String,
    pub score: f32,
    /// What is summed: log-odds of a booster, the score of a forest.
    pub unit: &'static str,
    /// What a node of which nothing is known has.
    pub base: f64,
    /// `base` and all contributions.
    pub sum: f64,
    /// By magnitude.
    pub blocks: Vec<BlockPart>,
    /// By magnitude.
    pub columns: Vec<ColumnPart>,
    /// By magnitude; of the neighbourhood blocks alone.
    pub neighbours: Vec<NeighbourPart>,
    /// Neighbours that were left out.
    pub more_neighbours: usize,
}

/// Explains the score of one node.
///
/// # Errors
/// As for [`table`]; a node that the graph does not have.
pub fn explain<B: GraphBackend>(
    options: &TableOptions,
    checkpoint: &TreeCheckpoint,
    dataset: &Dataset,
    node: u32,
    device: &B::Device,
) -> Result<Explanation> {
    let table = table::<B>(options, checkpoint, dataset, device)?;
    let ensemble = &checkpoint.ensemble;
    let scores = ensemble.predict(&matrix(&table)?)?;
    let attributions = ensemble.shap(&Matrix::f32(table.row(node as usize), table.columns().len())?)?;
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
            column: column.name.clone(),
            block: column.block.to_string(),
            value: table.row(node as usize)[at],
            contribution: value(at),
        })
        .collect();
    let (mut neighbours, more_neighbours) =
        neighbours::<B>(options.data, checkpoint, dataset, node, &table, &scores, device)?;
    blocks.sort_by(|a, b| b.contribution.abs().total_cmp(&a.contribution.abs()));
    columns.sort_by(|a, b| b.contribution.abs().total_cmp(&a.contribution.abs()));
    neighbours.sort_by(|a, b| b.contribution.abs().total_cmp(&a.contribution.abs()));
    Ok(Explanation {
        node,
        name: name_of(dataset, node),
        score: scores[node as usize],
        unit: match ensemble {
            TreeEnsemble::Booster(_) => "log-odds",
            TreeEnsemble::Forest(_) => "score",
        },
        base: attributions.base,
        sum: attributions.base + attributions.values.iter().sum::<f64>(),
        blocks,
        columns,
        neighbours,
        more_neighbours,
    })
}

/// `type:id` in the words of the data, `type:number` where nodes have no ids.
pub fn name_of(dataset: &Dataset, node: u32) -> String {
    let of_type = &dataset.graph.node_types()[dataset.graph.type_of(node as usize)];
    match dataset.ids.as_ref().and_then(|ids| ids.get(node as usize)) {
        Some(id) => format!("{}:{id}", of_type.name),
        None => format!("{}:{}", of_type.name, node as usize - of_type.offset),
    }
}

/// The node that `text` names: a global number, `type:number`, an original id or `type:id`.
///
/// # Errors
/// [`Error::Usage`] when there is no such node, or several.
pub fn node_of(dataset: &Dataset, text: &str) -> Result<u32> {
    let graph = &dataset.graph;
    let unknown = |found: &str, help: &str| Error::Usage {
        argument: format!("--node {text}"),
        expected: format!("a node: a number below {}, TYPE:ID, or an id of the data", graph.num_nodes()),
        found: found.into(),
        help: help.into(),
    };
    if let Some((kind, id)) = text.split_once(':')
        && let Some(t) = graph.node_types().iter().position(|of_type| of_type.name == kind)
    {
        let of_type = &graph.node_types()[t];
        let by_id = dataset.ids.as_ref().and_then(|ids| ids.0.get(t)?.iter().position(|known| known == id));
        let by_number = id.parse::<usize>().ok().filter(|&number| number < of_type.count && dataset.ids.is_none());
        let help = "ids are those of the tables that the data came from; numbers count from 0 within the type";
        return match by_id.or(by_number) {
            Some(number) => Ok((of_type.offset + number) as u32),
            None => Err(unknown("no such node of that type", help)),
        };
    }
    if let Some(ids) = &dataset.ids {
        match ids.index().get(text) {
            Some(Some(node)) => return Ok(*node),
            Some(None) => return Err(unknown("an id of several node types", "write TYPE:ID")),
            None => {}
        }
    }
    let number = text.parse::<usize>().ok().filter(|&number| number < graph.num_nodes());
    number
        .map(|number| number as u32)
        .ok_or_else(|| unknown("no such node", "global numbers count from 0 over all types"))
}

/// What the edges to each neighbour add: the sum less that of the graph without them.
fn neighbours<B: GraphBackend>(
    path: &Path,
    checkpoint: &TreeCheckpoint,
    dataset: &Dataset,
    node: u32,
    table: &FeatureTable,
    scores: &[f32],
    device: &B::Device,
) -> Result<(Vec<NeighbourPart>, usize)> {
    let graph = &dataset.graph;
    let mut ends = sources_of(graph, node);
    let Some(features) = dataset.features.as_ref().filter(|_| !ends.is_empty()) else { return Ok((Vec::new(), 0)) };
    ends.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
    let more = ends.len().saturating_sub(MOST_NEIGHBOURS);
    ends.truncate(MOST_NEIGHBOURS);
    let config = &checkpoint.inputs.neighbourhood;
    let width = Neighbourhood::new(graph, features, config)?.columns().len();
    let reach = config.hops.max(config.wavelet_order) + 1;
    let ego = Ego::around(graph, node, reach, features);
    let own = ego.number(node).unwrap_or_else(|| unreachable!("a node reaches itself"));
    let sum = |row: &[f32]| -> Result<f64> {
        let attributions = checkpoint.ensemble.shap(&Matrix::f32(row, row.len())?)?;
        Ok(attributions.base + attributions.values.iter().sum::<f64>())
    };
    let with = sum(table.row(node as usize))?;
    let mut parts = Vec::with_capacity(ends.len());
    for end in ends {
        let without = ego.without(node, end)?;
        let of_ego = Neighbourhood::new(&without, &ego.features, config)?.table::<B>(device, Execution::default())?;
        debug_assert_eq!(of_ego.columns().len(), width, "{}", path.display());
        // The blocks of the stages before stay as they are.
        let mut row = table.row(node as usize).to_vec();
        row[..width].copy_from_slice(of_ego.row(own));
        parts.push(NeighbourPart {
            node: end,
            name: name_of(dataset, end),
            score: scores[end as usize],
            contribution: with - sum(&row)?,
        });
    }
    Ok((parts, more))
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

/// The nodes within some edges of one, with the edges among them: enough for the features of that node, since only nodes
/// on the border lack edges.
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
    fn without(&self, a: u32, b: u32) -> Result<HeteroGraph> {
        let types = self.graph.node_types();
        let first = |t: usize| self.nodes.partition_point(|&node| (node as usize) < types[t].offset);
        let count = |t: usize| {
            self.nodes.partition_point(|&node| (node as usize) < types[t].offset + types[t].count) - first(t)
        };
        let node_types = (0..types.len()).map(|t| (types[t].name.clone(), count(t))).collect();
        let mut relations = Vec::new();
        for relation in self.graph.relations() {
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
            relations.push(RelationSpec {
                name: relation.name.clone(),
                src,
                dst,
                stream: relation.stream.clone(),
                primary: relation.primary,
                adjacency: Adjacency::from_edges(count(dst), count(src), &edges),
            });
        }
        HeteroGraph::new(node_types, relations)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COLUMNS: usize = 12;
        writeln!(f, "{}  score {:.4}", self.name, self.score)?;
        writeln!(f, "{} {:+.4} = {:+.4} of any node, and:\n", self.unit, self.sum, self.base)?;
        writeln!(f, "{:<28}{:>12}", "block", "adds")?;
        for part in &self.blocks {
            writeln!(f, "{:<28}{:>+12.4}", part.block, part.contribution)?;
        }
        writeln!(f, "\n{:<28}{:>12}{:>14}", "column", "adds", "value")?;
        for part in self.columns.iter().take(COLUMNS).filter(|part| part.contribution != 0.0) {
            writeln!(f, "{:<28}{:>+12.4}{:>14.5}", part.column, part.contribution, part.value)?;
        }
        if self.neighbours.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<28}{:>12}{:>14}", "neighbour", "adds", "its score")?;
        for part in self.neighbours.iter().take(COLUMNS) {
            writeln!(f, "{:<28}{:>+12.4}{:>14.4}", part.name, part.contribution, part.score)?;
        }
        match self.more_neighbours {
            0 => Ok(()),
            more => writeln!(f, "and {more} neighbours with lower scores"),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::features::NeighbourhoodConfig;

    /// A path of typed nodes: users 0 to 5, products 6 to 8.
    fn dataset() -> Dataset {
        let buys = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (0, 2)];
        let adjacency = Adjacency::from_edges(6, 3, &buys);
        let relation = |name: &str, src, dst, adjacency| RelationSpec {
            name: name.into(),
            src,
            dst,
            stream: name.into(),
            primary: true,
            adjacency,
        };
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
            let part = of(&ego.without(node, node).unwrap(), &ego.features);
            let row = part.row(ego.number(node).unwrap());
            for (at, (a, b)) in whole.row(node as usize).iter().zip(row).enumerate() {
                assert!((a - b).abs() < 1e-5, "node {node}, {}: {a} and {b}", whole.columns()[at].name);
            }
        }
        let ego = Ego::around(&dataset.graph, 0, 3, features);
        let cut = of(&ego.without(0, 6).unwrap(), &ego.features);
        assert_ne!(cut.row(ego.number(0).unwrap()), whole.row(0));
    }

    #[test]
    fn nodes_are_found_by_number_and_by_type() {
        let dataset = dataset();
        assert_eq!((node_of(&dataset, "7").unwrap(), node_of(&dataset, "product:1").unwrap()), (7, 7));
        assert_eq!(name_of(&dataset, 7), "product:1");
        for wrong in ["9", "product:3", "seller:0", ""] {
            assert_eq!(node_of(&dataset, wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        assert_eq!(sources_of(&dataset.graph, 0), [6, 8]);
    }
}
