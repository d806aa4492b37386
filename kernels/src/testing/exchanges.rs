//! What exchanges between ranks compute, against plain loops over the ranks.

use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_autodiff::Autodiff;

use super::fixtures::values_in;
use super::gradient::{central_difference, probe, weighted_sum};
use super::tolerance::{Dtype, assert_close};
use crate::collective::{CollectiveBackend, CollectiveError, CollectiveOperation, Communicator, at_depth, depth_of};
use crate::runtime::start_gradient::backward_from;
use crate::runtime::turn::autodiff_turn;

/// The same operation as every rank calls it, with rows of `width`.
struct Case {
    calls: Vec<CollectiveOperation>,
    width: usize,
}

/// Numbers of rows of four ranks, of which the first so many are taken.
const ROWS: [[usize; 4]; 4] = [[2, 0, 3, 1], [0, 5, 1, 2], [2, 2, 2, 2], [0, 0, 0, 0]];

fn cases(ranks: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (k, rows) in ROWS.iter().enumerate() {
        let (rows, width) = (rows[..ranks].to_vec(), [3, 1, 40][k % 3]);
        let send = |rank: usize| (0..ranks).map(|to| rows[to] * ((rank + to) % 3)).collect::<Vec<_>>();
        let all_to_all = |rank: usize| {
            let receive = (0..ranks).map(|from| send(from)[rank]).collect();
            CollectiveOperation::AllToAll { send: send(rank), receive }
        };
        let same = |call: CollectiveOperation| vec![call; ranks];
        let calls = [
            same(CollectiveOperation::AllReduce),
            same(CollectiveOperation::AllGather { rows: rows.clone() }),
            same(CollectiveOperation::ReduceScatter { rows: rows.clone() }),
            (0..ranks).map(all_to_all).collect(),
            same(CollectiveOperation::Broadcast { root: k % ranks }),
        ];
        cases.extend(calls.into_iter().map(|calls| Case { calls, width }));
    }
    cases
}

impl Case {
    fn name(&self) -> String {
        format!("{:?} on {} ranks", self.calls[0], self.calls.len())
    }

    /// Rows that a rank gives.
    fn rows(&self, rank: usize) -> usize {
        match &self.calls[rank] {
            CollectiveOperation::AllGather { rows } => rows[rank],
            CollectiveOperation::ReduceScatter { rows } => rows.iter().sum(),
            CollectiveOperation::AllToAll { send, .. } => send.iter().sum(),
            _ => 4,
        }
    }

    fn inputs(&self, dtype: Dtype) -> Vec<Vec<f64>> {
        (0..self.calls.len()).map(|rank| values_in(dtype, 60 + rank as u64, self.rows(rank) * self.width)).collect()
    }

    /// What every rank gets.
    fn results(&self, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let row_range = |x: &[f64], start: usize, rows: usize| x[start * self.width..][..rows * self.width].to_vec();
        let sum = || -> Vec<f64> { (0..x[0].len()).map(|k| x.iter().map(|x| x[k]).sum()).collect() };
        let result = |rank: usize| match &self.calls[rank] {
            CollectiveOperation::AllReduce => sum(),
            CollectiveOperation::AllGather { .. } => x.concat(),
            CollectiveOperation::ReduceScatter { rows } => {
                row_range(&sum(), rows[..rank].iter().sum::<usize>(), rows[rank])
            }
            CollectiveOperation::AllToAll { .. } => {
                let of = |(x, call): (&Vec<f64>, &CollectiveOperation)| match call {
                    CollectiveOperation::AllToAll { send, .. } => {
                        row_range(x, send[..rank].iter().sum::<usize>(), send[rank])
                    }
                    _ => Vec::new(),
                };
                x.iter().zip(&self.calls).flat_map(of).collect()
            }
            CollectiveOperation::Broadcast { root } => x[*root].clone(),
            CollectiveOperation::Barrier | CollectiveOperation::Backward => Vec::new(),
        };
        (0..self.calls.len()).map(result).collect()
    }

    fn call<B: CollectiveBackend<Plain = B>, A: CollectiveBackend<Plain = B>>(
        &self,
        rank: &Communicator<B>,
        x: Tensor<A, 2>,
    ) -> Result<Tensor<A, 2>, CollectiveError> {
        match &self.calls[rank.rank()] {
            CollectiveOperation::AllReduce => rank.all_reduce(x),
            CollectiveOperation::AllGather { rows } => rank.all_gather_rows(x, rows),
            CollectiveOperation::ReduceScatter { rows } => rank.reduce_scatter_rows(x, rows),
            CollectiveOperation::AllToAll { send, receive } => rank.all_to_all_rows(x, send, receive),
            CollectiveOperation::Broadcast { root } => rank.broadcast(x, *root),
            CollectiveOperation::Barrier | CollectiveOperation::Backward => rank.barrier().map(|()| x),
        }
    }

