//! Segments on the CPU.

use burn::tensor::ops::FloatTensor;
use burn_backend::Slice;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexDevice};

use super::{Segments, SegmentsBackend};
use crate::runtime::flex;
use crate::runtime::rows::zeroed;

impl SegmentsBackend for Flex {
    fn join_segments(parts: Vec<Option<FloatTensor<Self>>>, segments: &Segments, _: &FlexDevice) -> FloatTensor<Self> {
        let mut whole = zeroed::<f32>(segments.total());
        for (part, &start) in parts.into_iter().zip(&segments.starts) {
            if let Some(part) = part {
                let part = part.to_contiguous();
                let values = flex::slice::<f32>(&part);
                whole[start..start + values.len()].copy_from_slice(values);
            }
        }
        flex::tensor(whole, [segments.total()])
    }

    fn segment(whole: FloatTensor<Self>, start: usize, len: usize) -> FloatTensor<Self> {
        Self::float_slice(whole, &[Slice::from(start..start + len)])
    }
}
