//! Large arrays between host memory and a device.
//!
//! What CubeCL is given to upload one thread copies to other memory, of new pages for what is large, from where the
//! driver copies it once more into page-locked memory of its own: about 1 GB/s in all. On CUDA large arrays go another
//! way: a few threads write them piece by piece into page-locked memory, from where the device fetches a piece while
//! others are written. Nothing is in host memory a second time, and what lies in a mapped file is read by all of them.
//! For what is shorter see [`queued`](super::queued). What comes back from the device goes the same way.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "cuda", test))]
mod pieces;

use std::any::Any;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Element, Int, Tensor, TensorData, TensorPrimitive};
use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::device::cuda_index;
use super::host::index_tensor;
use super::queued::queued;

/// Bytes that one thread writes and the device fetches at a time. Fewer in all are [`queued`](super::queued).
pub const PIECE: usize = 4 << 20;

/// Elements of a task where all are written to memory of the host.
const TASK: usize = 1 << 16;

/// Writes some bytes of an array; it gets the position of the first.
type Fill<'a> = dyn Fn(usize, &mut [u8]) + Sync + 'a;

/// Writes values that are stored in some way as f32.
type Floats = dyn Fn(&[u8], &mut [f32]) + Sync;

/// Values that are read at a time where CubeCL reads. It reads into page-locked memory that it keeps, in pages that
/// hold several of a size: of 80 MB for these, of 5 GB for 512 MB on a GPU of 80 GB, which take longer to lock than to
/// fill many times.
const READ_AT_ONCE: usize = 1 << 20;

/// Uploads an array whose elements `fill` writes, on several threads: it gets the position of the first one and room
/// for that and those behind it, and may find other values there.
///
/// On CUDA, large arrays go through page-locked memory, and the host waits for all that the device has to do: it is for
/// what a run begins with.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::upload;
/// let halves = |first: usize, to: &mut [f32]| to.iter_mut().zip(first..).for_each(|(to, at)| *to = at as f32 / 2.0);
/// let x = upload::<Flex, f32, 2>([2, 2], &Default::default(), halves);
/// assert_eq!(x.into_data().to_vec::<f32>().unwrap(), [0.0, 0.5, 1.0, 1.5]);
/// ```
pub fn upload<B: Backend, E: Element + Pod, const D: usize>(
    shape: [usize; D],
    device: &B::Device,
    fill: impl Fn(usize, &mut [E]) + Sync,
) -> Tensor<B, D> {
    let (len, options): (usize, _) = (shape.iter().product(), (device, E::dtype()));
    if len == 0 {
        // No device takes a copy of nothing.
        return Tensor::empty(shape, options);
    }
    let there = in_pieces::<B, D>(shape, E::dtype(), device, &bytes_of(&fill));
    there.unwrap_or_else(|| Tensor::from_data(TensorData::new(written(len, &fill), shape), options))
}

/// [`upload`] of values that are there already.
pub fn upload_data<B: Backend, const D: usize>(data: TensorData, device: &B::Device) -> Tensor<B, D> {
    let (shape, dtype) = (data.shape.dims::<D>(), data.dtype);
    let bytes = data.as_bytes();
    let fill = |first: usize, to: &mut [u8]| to.copy_from_slice(&bytes[first..][..to.len()]);
    let there = in_pieces::<B, D>(shape, dtype, device, &fill).or_else(|| {
        let values = queued::<FloatTensor<B>>(shape.iter().product(), dtype, device, &|to| fill(0, to))?;
        Some(Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(values)).reshape(shape))
    });
    there.unwrap_or_else(|| Tensor::from_data(data, (device, dtype)))
}

/// [`upload`] of a vector of integers.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::upload_ints;
/// let values = [5, 6, 7];
/// let fill = |first: usize, to: &mut [i32]| to.copy_from_slice(&values[first..][..to.len()]);
/// let x = upload_ints::<Flex, i32>(values.len(), &Default::default(), fill);
/// assert_eq!(x.into_data().to_vec::<i32>().unwrap(), [5, 6, 7]);
/// ```
pub fn upload_ints<B: Backend, E: Element + Pod>(
    len: usize,
    device: &B::Device,
    fill: impl Fn(usize, &mut [E]) + Sync,
) -> Tensor<B, 1, Int> {
    let options = (device, E::dtype());
    if len == 0 {
        return Tensor::empty([0], options);
    }
    let there = ints_in_pieces::<B>(len, E::dtype(), device, &bytes_of(&fill)).map(Tensor::from_primitive);
    there.unwrap_or_else(|| Tensor::from_data(TensorData::new(written(len, &fill), [len]), options))
}

