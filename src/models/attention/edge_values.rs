//! What attention makes of the values of edges.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Csr, EdgeTerm, GatConfig, GraphBackend, ScoreColumns, attend_edges, linear};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::models::parameters::{Export, Init, Parameters};
use crate::nn::RelationEdges;

/// A relation whose edges have values that the model reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeInput {
    /// Name of the relation.
    pub relation: String,
    /// Number of values.
    pub width: usize,
}

/// The parameters of the values of a relation's edges in a layer.
#[derive(Module, Debug)]
pub(super) struct EdgeAttention<B: Backend> {
    /// `[values, out]`
    projection: Param<Tensor<B, 2>>,
    /// `[out]`
    attention: Param<Tensor<B, 1>>,
}

/// Those of all relations in a layer; the list is empty where no relation has any.
#[derive(Module, Debug)]
pub(super) struct EdgeLayer<B: Backend> {
    relations: Vec<Option<EdgeAttention<B>>>,
}

/// The names of the projection and of the attention vector of a relation in a layer, counted from 0.
pub(crate) fn edge_names(layer: usize, relation: &str) -> [String; 2] {
    let name = |part: &str| format!("gat{}.{part}_edge_{relation}", layer + 1);
    [format!("{}.weight", name("W")), name("a")]
}

impl<B: Backend> EdgeLayer<B> {
    /// Builds the parameters of a layer of `output` columns.
    pub fn new(
        layer: usize,
        inputs: &[Option<EdgeInput>],
        output: usize,
        parameters: &mut Parameters<B>,
    ) -> Result<Self> {
        let mut of_relation = |input: &EdgeInput| {
            let [weight, vector] = edge_names(layer, &input.relation);
            let width = input.width;
            Ok(EdgeAttention {
                projection: parameters.weight(&weight, [width, output], Init::xavier_uniform(width, output))?,
                attention: parameters.vector(&vector, output, Init::xavier_normal(output, 1))?,
            })
        };
        let relations = inputs.iter().map(|input| input.as_ref().map(&mut of_relation).transpose());
        Ok(Self { relations: relations.collect::<Result<_>>()? })
    }

    /// Adds the parameters under their names.
    pub fn export(&self, layer: usize, inputs: &[Option<EdgeInput>], export: &mut Export) {
        for (edges, input) in self.relations.iter().zip(inputs) {
            if let (Some(edges), Some(input)) = (edges, input) {
                let [weight, vector] = edge_names(layer, &input.relation);
                export.weight(weight, &edges.projection);
                export.vector(vector, &edges.attention);
            }
        }
    }

    /// Of a layer that reads nothing of edges.
    pub fn none() -> Self {
        Self { relations: Vec::new() }
    }

    /// What is read of edges: the parameters of their relation and their values.
    pub fn of<'a>(&'a self, edges: &'a RelationEdges<B>) -> Option<ReadEdges<'a, B>> {
        let parameters = self.relations.get(edges.relation)?.as_ref()?;
        let values = edges.values.as_ref();
        // A model with parameters for them was made for a graph that has them.
        Some(ReadEdges {
            parameters,
            values: values.unwrap_or_else(|| unreachable!("edges have the values of the graph")),
        })
    }
}

/// Values of edges and what a layer makes of them.
pub(super) struct ReadEdges<'a, B: Backend> {
    parameters: &'a EdgeAttention<B>,
    /// A row per edge.
    values: &'a Tensor<B, 2>,
}

impl<B: GraphBackend> ReadEdges<'_, B> {
    /// Attention with scores of destinations and sources: sums of rows of `h_src`, and what the values add to the
    /// result, projected.
    pub fn attend(
        &self,
        csr: &Csr<B>,
        h_src: Tensor<B, 2>,
        [dst, src]: [ScoreColumns<B>; 2],
        heads: usize,
        config: GatConfig,
    ) -> [Tensor<B, 2>; 2] {
        let term = self.term(h_src.dtype(), heads);
        let (sums, weighed) = attend_edges(csr, h_src, dst, src, term, heads, config);
        [sums, self.parameters.project(weighed, heads)]
    }

    /// What the edges carry, beside features of a data type.
    pub fn term(&self, dtype: DType, heads: usize) -> EdgeTerm<B> {
        let values = self.values.clone();
        let values = if values.dtype() == dtype { values } else { values.cast(dtype) };
        EdgeTerm { values: Some(values), time: None, logit: self.parameters.logit(heads) }
    }

    /// The projection of values, `[values, out]`.
    pub fn projection(&self) -> Tensor<B, 2> {
        self.parameters.projection.val()
    }
}

impl<B: GraphBackend> EdgeAttention<B> {
    /// The vector behind the edges' share of the scores, `<a_h, W_h e>`: `[heads, values]`.
    fn logit(&self, heads: usize) -> Tensor<B, 2> {
        let weight = self.projection.val();
        let [width, output] = weight.dims();
        let of_channels = weight * self.attention.val().reshape([1, output]);
        of_channels.reshape([width, heads, output / heads]).sum_dim(2).reshape([width, heads]).transpose()
    }

    /// What values that were weighed and added up, `[rows, heads * values]`, add to the result: `W_h v_h`, heads side by
    /// side.
    fn project(&self, weighed: Tensor<B, 2>, heads: usize) -> Tensor<B, 2> {
        let weight = self.projection.val();
        let [width, output] = weight.dims();
        if heads == 1 {
            return linear(weighed, weight, None);
        }
        // One product: a head's values meet its own columns alone.
        let own = Tensor::<B, 2>::eye(heads, &weight.device()).reshape([heads, 1, heads, 1]);
        let of_heads = weight.reshape([1, width, heads, output / heads]) * own;
        linear(weighed, of_heads.reshape([heads * width, output]), None)
    }
}

/// One vector per head, `[heads, channels]`, as rows over all channels: `[heads, heads * channels]`.
pub(super) fn by_head<B: Backend>(vectors: Tensor<B, 2>) -> Tensor<B, 2> {
    let [heads, channels] = vectors.dims();
    let own = Tensor::<B, 2>::eye(heads, &vectors.device()).reshape([heads, heads, 1]);
    (vectors.reshape([heads, 1, channels]) * own).reshape([heads, heads * channels])
}
