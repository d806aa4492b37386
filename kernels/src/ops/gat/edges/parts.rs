//! What edges carry, and its gradients, as primitives.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::{Slice, TensorMetadata};

use crate::graph::csr::Csr;
use crate::ops::gat::scalars::GatScalars;

/// [`EdgeTerm`](super::EdgeTerm) as primitives.
#[derive(Clone, Debug)]
pub struct EdgeParts<F, I> {
    /// `[num_edges, value_columns]`.
    pub values: Option<F>,
    pub value_columns: usize,
    pub age: Option<AgeParts<F, I>>,
    pub log_age: bool,
    pub cosines: usize,
    /// f32: the logit vectors of all heads, of [`gatv2`](crate::gatv2) none, then frequencies, then phases.
    pub parameters: F,
    /// The edges of the entries at hand, where these are not in the order of the edges.
    pub edge_map: Option<I>,
}

/// [`Age`](super::Age) as primitives.
#[derive(Clone, Debug)]
pub enum AgeParts<F, I> {
    Edges(F),
    Nodes { dst: I, src: I },
}

/// What edges add up to.
#[derive(Clone, Debug)]
pub struct EdgeSums<F> {
    /// `[num_rows, heads * columns]`, in the dtype of the features.
    pub out: F,
    /// The share of it that edges with a positive score contributed; made on request.
    pub positive: Option<F>,
}

/// What the reverse pass reads.
#[derive(Clone, Debug)]
pub struct EdgeBackward<F, I> {
    /// The gradient of the result.
    pub g: F,
    pub h_src: F,
    pub scalars: GatScalars<F>,
    /// Whether the gradient of what edges add up to is among the scalars; else it is zero.
    pub of_sums: bool,
    pub edges: EdgeParts<F, I>,
    /// Whether the gradient of the values is asked for.
    pub of_values: bool,
}

/// What the reverse pass gives.
#[derive(Clone, Debug)]
pub struct EdgeGradients<F> {
    /// Of the source features, where asked for.
    pub features: Option<F>,
    /// Of the matrix of the sources' scores.
    pub score: F,
    /// Of [`EdgeParts::parameters`].
    pub parameters: F,
    pub values: Option<F>,
}

impl<F, I> EdgeParts<F, I> {
    /// Columns of what an edge carries.
    pub fn columns(&self) -> usize {
        self.value_columns + usize::from(self.log_age) + self.cosines
    }

    /// The first column of a cosine.
    pub fn first_cosine(&self) -> usize {
        self.value_columns + usize::from(self.log_age)
    }

    /// Whether there is something per edge.
    pub fn per_edge(&self) -> bool {
        self.values.is_some() || matches!(self.age, Some(AgeParts::Edges(_)))
    }

    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> EdgeParts<G, I> {
        EdgeParts {
            values: self.values.map(&f),
            value_columns: self.value_columns,
            age: self.age.map(|age| match age {
                AgeParts::Edges(ages) => AgeParts::Edges(f(ages)),
                AgeParts::Nodes { dst, src } => AgeParts::Nodes { dst, src },
            }),
            log_age: self.log_age,
            cosines: self.cosines,
            parameters: f(self.parameters),
            edge_map: self.edge_map,
        }
    }
}

impl<F: Clone, I: Clone> EdgeParts<F, I> {
    /// Of one head alone.
    pub(crate) fn head<B: Backend<FloatTensorPrimitive = F, IntTensorPrimitive = I>>(&self, head: usize) -> Self
    where
        F: TensorMetadata,
    {
        let (columns, all) = (self.columns(), self.parameters.shape()[0]);
        let part = |range: Range<usize>| B::float_slice(self.parameters.clone(), &[Slice::from(range)]);
        let own = head * columns..(head + 1) * columns;
        let parameters = match all - 2 * self.cosines == columns {
            true => self.parameters.clone(),
            false if self.cosines == 0 => part(own),
            false => B::float_cat(vec![part(own), part(all - 2 * self.cosines..all)], 0),
        };
        Self { parameters, ..self.clone() }
    }

    /// For the entries of `csr`.
    pub(crate) fn of_rows<B: Backend<IntTensorPrimitive = I>>(&self, csr: &Csr<B>) -> Self {
        Self { edge_map: if self.per_edge() { csr.edge_ids() } else { None }, ..self.clone() }
    }

    /// For the entries of the reverse of `csr`.
    pub(crate) fn of_reverse<B: Backend<IntTensorPrimitive = I>>(&self, csr: &Csr<B>) -> Self {
        Self { edge_map: self.per_edge().then(|| csr.reverse_edge()), ..self.clone() }
    }

    /// The same, where `values` are those in the order of the reverse, if they are at hand.
    pub(crate) fn in_reverse<B: Backend<IntTensorPrimitive = I>>(&self, csr: &Csr<B>, values: Option<F>) -> Self {
        match values {
            Some(values) => Self { values: Some(values), edge_map: None, ..self.clone() },
            None => self.of_reverse(csr),
        }
    }
}

impl<F, I> EdgeBackward<F, I> {
    /// Columns per head of the gradient of what edges add up to.
    pub fn sum_columns(&self) -> usize {
        if self.of_sums { self.edges.columns() } else { 0 }
    }

    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> EdgeBackward<G, I> {
        EdgeBackward {
            g: f(self.g),
            h_src: f(self.h_src),
            scalars: self.scalars.map(&f),
            of_sums: self.of_sums,
            edges: self.edges.map(&f),
            of_values: self.of_values,
        }
    }
}

impl<F> EdgeGradients<F> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> EdgeGradients<G> {
        EdgeGradients {
            features: self.features.map(&f),
            score: f(self.score),
            parameters: f(self.parameters),
            values: self.values.map(&f),
        }
    }
}
