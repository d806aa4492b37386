//! What attention makes of the values and ages of edges.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{Csr, EdgeTerm, GatConfig, GraphBackend, ScoreColumns, attend_edges};

use super::ages::{TimeInput, export_time};
use super::edge_inputs::EdgeInput;
use crate::error::Result;
use crate::models::parameters::{Export, Init, Parameters};
use crate::nn::{EdgeFeatures, RelationEdges, TimeEncoder, folded, projected_by_head};

/// The parameters of what a relation's edges carry in a layer.
#[derive(Module, Debug)]
pub(super) struct EdgeAttention<B: Backend> {
    /// `[columns, out]`
    projection: Param<Tensor<B, 2>>,
    /// `[out]`
    attention: Param<Tensor<B, 1>>,
    time: Option<TimeEncoder<B>>,
}

/// Those of all relations in a layer; the list is empty where no relation has any.
#[derive(Module, Debug)]
pub(in crate::models) struct EdgeLayer<B: Backend> {
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
            let width = input.columns();
            let projection = parameters.weight(&weight, [width, output], Init::xavier_uniform(width, output))?;
            let attention = parameters.vector(&vector, output, Init::xavier_normal(output, 1))?;
            let time = |time: &TimeInput| time.encoder(layer, &input.relation, parameters);
            Ok(EdgeAttention { projection, attention, time: input.time.as_ref().map(time).transpose()? })
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
                if let Some(time) = &edges.time {
                    export_time(time, layer, &input.relation, export);
                }
            }
        }
    }

    /// Of a layer that reads nothing of edges.
    pub fn none() -> Self {
        Self { relations: Vec::new() }
    }

    /// What is read of edges: the parameters of their relation, and what they carry.
    pub fn of<'a>(&'a self, edges: &'a RelationEdges<B>) -> Option<ReadEdges<'a, B>> {
        let parameters = self.relations.get(edges.relation)?.as_ref()?;
        let carried = EdgeFeatures { values: edges.values.clone(), age: edges.age.clone() };
        Some(ReadEdges { parameters, carried })
    }
}

/// What edges carry, and what a layer makes of it.
pub(in crate::models) struct ReadEdges<'a, B: Backend> {
    parameters: &'a EdgeAttention<B>,
    carried: EdgeFeatures<B>,
}

impl<B: GraphBackend> ReadEdges<'_, B> {
    /// Attention with scores of destinations and sources: sums of rows of `h_src`, and what the edges carry adds to the
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
        [sums, projected_by_head(weighed, self.projection(), heads)]
    }

    /// What the edges carry, beside features of a data type.
    pub fn term(&self, dtype: DType, heads: usize) -> EdgeTerm<B> {
        let time = self.carried.encoding(self.parameters.time.as_ref());
        EdgeTerm { values: self.carried.clone().of_dtype(dtype).values, time, logit: self.parameters.logit(heads) }
    }

    /// The projection of what they carry, `[columns, out]`.
    pub fn projection(&self) -> Tensor<B, 2> {
        self.parameters.projection.val()
    }
}

impl<B: GraphBackend> EdgeAttention<B> {
    /// The vector behind the edges' share of the scores, `<a_h, W_h e>`: `[heads, columns]`.
    fn logit(&self, heads: usize) -> Tensor<B, 2> {
        let weight = self.projection.val();
        let channels = weight.dims()[1] / heads;
        folded(weight, self.attention.val().reshape([heads, channels]))
    }
}