    /// What an exchange that moves rows makes of whole numbers.
    fn ids<B: CollectiveBackend<Plain = B>>(&self, rank: &Communicator<B>, x: &[f64]) -> Option<Vec<i32>> {
        let (shape, options) = ([x.len() / self.width, self.width], (rank.device(), DType::I32));
        let x = match x.is_empty() {
            true => Tensor::<B, 2, Int>::empty(shape, options),
            false => Tensor::from_data(TensorData::new(bits(x), shape), options),
        };
        let ids = match &self.calls[rank.rank()] {
            CollectiveOperation::AllGather { rows } => rank.all_gather_ids(x, rows),
            CollectiveOperation::AllToAll { send, receive } => rank.all_to_all_ids_queued(x, send, receive),
            _ => return None,
        };
        let ids = ids.and_then(|ids| rank.settled().map(|()| ids));
        let ids = ids.unwrap_or_else(|error| panic!("ids, {}: {error}", self.name()));
        let none = ids.dims().contains(&0);
        Some(if none { Vec::new() } else { ids.into_data().into_vec().expect("i32 as given") })
    }
}

/// Values as whole numbers of all sizes.
fn bits(values: &[f64]) -> Vec<i32> {
    values.iter().map(|&value| (value as f32).to_bits() as i32).collect()
}

fn up<B: CollectiveBackend>(values: &[f64], width: usize, dtype: Dtype, device: &B::Device) -> Tensor<B, 2> {
    let stored = match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
    };
    let shape = [values.len() / width, width];
    if values.is_empty() {
        // CUDA neither takes nor casts nothing.
        return Tensor::empty(shape, (device, stored));
    }
    let data = TensorData::new(values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape);
    let tensor = Tensor::from_data(data, (device, DType::F32));
    if dtype == Dtype::F32 { tensor } else { tensor.cast(stored) }
}

fn down<B: CollectiveBackend>(x: Tensor<B, 2>) -> Vec<f32> {
    if x.dims().contains(&0) {
        return Vec::new();
    }
    x.into_data().convert::<f32>().into_vec().expect("f32 after convert")
}

/// Asserts that each exchange is what a loop over the ranks makes of it, for each number of ranks up to four, with
/// uneven, equal and no rows; that a sum has the same bits on every rank and in every run; and in f32 that whole
/// numbers are moved as they are. `group` makes all ranks.
#[track_caller]
pub fn assert_exchanges<B: CollectiveBackend<Plain = B>>(
    counts: &[usize],
    dtype: Dtype,
    group: impl Fn(usize) -> Vec<Communicator<B>>,
) {
    for &count in counts {
        let cases = cases(count);
        let run = || {
            Communicator::on_threads(group(count), |rank| {
                let result = |case: &Case| {
                    let x = up::<B>(&case.inputs(dtype)[rank.rank()], case.width, dtype, rank.device());
                    down(case.call(&rank, x).unwrap_or_else(|error| panic!("{}: {error}", case.name())))
                };
                cases.iter().map(result).collect::<Vec<_>>()
            })
        };
        let results = run();
        for (k, case) in cases.iter().enumerate() {
            let want = case.results(&case.inputs(dtype));
            for rank in 0..count {
                let name = format!("{}: rank {rank} {dtype:?}", case.name());
                assert_close(&name, &results[rank][k], &want[rank], dtype, count);
                if case.calls[0] == CollectiveOperation::AllReduce {
                    assert_eq!(results[rank][k], results[0][k], "{name}");
                }
            }
        }
        assert_eq!(run(), results, "{count} ranks in another run");
        if dtype != Dtype::F32 {
            continue;
        }
        let ids = Communicator::on_threads(group(count), |rank| {
            cases.iter().map(|case| case.ids(&rank, &case.inputs(dtype)[rank.rank()])).collect::<Vec<_>>()
        });
        for (k, case) in cases.iter().enumerate() {
            let want = case.results(&case.inputs(dtype));
            for rank in 0..count {
                let found = ids[rank][k].as_ref();
                assert!(found.is_none_or(|ids| *ids == bits(&want[rank])), "ids, {}: rank {rank}", case.name());
            }
        }
    }
}

/// Asserts that gradients of each exchange, and of several behind each other, are central differences of the sum of the
/// ranks' losses.
#[track_caller]
pub fn assert_gradients_of_exchanges<B: CollectiveBackend<Plain = B>>(
    counts: &[usize],
    group: impl Fn(usize) -> Vec<Communicator<B>>,
) {
    for &count in counts {
        for case in cases(count).into_iter().filter(|case| case.calls[0].transposed().is_some()) {
            let inputs = case.inputs(Dtype::F32);
            let gradients = Communicator::on_threads(group(count), |rank| {
                let device = rank.device().clone();
                let x = up::<B>(&inputs[rank.rank()], case.width, Dtype::F32, &device);
                let x = Tensor::<Autodiff<B>, 2>::from_inner(x).require_grad();
                let _turn = autodiff_turn();
                let y = case.call(&rank, x.clone()).unwrap_or_else(|error| panic!("{}: {error}", case.name()));
                let [rows, width] = y.dims();
                let g = up::<B>(&probe(rows * width), width, Dtype::F32, &device);
                let gradients = rank.backward(|| backward_from(y, g));
                let gradients = gradients.unwrap_or_else(|error| panic!("{}: {error}", case.name()));
                down(x.grad(&gradients).expect("x requires a gradient"))
            });
            let loss = |x: &[Vec<f64>]| case.results(x).iter().map(|y| weighted_sum(y, &probe(y.len()))).sum();
            for (rank, gradient) in gradients.iter().enumerate() {
                let want = central_difference(loss, &inputs, rank);
                assert_close(&format!("{}: dx of rank {rank}", case.name()), gradient, &want, Dtype::F32, count);
            }
        }
        assert_gradients_of_a_chain(count, group(count));
        assert_late_ends(count, group(count));
    }
}

