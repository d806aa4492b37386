//! Many short lists of numbers in one copy to the device.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_flex::Flex;

#[cfg(feature = "cube")]
use crate::runtime::backends::impl_for_devices;
use crate::runtime::host::index_tensor;

/// Backends that take many lists at once.
pub trait UploadBackend: Backend {
    /// A tensor for each list; of an empty one it has an element that stands for none.
    #[doc(hidden)]
    fn upload_lists(lists: Vec<Vec<i32>>, device: &Self::Device) -> Vec<IntTensor<Self>>;
}

impl UploadBackend for Flex {
    fn upload_lists(lists: Vec<Vec<i32>>, device: &Self::Device) -> Vec<IntTensor<Self>> {
        lists.into_iter().map(|list| index_tensor::<Self>(list, device)).collect()
    }
}

impl<B: UploadBackend, C: CheckpointStrategy> UploadBackend for Autodiff<B, C> {
    fn upload_lists(lists: Vec<Vec<i32>>, device: &Self::Device) -> Vec<IntTensor<Self>> {
        B::upload_lists(lists, device)
    }
}

/// Parts of a buffer start at a multiple of so many words, which every device binds.
pub(crate) const ALIGNMENT: usize = 64;

#[cfg(feature = "cube")]
impl_for_devices! { UploadBackend =>
    fn upload_lists(lists: Vec<Vec<i32>>, device: &Self::Device) -> Vec<IntTensor<Self>> {
        let room = |list: &Vec<i32>| list.len().max(1).next_multiple_of(ALIGNMENT);
        let mut words = Vec::with_capacity(lists.iter().map(room).sum());
        let mut spans = Vec::with_capacity(lists.len());
        for list in lists {
            let start = words.len();
            spans.push((start, list.len().max(1)));
            words.extend_from_slice(&list);
            words.resize(start + room(&list), 0);
        }
        if words.is_empty() {
            return Vec::new();
        }
        let all = index_tensor::<Self>(words, device);
        spans.into_iter().map(|(start, len)| crate::runtime::launch::part(&all, start, len)).collect()
    }
}
