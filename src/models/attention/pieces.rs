//! The piecewise linear encoding of what a node has of itself.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{GraphBackend, beside_pieces};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::models::parameters::{Export, Parameters};

/// The name of the bounds in a checkpoint.
pub(crate) const BOUNDS_NAME: &str = "gat1.bounds";

/// How columns are read in pieces.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PieceInput {
    /// Pieces of a column, at least 1.
    pub pieces: usize,
    /// `[columns, pieces + 1]`, ascending by column: what a new model begins and ends with. No part of the shape: a
    /// checkpoint has bounds.
    #[serde(skip)]
    pub bounds: Arc<[f32]>,
}

impl PartialEq for PieceInput {
    fn eq(&self, other: &Self) -> bool {
        self.pieces == other.pieces
    }
}

/// The bounds of all pieces; they are not learned.
#[derive(Module, Debug)]
pub(super) struct Pieces<B: Backend> {
    /// `[columns * (pieces + 1)]`
    bounds: Param<Tensor<B, 1>>,
    pieces: usize,
}

impl<B: Backend> Pieces<B> {
    /// Those of `columns` columns.
    pub fn new(input: &PieceInput, columns: usize, parameters: &mut Parameters<B>) -> Result<Self> {
        let bounds = parameters.given(BOUNDS_NAME, columns * (input.pieces + 1), &input.bounds)?;
        Ok(Self { bounds, pieces: input.pieces })
    }

    pub fn export(&self, export: &mut Export) {
        export.vector(BOUNDS_NAME.into(), &self.bounds);
    }

    /// Columns that the encoding has.
    pub fn width(&self) -> usize {
        let bounds = self.bounds.val().dims()[0];
        bounds - bounds / (self.pieces + 1)
    }
}

impl<B: GraphBackend> Pieces<B> {
    /// The rows with their pieces behind them. Columns behind those that have bounds have none.
    pub fn beside(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let columns = self.width() / self.pieces;
        beside_pieces(x, self.bounds.val().reshape([columns, self.pieces + 1]))
    }
}
