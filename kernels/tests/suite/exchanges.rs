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
        use std::net::TcpListener;
        use std::time::{Duration, Instant};

        use burn::tensor::Tensor;
        use burn_cuda::CudaDevice;
        use graphsieve_kernels::testing::harness::{Device, TWO_CUDA_DEVICES, trial};
        use graphsieve_kernels::{CollectiveFault, Cuda, NcclConfig, Rendezvous};

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

        /// Ranks as processes are: nobody waits for their exchanges but the device.
        fn exchanges_that_are_left_to_the_device_keep_their_memory_and_order_and_end_where_a_rank_leaves() {
            const STEPS: usize = 200;
            let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
            let step = |rank: &Communicator<Cuda>, x: Tensor<Cuda, 2>| {
                let mean = rank.all_reduce_queued(x)? * 0.5;
                let all = rank.begin_all_gather_rows(mean, &[1, 1])?;
                // What is written meanwhile has other memory than the rows on their way.
                for other in 0..4 {
                    drop(Tensor::<Cuda, 2>::full([1, 1 << 22], -1.0, rank.device()) - other as f32);
                }
                let all = all.end(None, 0)?;
                Ok::<_, graphsieve_kernels::CollectiveError>(all.narrow(0, 1 - rank.rank(), 1) + 1.0)
            };
            let work = |rank: usize| {
                let (device, rendezvous) = (CudaDevice::new(rank), Some(Rendezvous::Address(free.to_string())));
                let (ranks, deadline, compare_calls) = (2, COLLECTIVE_DEADLINE, true);
                let (of, host) = (device.clone(), "a".into());
                let config = NcclConfig { rank, ranks, device: of, host, rendezvous, deadline, compare_calls };
                let rank = Communicator::nccl(config).unwrap_or_else(|error| panic!("{error}"));
                // Large enough for a step that does not wait for the one before to be wrong.
                let mut x = Tensor::<Cuda, 2>::ones([1, 1 << 22], &device) * (1 + 2 * rank.rank()) as f32;
                for _ in 0..STEPS {
                    x = step(&rank, x).unwrap_or_else(|error| panic!("{error}"));
                }
                let values = x.clone().into_data().to_vec::<f32>().unwrap();
                rank.settled().unwrap_or_else(|error| panic!("{error}"));
                assert!(values.iter().all(|value| *value == (2 + STEPS) as f32), "{:?}", &values[..4]);
                if rank.rank() == 1 {
                    return None;
                }
                let start = Instant::now();
                let error = step(&rank, x).and_then(|_| rank.settled()).expect_err("the other rank has left");
                Some((error, start.elapsed()))
            };
            let work = &work;
            std::thread::scope(|scope| {
                let other = scope.spawn(move || work(1));
                let (error, took) = work(0).unwrap();
                assert!(other.join().unwrap().is_none());
                assert!(matches!(error.fault, CollectiveFault::Lost { rank: 1, .. }), "{error}");
                assert!(took < COLLECTIVE_DEADLINE, "{took:?}");
            });
        }

        fn groups_over_nccl_are_the_ranks_of_hosts() {
            let sums = Communicator::on_threads(pair(COLLECTIVE_DEADLINE), |rank| {
                let host = ["a", "b"][rank.rank()];
                let rank = rank.on_host(host).unwrap();
                let own = Tensor::<Cuda, 1>::ones([1], rank.device()) * (1 + rank.rank()) as f32;
                let sum = |group: &Communicator<Cuda>| group.all_reduce(own.clone()).unwrap().into_scalar();
                [rank.within_host(), rank.across_hosts()].map(|group| sum(group.unwrap()))
            });
            assert_eq!(sums, [[1.0, 3.0], [2.0, 3.0]]);
        }

        /// On CUDA, where there are two devices.
        pub fn trials() -> Vec<Trial> {
            let on_two = |name: &str, body: fn()| trial(Some(Device::Cuda), name, &[TWO_CUDA_DEVICES], body);
            vec![
                on_two("nccl::exchanges", exchanges_over_nccl_are_what_plain_loops_give),
                on_two("nccl::gradients", gradients_over_nccl_are_differences_of_the_sum_of_losses),
                on_two(
                    "nccl::queued",
                    exchanges_that_are_left_to_the_device_keep_their_memory_and_order_and_end_where_a_rank_leaves,
                ),
                on_two("nccl::groups", groups_over_nccl_are_the_ranks_of_hosts),
                on_two("nccl::errors", ranks_over_nccl_that_disagree_or_are_late_get_errors),
            ]
        }
    }
}
