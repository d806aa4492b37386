//! Many tensors as one vector, so that what is done to all of them takes one launch.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_backend::{AutodiffBackend, TensorMetadata};

use crate::runtime::check;

/// A segment starts at a multiple of this: 256 bytes, the largest alignment that a GPU asks of a buffer.
const ALIGNMENT: usize = 64;

/// Backends on which [`Segments`] work.
pub trait SegmentsBackend: Backend {
    /// The matrices one behind the other, each where its segment starts; zeros in gaps and for what is missing.
    #[doc(hidden)]
    fn join_segments(
        parts: Vec<Option<FloatTensor<Self>>>,
        segments: &Segments,
        device: &Self::Device,
    ) -> FloatTensor<Self>;

    /// `len` elements of a vector from `start` on, a multiple of [`ALIGNMENT`]; without a copy where the backend can.
    #[doc(hidden)]
    fn segment(whole: FloatTensor<Self>, start: usize, len: usize) -> FloatTensor<Self>;
}

impl<B: SegmentsBackend, C: CheckpointStrategy> SegmentsBackend for Autodiff<B, C> {
    fn join_segments(
        parts: Vec<Option<FloatTensor<Self>>>,
        segments: &Segments,
        device: &Self::Device,
    ) -> FloatTensor<Self> {
        let parts = parts.into_iter().map(|part| part.map(|p| p.primitive)).collect();
        Self::from_inner(B::join_segments(parts, segments, device))
    }

    fn segment(whole: FloatTensor<Self>, start: usize, len: usize) -> FloatTensor<Self> {
        Self::from_inner(B::segment(whole.primitive, start, len))
    }
}

/// Where tensors of given lengths stand in one vector. Between them are gaps of zeros, so that every tensor can be read
/// in place.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::Segments;
/// let device = Default::default();
/// let segments = Segments::new(&[2, 3]);
/// let whole = segments.join(vec![Some(Tensor::<Flex, 2>::from_data([[1.0, 2.0]], &device)), None], &device);
/// assert_eq!(whole.dims(), [segments.total()]);
/// assert_eq!(segments.part(&whole, 0, [2, 1]).into_data().to_vec::<f32>().unwrap(), [1.0, 2.0]);
/// assert_eq!(segments.part(&whole, 1, [3]).into_data().to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    lens: Vec<usize>,
    /// One more than segments: the last is the end of all.
    starts: Vec<usize>,
}

impl Segments {
    /// Segments of these lengths.
    pub fn new(lens: &[usize]) -> Self {
        let mut starts = vec![0];
        for len in lens {
            starts.push(starts[starts.len() - 1] + len.next_multiple_of(ALIGNMENT));
        }
        Self { lens: lens.to_vec(), starts }
    }

    /// Length of the vector, gaps included.
    pub fn total(&self) -> usize {
        self.starts[self.lens.len()]
    }

    /// Number of elements without the gaps.
    pub fn num_values(&self) -> usize {
        self.lens.iter().sum()
    }

    /// One vector of all `parts`: f32 matrices in row-major order, zeros where there is none. Matrices need not be
    /// contiguous.
    ///
    /// # Panics
    /// If their number or lengths are not those of the segments, or one is not f32.
    pub fn join<B: SegmentsBackend>(&self, parts: Vec<Option<Tensor<B, 2>>>, device: &B::Device) -> Tensor<B, 1> {
        const OP: &str = "Segments::join";
        check::size(OP, "parts", self.lens.len(), parts.len());
        let parts = parts.into_iter().zip(&self.lens).map(|(part, &len)| {
            let part = part?.into_primitive().tensor();
            check::dtype(OP, "parts", &part, DType::F32);
            check::size(OP, "elements of a part", len, part.shape().num_elements());
            Some(part)
        });
        let whole = match self.total() {
            0 => B::float_empty([0].into(), device, DType::F32.into()),
            _ => B::join_segments(parts.collect(), self, device),
        };
        Tensor::from_primitive(TensorPrimitive::Float(whole))
    }

    /// Segment `k` of a vector that [`Self::join`] made, or one like it. A view of the vector where the backend can; an
    /// operation that writes in place never does so while anything else reads the vector.
    ///
    /// # Panics
    /// If the vector has another length, there is no such segment, or its shape has another number of elements.
    pub fn part<B: SegmentsBackend, const D: usize>(
        &self,
        whole: &Tensor<B, 1>,
        k: usize,
        shape: [usize; D],
    ) -> Tensor<B, D> {
        const OP: &str = "Segments::part";
        check::size(OP, "whole", self.total(), whole.dims()[0]);
        check::size(OP, "shape", self.lens[k], shape.iter().product());
        let part = B::segment(whole.clone().into_primitive().tensor(), self.starts[k], self.lens[k]);
        Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(part)).reshape(shape)
    }

    /// Values on the host with the gaps that [`Self::join`] leaves.
    ///
    /// # Panics
    /// If there are not [`Self::num_values`].
    pub fn with_gaps(&self, values: &[f32]) -> Vec<f32> {
        check::size("Segments::with_gaps", "values", self.num_values(), values.len());
        let mut whole = vec![0.0; self.total()];
        let mut rest = values;
        for (&start, &len) in self.starts.iter().zip(&self.lens) {
            let (part, behind) = rest.split_at(len);
            whole[start..start + len].copy_from_slice(part);
            rest = behind;
        }
        whole
    }

    /// What [`Self::with_gaps`] was given.
    ///
    /// # Panics
    /// If `whole` has not [`Self::total`] values.
    pub fn without_gaps(&self, whole: &[f32]) -> Vec<f32> {
        check::size("Segments::without_gaps", "whole", self.total(), whole.len());
        self.starts.iter().zip(&self.lens).flat_map(|(&start, &len)| &whole[start..start + len]).copied().collect()
    }
}