/// The values of some tensors, one behind the other, as f32, brought to the host by several threads.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::download;
/// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
/// assert_eq!(download(vec![x.clone(), x]), [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
/// ```
pub fn download<B: Backend, const D: usize>(tensors: Vec<Tensor<B, D>>) -> Vec<f32> {
    let lengths: Vec<usize> = tensors.iter().map(|tensor| tensor.shape().num_elements()).collect();
    let mut values = bytemuck::zeroed_vec(lengths.iter().sum());
    let mut rest = values.as_mut_slice();
    for (tensor, length) in tensors.into_iter().zip(lengths) {
        let (to, behind) = rest.split_at_mut(length);
        rest = behind;
        // A buffer of no bytes comes back from a GPU without the alignment of a float.
        if length > 0 {
            read(tensor.reshape([length]), to);
        }
    }
    values
}

fn read<B: Backend>(tensor: Tensor<B, 1>, to: &mut [f32]) {
    let (dtype, device) = (tensor.dtype(), tensor.device());
    match floats_of(dtype).filter(|_| is_large::<B>(to.len(), dtype, &device)) {
        Some(floats) => {
            let vector = tensor.into_primitive().tensor();
            if !back(&vector, to, floats) {
                read_in_parts(Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(vector)), READ_AT_ONCE, to);
            }
        }
        None => read_in_parts(tensor, READ_AT_ONCE, to),
    }
}

/// How values of a type become f32.
fn floats_of(dtype: DType) -> Option<&'static Floats> {
    match dtype {
        DType::F32 => Some(&|from, to| to.copy_from_slice(bytemuck::cast_slice(from))),
        DType::F16 => Some(&|from, to| bytemuck::cast_slice::<_, f16>(from).convert_to_f32_slice(to)),
        DType::BF16 => Some(&|from, to| bytemuck::cast_slice::<_, bf16>(from).convert_to_f32_slice(to)),
        _ => None,
    }
}

/// Reads so many values at a time.
fn read_in_parts<B: Backend>(tensor: Tensor<B, 1>, at_once: usize, to: &mut [f32]) {
    let read = |tensor: Tensor<B, 1>, to: &mut [f32]| {
        let data = tensor.into_data().convert::<f32>();
        let from = data.as_slice::<f32>().unwrap_or_else(|e| unreachable!("f32 after convert: {e:?}"));
        // On all threads: the memory that they are copied to is new.
        from.par_chunks(TASK).zip(to.par_chunks_mut(TASK)).for_each(|(from, to)| to.copy_from_slice(from));
    };
    if to.len() <= at_once {
        return read(tensor, to);
    }
    for (part, to) in to.chunks_mut(at_once).enumerate() {
        read(tensor.clone().slice(part * at_once..part * at_once + to.len()), to);
    }
}

/// Uploads positions among entries: as i64 where they are `wide`, else as i32.
pub(crate) fn int_tensor<B: Backend>(values: &[i64], wide: bool, device: &B::Device) -> IntTensor<B> {
    converted::<B, i64>(values, wide, device, |value| value)
}

/// Uploads what `convert` makes of each value: as i64 where they are `wide`, else as i32. As of [`index_tensor`], one
/// unused element stands for none.
pub(crate) fn converted<B: Backend, T: Copy + Sync>(
    values: &[T],
    wide: bool,
    device: &B::Device,
    convert: impl Fn(T) -> i64 + Sync,
) -> IntTensor<B> {
    let len = values.len().max(1);
    let tensor = match wide {
        true => upload_ints::<B, i64>(len, device, |first, to| {
            to.iter_mut().zip(&values[first..]).for_each(|(to, &value)| *to = convert(value));
        }),
        false => upload_ints::<B, i32>(len, device, |first, to| {
            to.iter_mut().zip(&values[first..]).for_each(|(to, &value)| *to = convert(value) as i32);
        }),
    };
    tensor.into_primitive()
}

