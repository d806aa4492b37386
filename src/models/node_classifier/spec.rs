//! The shape of a node classifier, as checkpoints keep it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::EdgeCut;
use crate::config::{ClassifyModel, EdgeReads, Jump, LayerKind, Norm};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, HeteroGraph};
use crate::models::attention::{Connections, EdgeInput, edge_inputs, graph_with_edges, inputs_for, time_input};

/// The shape of a [`NodeClassifier`](super::NodeClassifier), and what its input is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassifierSpec {
    /// Kind of all layers.
    pub layer: LayerKind,
    /// Columns of the features.
    pub input: usize,
    /// Channels between layers, all heads together.
    pub hidden: usize,
    /// Columns of the result.
    pub classes: usize,
    /// Number of layers.
    pub layers: usize,
    /// Of graph attention.
    pub attention: Option<AttentionShape>,
    /// Whether the features of every node are divided by the sum of their absolute values.
    pub row_normalise: bool,
    /// Whether edges of an `.npz` file lead one way only.
    pub directed: bool,
    /// Names of the node types, where there are several types or relations; empty for one type with one relation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// The relations of `types`, each of which has weights of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<RelationShape>,
    /// Places of the relations whose edges have weights that the layers read, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weighted: Vec<usize>,
    /// By relation of the graph: what attention reads of its edges. Empty where it reads nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Option<EdgeInput>>,
    /// What is beside the layers: normalisation, and more of those with a transform of nodes themselves.
    #[serde(flatten)]
    pub connections: Connections,
    /// Order of the wavelets, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<usize>,
    /// Most nodes two edges away that a node reads, 0 for all, where it reads any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_hops: Option<usize>,
    /// Which edges are cut, of `ghrn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<EdgeCut>,
}

/// A relation that a classifier has weights for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelationShape {
    /// Name of the relation.
    pub name: String,
    /// Node type of the sources, as a place in [`ClassifierSpec::types`].
    pub src: usize,
    /// Node type of the destinations.
    pub dst: usize,
}

/// Heads of a graph attention classifier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Of every layer but the last; concatenated.
    pub heads: usize,
    /// Of the last layer; averaged.
    pub out_heads: usize,
    /// Slope of LeakyReLU below zero.
    pub negative_slope: f64,
    /// Share of the attention coefficients that training drops.
    pub dropout: f64,
}

impl AttentionShape {
    /// The heads that a configuration asks for.
    pub fn of(model: &ClassifyModel) -> Option<Self> {
        let attention = model.attention.as_ref()?;
        Some(Self {
            heads: attention.heads,
            out_heads: attention.out_heads,
            negative_slope: attention.negative_slope,
            dropout: attention.attention_dropout,
        })
    }
}

impl ClassifierSpec {
    /// Layers of a kind alone, without whatever else there may be.
    pub fn new(layer: LayerKind, [input, hidden, classes]: [usize; 3], layers: usize) -> Self {
        Self {
            layer,
            input,
            hidden,
            classes,
            layers,
            attention: None,
            row_normalise: false,
            directed: false,
            types: Vec::new(),
            relations: Vec::new(),
            weighted: Vec::new(),
            edges: Vec::new(),
            connections: Connections::default(),
            order: None,
            two_hops: None,
            cut: None,
        }
    }

    /// Whether there are several node types or relations.
    pub fn is_typed(&self) -> bool {
        !self.types.is_empty()
    }

    /// Whether a node has a transform of its own beside one for each relation: everywhere but in convolution and
    /// attention on one type with one relation, where it has a loop, and in attention also there where edges are read,
    /// since a loop has no values.
    pub fn has_own(&self) -> bool {
        self.is_typed() || self.layer.has_own() || !self.edges.is_empty()
    }

    /// Whether a linear head reads all layers.
    pub fn has_head(&self) -> bool {
        self.connections.jump != Jump::None
    }

    /// Whether rows are normalised before an activation.
    pub fn is_normalised(&self) -> bool {
        self.connections.norm == Norm::Layer
    }

