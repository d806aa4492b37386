//! Many short lists of numbers in one copy to the device.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_flex::Flex;

#[cfg(feature = "cube")]
use crate::runtime::backends::impl_for_devices;
use crate::runtime::host::index_tensor;
#[cfg(feature = "cube")]
use crate::runtime::host::written_index_tensor;

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
        let len = lists.iter().map(room).sum();
        if len == 0 {
            return Vec::new();
        }
        let write = |mut words: &mut [i32]| {
            for list in &lists {
                let (own, rest) = words.split_at_mut(room(list));
                own[..list.len()].copy_from_slice(list);
                own[list.len()..].fill(0);
                words = rest;
            }
        };
        let all = written_index_tensor::<Self>(len, device, write);
        let mut start = 0;
        let own = |list: &Vec<i32>| {
            let own = crate::runtime::launch::part(&all, start, list.len().max(1));
            start += room(list);
            own
        };
        lists.iter().map(own).collect()
    }
}
