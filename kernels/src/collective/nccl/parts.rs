//! What NCCL is told of an exchange, and the sums behind it.

use std::cmp::Ordering;

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cudarc::nccl::result as nccl;
use cudarc::nccl::sys;

use super::resources::{Memory, checked};
use crate::collective::error::CollectiveFault;
use crate::collective::operation::CollectiveOperation;
use crate::collective::threads::sum;
use crate::ops::combine::{Activation, CombineBackend, MAX_PARTS};
use crate::runtime::backends::{Cuda, CudaRuntime};
use crate::runtime::launch::{empty, part};

/// What of an exchange is this rank's.
pub(super) struct Parts<'a> {
    pub rank: usize,
    pub width: usize,
    pub dtype: DType,
    pub from: &'a Memory,
    pub to: &'a Memory,
}

impl Parts<'_> {
    /// Tells NCCL of all that this rank sends and receives.
    pub fn queue(
        &self,
        operation: &CollectiveOperation,
        elements: usize,
        comm: sys::ncclComm_t,
        stream: sys::cudaStream_t,
    ) -> Result<(), CollectiveFault> {
        let kind = match self.dtype {
            DType::F16 => sys::ncclDataType_t::ncclFloat16,
            DType::BF16 => sys::ncclDataType_t::ncclBfloat16,
            DType::I32 => sys::ncclDataType_t::ncclInt32,
            _ => sys::ncclDataType_t::ncclFloat32,
        };
        let (from, to, sum) = (self.from, self.to, sys::ncclRedOp_t::ncclSum);
        let bytes = |rows: usize| rows * self.width * self.dtype.size();
        let first = |counts: &[usize], rank: usize| counts[..rank].iter().sum::<usize>();
        let even = |rows: &[usize]| rows.iter().all(|count| *count == rows[0]);
        let send = |start: usize, rows: usize, peer: usize| match rows * self.width {
            0 => Ok(()),
            // SAFETY: as below.
            count => checked(unsafe { nccl::send(from.at(bytes(start)), count, kind, peer as i32, comm, stream) }),
        };
        let receive = |start: usize, rows: usize, peer: usize| match rows * self.width {
            0 => Ok(()),
            // SAFETY: as below.
            count => checked(unsafe { nccl::recv(to.at(bytes(start)), count, kind, peer as i32, comm, stream) }),
        };
        // SAFETY: `operation` was checked against the shapes of both tensors, whose memory is contiguous and kept until
        // the end of the exchange.
        unsafe {
            match operation {
                CollectiveOperation::AllGather { rows } if !even(rows) => {
                    for (peer, &count) in rows.iter().enumerate() {
                        send(0, rows[self.rank], peer)?;
                        receive(first(rows, peer), count, peer)?;
                    }
                    Ok(())
                }
                // What is received is added up behind it: NCCL sums rows of one number on all ranks alone, and 16-bit
                // values as such.
                CollectiveOperation::ReduceScatter { rows } => {
                    for (at, peer) in (0..rows.len()).filter(|peer| *peer != self.rank).enumerate() {
                        send(first(rows, peer), rows[peer], peer)?;
                        receive(at * rows[self.rank], rows[self.rank], peer)?;
                    }
                    Ok(())
                }
                CollectiveOperation::AllToAll { send: sent, receive: received } => {
                    for peer in 0..sent.len() {
                        send(first(sent, peer), sent[peer], peer)?;
                        receive(first(received, peer), received[peer], peer)?;
                    }
                    Ok(())
                }
                // All ranks have the same number of elements here.
                _ if elements == 0 => Ok(()),
                CollectiveOperation::AllReduce | CollectiveOperation::Barrier | CollectiveOperation::Backward => {
                    checked(nccl::all_reduce(from.at(0), to.at(0), elements, kind, sum, comm, stream))
                }
                CollectiveOperation::AllGather { .. } => {
                    checked(nccl::all_gather(from.at(0), to.at(0), elements, kind, comm, stream))
                }
                CollectiveOperation::Broadcast { root } => {
                    checked(nccl::broadcast(from.at(0), to.at(0), elements, kind, *root as i32, comm, stream))
                }
            }
        }
    }
}

/// The sum of all ranks' parts of the rows of `rank`, in the order of the ranks and in f32: its own part out of `x`,
/// the rows of all, and those of the others one behind the other out of `received`.
pub(super) fn sum_of_own(
    x: CubeTensor<CudaRuntime>,
    received: CubeTensor<CudaRuntime>,
    rows: &[usize],
    rank: usize,
) -> CubeTensor<CudaRuntime> {
    let (shape, dtype) = ([rows[rank], x.shape()[1]], x.dtype);
    let len = shape[0] * shape[1];
    if len == 0 {
        return empty(&x, shape, dtype);
    }
    let own = rows[..rank].iter().sum::<usize>() * shape[1];
    let of_rank = |of: usize| {
        let CubeTensor { client, device, handle, .. } = match of.cmp(&rank) {
            Ordering::Less => part(&received, of * len, len),
            Ordering::Equal => part(&x, own, len),
            Ordering::Greater => part(&received, (of - 1) * len, len),
        };
        CubeTensor::new_contiguous(client, device, shape.into(), handle, dtype)
    };
    let parts: Vec<_> = (0..rows.len()).map(of_rank).collect();
    match parts.len() <= MAX_PARTS {
        true => Cuda::combine_forward(parts, None, 1.0, Activation::Identity),
        false => sum::<Cuda>(parts.into_iter(), dtype),
    }
}
