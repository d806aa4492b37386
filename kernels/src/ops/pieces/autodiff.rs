//! Nothing flows back to data.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;

use super::PiecesBackend;

impl<B: PiecesBackend, C: CheckpointStrategy> PiecesBackend for Autodiff<B, C> {
    fn beside_pieces(x: FloatTensor<Self>, bounds: FloatTensor<Self>) -> FloatTensor<Self> {
        let tracked = x.is_tracked() || bounds.is_tracked();
        assert!(!tracked, "beside_pieces: expected data, got a tensor that wants a gradient: detach it");
        Self::from_inner(B::beside_pieces(x.primitive, bounds.primitive))
    }
}
