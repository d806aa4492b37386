//! What ranks that share memory give each other.

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Shape, Slice, TensorMetadata};

/// A tensor of numbers that are added up, or of whole ones that are only moved.
#[derive(Clone, Debug)]
pub(super) enum Values<B: Backend> {
    Floats(FloatTensor<B>),
    Ids(IntTensor<B>),
}

impl<B: Backend> Values<B> {
    pub fn shape(&self) -> Shape {
        match self {
            Self::Floats(x) => x.shape(),
            Self::Ids(x) => x.shape(),
        }
    }

    pub fn dtype(&self) -> DType {
        match self {
            Self::Floats(x) => x.dtype(),
            Self::Ids(x) => x.dtype(),
        }
    }

    pub fn device(&self) -> B::Device {
        match self {
            Self::Floats(x) => B::float_device(x),
            Self::Ids(x) => B::int_device(x),
        }
    }

    pub fn floats(self) -> FloatTensor<B> {
        match self {
            Self::Floats(x) => x,
            Self::Ids(_) => unreachable!("ranks that give other types disagree"),
        }
    }

    pub fn ids(self) -> IntTensor<B> {
        match self {
            Self::Ids(x) => x,
            Self::Floats(_) => unreachable!("ranks that give other types disagree"),
        }
    }

    /// No values, of the same type.
    pub fn empty(&self, shape: Shape) -> Self {
        let device = self.device();
        match self {
            Self::Floats(x) => Self::Floats(B::float_empty(shape, &device, x.dtype().into())),
            Self::Ids(x) => Self::Ids(B::int_empty(shape, &device, x.dtype().into())),
        }
    }

    /// Some rows of a matrix.
    pub fn rows(self, start: usize, rows: usize) -> Self {
        let slices = [Slice::from(start..start + rows), Slice::from(0..self.shape()[1])];
        match self {
            Self::Floats(x) => Self::Floats(B::float_slice(x, &slices)),
            Self::Ids(x) => Self::Ids(B::int_slice(x, &slices)),
        }
    }

    /// The rows of all that have any, in memory of its own.
    pub fn joined(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Vec<Self> = parts.into_iter().filter(|part| part.shape().num_elements() > 0).collect();
        match parts.first() {
            Some(Self::Ids(_)) => Self::Ids(B::int_cat(parts.into_iter().map(Self::ids).collect(), 0)),
            _ => Self::Floats(B::float_cat(parts.into_iter().map(Self::floats).collect(), 0)),
        }
    }
}
