//! The piecewise linear encoding of what a node has of itself.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
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

    /// The rows with the share of every piece that lies below each value beside them, `[rows, columns + width]`. Columns
    /// behind those that have bounds have no pieces.
    pub fn beside(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let (rows, dtype, pieces) = (x.dims()[0], x.dtype(), self.pieces);
        let columns = self.width() / pieces;
        let bounds = self.bounds.val().detach().reshape([1, columns, pieces + 1]);
        let lower = bounds.clone().narrow(2, 0, pieces);
        let length = bounds.narrow(2, 1, pieces) - lower.clone();
        // A column with fewer pieces has empty ones.
        let empty = length.clone().equal_elem(0.0);
        let inverse = length.recip().mask_fill(empty, 0.0);
        let values = x.clone().narrow(1, 0, columns).reshape([rows, columns, 1]);
        let values = if dtype == DType::F32 { values } else { values.cast(DType::F32) };
        let shares = ((values - lower) * inverse).clamp(0.0, 1.0).reshape([rows, columns * pieces]);
        Tensor::cat(vec![x, if dtype == DType::F32 { shares } else { shares.cast(dtype) }], 1)
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::models::parameters::to_host;

    #[test]
    fn every_value_has_the_share_of_each_piece_below_it() {
        let input = PieceInput { pieces: 2, bounds: vec![-1.0, 0.0, 4.0, 2.0, 2.0, 2.0].into() };
        let pieces = Pieces::<Flex>::new(&input, 2, &mut Parameters::from_seed(1, &FlexDevice)).unwrap();
        assert_eq!(pieces.width(), 4);
        // The third column has no bounds, as those of known labels.
        let x = [[-2.0, 5.0, 9.0], [-0.25, 2.0, 9.0], [3.0, -5.0, 9.0], [4.5, 0.0, 9.0]];
        for dtype in [DType::F32, DType::BF16] {
            let x = Tensor::<Flex, 2>::from_data(x, &FlexDevice).cast(dtype);
            let got = pieces.beside(x);
            assert_eq!(got.dtype(), dtype);
            let want = [
                [-2.0, 5.0, 9.0, 0.0, 0.0, 0.0, 0.0],
                [-0.25, 2.0, 9.0, 0.75, 0.0, 0.0, 0.0],
                [3.0, -5.0, 9.0, 1.0, 0.75, 0.0, 0.0],
                [4.5, 0.0, 9.0, 1.0, 1.0, 0.0, 0.0],
            ];
            assert_eq!(to_host(got), want.concat());
        }
    }
}