/// `sum probe * all_reduce(x * reduce_scatter(all_gather(x)^2))`, in which `x` is read twice and exchanges follow each
/// other.
#[track_caller]
fn assert_gradients_of_a_chain<B: CollectiveBackend<Plain = B>>(count: usize, ranks: Vec<Communicator<B>>) {
    let (rows, width) = (vec![2; count], 3);
    let inputs: Vec<Vec<f64>> = (0..count).map(|rank| values_in(Dtype::F32, 70 + rank as u64, 2 * width)).collect();
    let gradients = Communicator::on_threads(ranks, |rank| {
        let device = rank.device().clone();
        let x = up::<B>(&inputs[rank.rank()], width, Dtype::F32, &device);
        let x = Tensor::<Autodiff<B>, 2>::from_inner(x).require_grad();
        let chain = || {
            let _turn = autodiff_turn();
            let all = rank.all_gather_rows(x.clone(), &rows)?;
            let own = rank.reduce_scatter_rows(all.clone() * all, &rows)?;
            let y = rank.all_reduce(x.clone() * own)?;
            let g = up::<B>(&probe(2 * width), width, Dtype::F32, &device);
            rank.backward(|| backward_from(y, g))
        };
        let gradients = chain().unwrap_or_else(|error| panic!("a chain of exchanges: {error}"));
        down(x.grad(&gradients).expect("x requires a gradient"))
    });
    let loss = |x: &[Vec<f64>]| {
        // Each rank has all rows, and sums of `count` squares come back to the rank of each.
        let y = |k: usize| x.iter().map(|x| x[k] * count as f64 * x[k] * x[k]).sum::<f64>();
        let y: Vec<f64> = (0..2 * width).map(y).collect();
        count as f64 * weighted_sum(&y, &probe(y.len()))
    };
    for (rank, gradient) in gradients.iter().enumerate() {
        let want = central_difference(loss, &inputs, rank);
        assert_close(&format!("a chain: dx of rank {rank} of {count}"), gradient, &want, Dtype::F32, 4 * count);
    }
}

/// `sum probe * (a + b^2)` with the rows `a` of `x` and `b` of `2 x`, both on their way while memory is taken and
/// written to.
#[track_caller]
fn assert_late_ends<B: CollectiveBackend<Plain = B>>(count: usize, ranks: Vec<Communicator<B>>) {
    let (rows, width) = (vec![2; count], 3);
    let inputs: Vec<Vec<f64>> = (0..count).map(|rank| values_in(Dtype::F32, 80 + rank as u64, 2 * width)).collect();
    let gradients = Communicator::on_threads(ranks, |rank| {
        let device = rank.device().clone();
        let x = up::<B>(&inputs[rank.rank()], width, Dtype::F32, &device);
        let x = Tensor::<Autodiff<B>, 2>::from_inner(x).require_grad();
        let pass = || {
            let _turn = autodiff_turn();
            let a = rank.begin_all_gather_rows(x.clone() * 1.0, &rows)?;
            // Deeper than the step that waits for the gradients of `a`.
            let two = at_depth(Tensor::<Autodiff<B>, 2>::full([2, width], 2.0, &device), 8);
            let b = rank.begin_all_gather_rows(x.clone() * two, &rows)?;
            for other in 0..4 {
                drop(Tensor::<B, 2>::full([2, width], 7.0, &device) + other as f32);
            }
            let a = a.end(None, 16)?;
            let b = b.end(Some(&a), depth_of(&a))?;
            assert!(depth_of(&b) > depth_of(&a) && depth_of(&a) > 16, "{} and {}", depth_of(&a), depth_of(&b));
            let y = a + b.clone() * b;
            let g = up::<B>(&probe(2 * count * width), width, Dtype::F32, &device);
            rank.backward(|| backward_from(y, g))
        };
        let gradients = pass().unwrap_or_else(|error| panic!("ends that come late: {error}"));
        down(x.grad(&gradients).expect("x requires a gradient"))
    });
    let loss = |x: &[Vec<f64>]| {
        let y: Vec<f64> = x.concat().into_iter().map(|x| x + 4.0 * x * x).collect();
        count as f64 * weighted_sum(&y, &probe(y.len()))
    };
    for (rank, gradient) in gradients.iter().enumerate() {
        let want = central_difference(loss, &inputs, rank);
        assert_close(&format!("late ends: dx of rank {rank} of {count}"), gradient, &want, Dtype::F32, 4 * count);
    }
}