    /// Columns before layer `at` and after it.
    pub fn widths(&self, at: usize) -> [usize; 2] {
        let last = at + 1 == self.layers && !self.has_head();
        [if at == 0 { self.input } else { self.hidden }, if last { self.classes } else { self.hidden }]
    }

    /// Columns of all heads of layer `at` side by side.
    pub fn heads_width(&self, at: usize) -> usize {
        let averaged = self.attention.filter(|_| at + 1 == self.layers).map_or(1, |shape| shape.out_heads);
        averaged * self.widths(at)[1]
    }

    /// Relations of the graph that the layers read.
    pub fn num_relations(&self) -> usize {
        self.relations.len().max(1) + usize::from(self.two_hops.is_some())
    }

    /// The same shape for the types and relations of a graph.
    ///
    /// # Errors
    /// [`Error::Data`] for a graph without a relation, [`Error::Config`] for one that the layers do not take.
    pub fn over(self, graph: &HeteroGraph) -> Result<Self> {
        let (types, relations) = shape_of(graph);
        let several = [graph.node_types().len(), graph.relations().len()];
        if !graph.relations().is_empty() && !self.layer.takes(several[0], several[1]) {
            let one = if self.layer.is_wavelets() { "one node type" } else { "one node type with one relation" };
            let [types, relations] = several;
            let expected = format!("a graph with {one}, not {types} node types and {relations} relations");
            let help = "set model.layer = \"sage\" or \"difference\", which have a transform for each relation";
            return Err(Error::setting("model.layer", format!("\"{}\"", self.layer.name()), expected, help));
        }
        if graph.relations().is_empty() {
            return Err(Error::Data {
                what: "relations".into(),
                expected: "at least one, for node classification".into(),
                found: "none".into(),
                help: "describe the edges of the graph".into(),
            });
        }
        Ok(Self { types, relations, ..self })
    }

    /// The same shape, whose layers read all weights of edges that the graph has.
    pub fn with_weights_of(self, graph: &HeteroGraph) -> Self {
        let relations = graph.relations().iter().enumerate();
        Self { weighted: relations.filter(|(_, of)| of.weights.is_some()).map(|(at, _)| at).collect(), ..self }
    }

    /// The same shape, whose attention reads of the edges of the graph what it was given of them.
    pub fn with_edges_of(self, reads: EdgeReads, graph: &HeteroGraph) -> Self {
        if !reads.any() {
            return self;
        }
        Self { edges: edge_inputs(graph, time_input(reads, graph).as_ref()), ..self }
    }

    /// A graph as the layers read it: the values of its edges are those that attention reads, or the weights that
    /// others read, which it has. Convolution on one type adds loops, so that those of the graph weigh nothing. Nodes
    /// two edges away are one more relation, and edges are cut by the `features` of the nodes.
    pub fn reading(&self, graph: HeteroGraph, features: &Features) -> HeteroGraph {
        if !self.edges.is_empty() {
            return graph;
        }
        let of_loops = if self.has_own() { None } else { Some(0.0) };
        let graph = graph.with_weights_as_values(|at| self.weighted.contains(&at), of_loops);
        let graph = match self.two_hops {
            None => graph,
            Some(most) => graph.with_two_hops(most),
        };
        match &self.cut {
            None => graph,
            Some(cut) => cut.of(graph, features),
        }
    }

    /// The graph of some data with these `features` as the layers read it; `file` is the checkpoint.
    ///
    /// # Errors
    /// As [`check_graph`](Self::check_graph), [`Dataset::graph_with_weights_of`], [`graph_with_edges`] and
    /// [`inputs_for`].
    pub fn graph_for(&self, dataset: &Dataset, features: &Features, file: &Path) -> Result<HeteroGraph> {
        self.check_graph(&dataset.graph, file)?;
        if !self.edges.is_empty() {
            let graph = graph_with_edges(&self.edges, dataset)?;
            inputs_for(&self.edges, &graph, file)?;
            return Ok(graph);
        }
        let relations = dataset.graph.relations();
        let read: Vec<&str> = self.weighted.iter().map(|&at| relations[at].name.as_str()).collect();
        Ok(self.reading(dataset.graph_with_weights_of(&read, file)?, features))
    }

