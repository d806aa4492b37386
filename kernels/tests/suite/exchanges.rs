//! Ranks that exchange rows and sums: as threads on one device of every backend, and over NCCL where there are two.

use graphsieve_kernels::testing::Dtype;
use graphsieve_kernels::testing::exchanges::{assert_exchanges, assert_gradients_of_exchanges};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{COLLECTIVE_DEADLINE, CollectiveBackend, Communicator, GraphBackend, on_every_backend};

use crate::support::burn_dtype;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    #[allow(unused_mut)]
    let mut trials = on_every_backend!(
        "exchanges";
        exchanges_between_threads_are_what_plain_loops_give,
        gradients_between_threads_are_differences_of_the_sum_of_losses,
    );
    graphsieve_kernels::on_cuda!(trials.extend(nccl::trials()););
    trials
}

fn exchanges_between_threads_are_what_plain_loops_give<B: GraphBackend + CollectiveBackend<Plain = B>>(
    device: &B::Device,
) {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        if B::supports_dtype(device, burn_dtype(dtype)) {
            assert_exchanges(&[1, 2, 3, 4], dtype, |count| {
                Communicator::<B>::threads(count, COLLECTIVE_DEADLINE, device)
            });
        }
    }
}

fn gradients_between_threads_are_differences_of_the_sum_of_losses<B: GraphBackend + CollectiveBackend<Plain = B>>(
    device: &B::Device,
) {
    assert_gradients_of_exchanges(&[1, 2, 3, 4], |count| {
        Communicator::<B>::threads(count, COLLECTIVE_DEADLINE, device)
    });
}

graphsieve_kernels::on_cuda! {
    mod nccl {
        use std::time::{Duration, Instant};

        use burn::tensor::Tensor;
        use burn_cuda::CudaDevice;
        use graphsieve_kernels::testing::harness::{Device, TWO_CUDA_DEVICES, trial};
        use graphsieve_kernels::{CollectiveFault, Cuda};

        use super::*;

        fn pair(deadline: Duration) -> Vec<Communicator<Cuda>> {
            let devices = [0, 1].map(CudaDevice::new);
            Communicator::nccl_threads(&devices, deadline, true).unwrap_or_else(|error| panic!("{error}"))
        }

        fn exchanges_over_nccl_are_what_plain_loops_give() {
            for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                assert_exchanges(&[2], dtype, |_| pair(COLLECTIVE_DEADLINE));
            }
        }

        fn gradients_over_nccl_are_differences_of_the_sum_of_losses() {
            assert_gradients_of_exchanges(&[2], |_| pair(COLLECTIVE_DEADLINE));
        }

        fn ranks_over_nccl_that_disagree_or_are_late_get_errors() {
            let shapes = Communicator::on_threads(pair(COLLECTIVE_DEADLINE), |rank| {
                let x = Tensor::<Cuda, 1>::ones([1 + rank.rank()], rank.device());
                rank.all_reduce(x).expect_err("the shapes differ").fault
            });
            // The other rank sees the error of the first to find it, or finds it itself.
            for fault in shapes {
                assert!(matches!(fault, CollectiveFault::Disagreement { .. }), "{fault}");
            }
            let deadline = Duration::from_secs(5);
            let late = Communicator::on_threads(pair(deadline), |rank| {
                if rank.rank() == 1 {
                    std::thread::sleep(2 * deadline);
                }
                let start = Instant::now();
                (rank.barrier().expect_err("a rank is late"), start.elapsed())
            });
            assert!(matches!(late[0].0.fault, CollectiveFault::Late { .. }), "{}", late[0].0);
            assert!(late.iter().all(|(_, took)| *took < 2 * deadline), "{late:?}");
        }

        /// On CUDA, where there are two devices.
        pub fn trials() -> Vec<Trial> {
            let on_two = |name: &str, body: fn()| trial(Some(Device::Cuda), name, &[TWO_CUDA_DEVICES], body);
            vec![
                on_two("nccl::exchanges", exchanges_over_nccl_are_what_plain_loops_give),
                on_two("nccl::gradients", gradients_over_nccl_are_differences_of_the_sum_of_losses),
                on_two("nccl::errors", ranks_over_nccl_that_disagree_or_are_late_get_errors),
            ]
        }
    }
}