/// [`upload_ints`] of ids that are there already; an empty list becomes one unused element, as of [`index_tensor`].
pub(crate) fn large_index_tensor<B: Backend>(values: Vec<i32>, device: &B::Device) -> IntTensor<B> {
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let fill = |first: usize, to: &mut [u8]| to.copy_from_slice(&bytes[first..][..to.len()]);
    let there = ints_in_pieces::<B>(values.len(), DType::I32, device, &fill);
    there.unwrap_or_else(|| index_tensor::<B>(values, device))
}

/// The elements that `fill` writes, as bytes.
fn bytes_of<E: Pod>(fill: &(impl Fn(usize, &mut [E]) + Sync)) -> impl Fn(usize, &mut [u8]) + Sync {
    move |first: usize, bytes: &mut [u8]| fill(first / size_of::<E>(), bytemuck::cast_slice_mut(bytes))
}

/// What `fill` writes, in memory of the host.
fn written<E: Pod + Send>(len: usize, fill: &(impl Fn(usize, &mut [E]) + Sync)) -> Vec<E> {
    let mut values = bytemuck::zeroed_vec::<E>(len);
    values.par_chunks_mut(TASK).enumerate().for_each(|(task, values)| fill(task * TASK, values));
    values
}

/// Whether so many elements are copied by [`cross`].
fn is_large<B: Backend>(len: usize, dtype: DType, device: &B::Device) -> bool {
    len * dtype.size() >= PIECE && cuda_index(device).is_some()
}

/// A tensor of what `fill` writes, where it goes through page-locked memory.
fn in_pieces<B: Backend, const D: usize>(
    shape: [usize; D],
    dtype: DType,
    device: &B::Device,
    fill: &Fill<'_>,
) -> Option<Tensor<B, D>> {
    if !is_large::<B>(shape.iter().product(), dtype, device) {
        return None;
    }
    let tensor = Tensor::<B, D>::empty(shape, (device, dtype));
    cross(&tensor.clone().into_primitive().tensor(), fill).then_some(tensor)
}

/// The same of integers.
fn ints_in_pieces<B: Backend>(len: usize, dtype: DType, device: &B::Device, fill: &Fill<'_>) -> Option<IntTensor<B>> {
    if !is_large::<B>(len, dtype, device) {
        return None;
    }
    let tensor = Tensor::<B, 1, Int>::empty([len], (device, dtype)).into_primitive();
    cross(&tensor, fill).then_some(tensor)
}

/// Lets `fill` write a new tensor on a CUDA device through page-locked memory; whether it did.
fn cross(tensor: &dyn Any, fill: &Fill<'_>) -> bool {
    #[cfg(feature = "cuda")]
    return cuda::cross(tensor, fill);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (tensor, fill);
        false
    }
}

/// Writes the values of a vector of a CUDA device to host memory through page-locked memory; whether it did.
fn back(tensor: &dyn Any, to: &mut [f32], floats: &Floats) -> bool {
    #[cfg(feature = "cuda")]
    return cuda::back(tensor, to, floats);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (tensor, to, floats);
        false
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    #[test]
    fn values_are_the_same_whether_they_are_read_in_parts_or_not() {
        let device = Default::default();
        for len in [1, 4, 5, 20, 23] {
            let values: Vec<f32> = (0..len).map(|at| at as f32 / 4.0).collect();
            for dtype in [DType::F32, DType::F16] {
                let tensor = Tensor::<Flex, 1>::from_data(TensorData::new(values.clone(), [len]), (&device, dtype));
                let mut read = vec![0.0; len];
                read_in_parts(tensor.clone(), 5, &mut read);
                assert!(read == values && download(vec![tensor]) == values, "{len} {dtype:?}");
            }
        }
        let turned = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device).transpose();
        let none = Tensor::<Flex, 2>::empty([0, 2], &device);
        assert_eq!(download(vec![none, turned]), [1.0, 3.0, 2.0, 4.0]);
    }
}