    /// Fails unless a graph has the types and relations of the model; `file` is the checkpoint.
    ///
    /// # Errors
    /// [`Error::Format`] that names both.
    pub(super) fn check_graph(&self, graph: &HeteroGraph, file: &Path) -> Result<()> {
        let of_graph = shape_of(graph);
        if (&of_graph.0, &of_graph.1) == (&self.types, &self.relations) {
            return Ok(());
        }
        let in_words = |types: &[String], relations: &[RelationShape]| match types {
            [] => "one node type with one relation".to_string(),
            _ => {
                let names: Vec<&str> = relations.iter().map(|relation| relation.name.as_str()).collect();
                format!("types {}; relations {}", types.join(", "), names.join(", "))
            }
        };
        let expected = in_words(&self.types, &self.relations);
        let help = "give data with the types and relations that the model was trained on, in the same order";
        Err(Error::format(file, "relations", expected, in_words(&of_graph.0, &of_graph.1), help))
    }

    /// Refuses what no model has: a checkpoint may say anything.
    pub(super) fn check(&self) -> Result<()> {
        let positive = [
            ("layers", self.layers),
            ("input", self.input),
            ("hidden", self.hidden),
            ("classes", self.classes),
            ("heads", self.attention.map_or(1, |shape| shape.heads)),
            ("out_heads", self.attention.map_or(1, |shape| shape.out_heads)),
        ];
        let refused = |key: &str, expected: String, found: String| {
            let help = "the checkpoint is damaged or was made by another version; train again";
            Err(Error::Data { what: format!("model.{key}"), expected, found, help: help.into() })
        };
        if let Some((key, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return refused(key, "at least 1".into(), "0".into());
        }
        let types = self.types.len();
        if let Some(relation) = self.relations.iter().find(|relation| relation.src.max(relation.dst) >= types) {
            return refused("relations", format!("node types below {types}"), format!("{relation:?}"));
        }
        let relations = self.relations.len().max(1);
        if self.weighted.iter().any(|&at| at >= relations) || !self.weighted.is_empty() && !self.layer.reads_weights() {
            let expected = format!("relations below {relations} of a graph convolution or of means");
            return refused("edge_weights", expected, format!("{:?} of {:?}", self.weighted, self.layer));
        }
        if !self.edges.is_empty() && (self.layer != LayerKind::Gat || self.edges.len() != relations) {
            let expected = format!("what gat reads of the edges of {relations} relations");
            return refused("edges", expected, format!("{} of {:?}", self.edges.len(), self.layer));
        }
        let of_layer = [
            ("attention", "gat", self.layer == LayerKind::Gat, self.attention.is_some()),
            ("order", "bw and ghrn", self.layer.is_wavelets(), self.order.is_some_and(|order| order > 0)),
            ("two_hops", "h2gcn", self.layer == LayerKind::H2gcn, self.two_hops.is_some()),
            ("cut", "ghrn", self.layer == LayerKind::Ghrn, self.cut.is_some()),
        ];
        for (key, layers, wanted, found) in of_layer {
            if wanted != found {
                let expected = format!("some for {layers} and none for others, here {}", self.layer.name());
                return refused(key, expected, if found { "some" } else { "none" }.into());
            }
        }
        let Connections { residual, norm, jump, .. } = self.connections;
        let plain = Connections { norm, ..Connections::default() };
        let beside = self.layer.has_own() && jump != Jump::Max;
        if self.connections != if beside { Connections { residual, jump, ..plain } } else { plain } {
            let expected = format!("connections that {} has", self.layer.name());
            return refused("jump", expected, format!("{:?}", self.connections));
        }
        if self.layer == LayerKind::H2gcn && types > 0 || self.layer.is_wavelets() && types > 1 {
            return refused("types", "one node type".into(), format!("{types} types or several relations"));
        }
        if let Some(EdgeCut { share, prediction }) = &self.cut {
            let columns = prediction.weights().len();
            if columns != self.input || !(0.0..1.0).contains(share) {
                let expected = format!("a share in [0, 1) and {} weights", self.input);
                return refused("cut", expected, format!("{share} and {columns}"));
            }
        }
        let Some(shape) = self.attention else { return Ok(()) };
        if !self.hidden.is_multiple_of(shape.heads) {
            return refused("hidden", format!("a multiple of {} heads", shape.heads), self.hidden.to_string());
        }
        if !(0.0..1.0).contains(&shape.dropout) {
            return refused("attention.dropout", "a share in [0, 1)".into(), shape.dropout.to_string());
        }
        if !shape.negative_slope.is_finite() {
            return refused("attention.negative_slope", "a number".into(), shape.negative_slope.to_string());
        }
        Ok(())
    }
}

/// Types and relations as a spec holds them: none of one type with one relation.
fn shape_of(graph: &HeteroGraph) -> (Vec<String>, Vec<RelationShape>) {
    if graph.node_types().len() == 1 && graph.relations().len() == 1 {
        return Default::default();
    }
    let relations = graph.relations().iter();
    (
        graph.node_types().iter().map(|of_type| of_type.name.clone()).collect(),
        relations.map(|r| RelationShape { name: r.name.clone(), src: r.src, dst: r.dst }).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_describes_no_model_is_refused() {
        let attention = Some(AttentionShape { heads: 2, out_heads: 1, negative_slope: 0.2, dropout: 0.5 });
        let good =
            ClassifierSpec { attention, row_normalise: true, ..ClassifierSpec::new(LayerKind::Gat, [3, 4, 2], 2) };
        assert!(good.check().is_ok());
        let with = |attention| ClassifierSpec { attention, ..good.clone() };
        let shape = |heads, dropout| attention.map(|shape| AttentionShape { heads, dropout, ..shape });
        let jump = Connections { jump: Jump::Concat, ..Connections::default() };
        let ones = Features::from_f32(vec![0.0, 1.0, 2.0, 1.0, 1.0, 3.0], 2, 3);
        let cut = EdgeCut::fit(0.5, &ones, &[(0, 0), (1, 1)]).unwrap();
        let ghrn = ClassifierSpec { layer: LayerKind::Ghrn, order: Some(2), attention: None, ..good.clone() };
        let cuts = |share| Some(EdgeCut { share, ..cut.clone() });
        assert!(ClassifierSpec { cut: cuts(0.5), ..ghrn.clone() }.check().is_ok());
        let normalised = Connections { norm: Norm::Layer, ..Connections::default() };
        assert!(ClassifierSpec { connections: normalised, ..good.clone() }.check().is_ok());
        let gated = Connections { gate: true, ..Connections::default() };
        let nowhere = RelationShape { name: "knows".into(), src: 0, dst: 1 };
        let wrong = [
            ("model.layers", ClassifierSpec { layers: 0, ..good.clone() }),
            ("model.classes", ClassifierSpec { classes: 0, ..good.clone() }),
            ("model.relations", ClassifierSpec { types: vec!["a".into()], relations: vec![nowhere], ..good.clone() }),
            ("model.edge_weights", ClassifierSpec { weighted: vec![0], ..good.clone() }),
            ("model.attention", with(None)),
            ("model.order", ClassifierSpec { order: Some(2), ..good.clone() }),
            ("model.two_hops", ClassifierSpec { two_hops: Some(2), ..good.clone() }),
            ("model.cut", ClassifierSpec { cut: cuts(0.5), ..good.clone() }),
            ("model.cut", ghrn.clone()),
            ("model.cut", ClassifierSpec { cut: cuts(1.0), ..ghrn.clone() }),
            ("model.cut", ClassifierSpec { cut: cuts(0.5), input: 9, ..ghrn }),
            ("model.jump", ClassifierSpec { connections: jump, ..good.clone() }),
            ("model.jump", ClassifierSpec { connections: gated, ..good.clone() }),
            ("model.heads", with(shape(0, 0.5))),
            ("model.hidden", with(shape(3, 0.5))),
            ("model.attention.dropout", with(shape(2, 1.0))),
        ];
        for (key, spec) in wrong {
            let message = spec.check().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }
}
