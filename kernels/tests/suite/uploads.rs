//! Arrays that cross to a device in pieces, on every backend of the build.

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, DType, Element, ElementConversion, Tensor, TensorData};
use bytemuck::Pod;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{
    GraphBackend, NodeSet, UPLOAD_PIECE, download, on_every_backend, upload, upload_data, upload_ints,
};
use half::{bf16, f16};

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "uploads";
        floats_arrive_around_the_bounds_of_pieces,
        integers_arrive_around_the_bounds_of_pieces,
        rows_of_one_value_arrive,
        rows_of_a_few_values_arrive,
        rows_of_any_width_arrive,
        what_is_uploaded_comes_behind_what_was_asked_for_before,
        short_arrays_arrive_while_others_are_on_their_way,
        what_was_uploaded_comes_back,
    )
}

/// Numbers of elements around no piece, one, and several.
fn lengths<E>() -> [usize; 6] {
    let piece = UPLOAD_PIECE / size_of::<E>();
    [0, 1, piece - 1, piece, piece + 1, 3 * piece + 5]
}

/// Whole numbers that every type holds.
fn value(at: usize) -> u8 {
    (at % 127) as u8
}

fn fill<E: Element>(first: usize, to: &mut [E]) {
    to.iter_mut().zip(first..).for_each(|(to, at)| *to = value(at).elem());
}

fn assert_arrived<B: Backend, K: BasicOps<B>, E: Element + PartialEq, const D: usize>(
    tensor: Tensor<B, D, K>,
    shape: [usize; D],
) {
    let what = format!("{shape:?} of {:?}", E::dtype());
    assert!(tensor.dims() == shape && tensor.dtype() == E::dtype(), "{what}");
    if shape.contains(&0) {
        // No device gives back nothing.
        return;
    }
    let data = tensor.into_data();
    let is_value = |(&found, at): (&E, usize)| found == value(at).elem::<E>();
    assert!(data.as_slice::<E>().unwrap().iter().zip(0..).all(is_value), "{what}");
}

fn check_floats<B: GraphBackend, E: Element + Pod + PartialEq>(device: &B::Device) {
    if !B::supports_dtype(device, E::dtype()) {
        return;
    }
    for len in lengths::<E>() {
        assert_arrived::<_, _, E, 1>(upload::<B, E, 1>([len], device, fill), [len]);
        assert_arrived::<_, _, E, 1>(upload::<Autodiff<B>, E, 1>([len], device, fill), [len]);
    }
}

fn check_integers<B: GraphBackend, E: Element + Pod + PartialEq>(device: &B::Device) {
    for len in lengths::<E>() {
        assert_arrived::<_, _, E, 1>(upload_ints::<B, E>(len, device, fill), [len]);
    }
}

fn floats_arrive_around_the_bounds_of_pieces<B: GraphBackend>(device: &B::Device) {
    check_floats::<B, f32>(device);
    check_floats::<B, f16>(device);
    check_floats::<B, bf16>(device);
}

fn integers_arrive_around_the_bounds_of_pieces<B: GraphBackend>(device: &B::Device) {
    check_integers::<B, i32>(device);
    check_integers::<B, u32>(device);
    if B::supports_dtype(device, DType::I64) {
        check_integers::<B, i64>(device);
    }
}

// Tests of their own: compute-sanitizer looks at every row.
fn rows_of_one_value_arrive<B: GraphBackend>(device: &B::Device) {
    check_rows::<B>(1, &[1], device);
}

fn rows_of_a_few_values_arrive<B: GraphBackend>(device: &B::Device) {
    check_rows::<B>(1, &[3], device);
}

/// Rows that CUDA keeps with gaps between them and without, and rows that are longer than a piece.
fn rows_of_any_width_arrive<B: GraphBackend>(device: &B::Device) {
    check_rows::<B>(2, &[100, 128, 129, LONGEST], device);
}

/// A row that is longer than a piece.
const LONGEST: usize = UPLOAD_PIECE / size_of::<f32>() + 1;

/// Rows that are a little more than so many pieces.
fn check_rows<B: GraphBackend>(pieces: usize, widths: &[usize], device: &B::Device) {
    for &width in widths {
        let shape = [pieces * LONGEST / width + 3, width];
        assert_arrived::<_, _, f32, 2>(upload::<B, f32, 2>(shape, device, fill), shape);
        let mut values = vec![0f32; shape[0] * shape[1]];
        fill(0, &mut values);
        assert_arrived::<_, _, f32, 2>(upload_data::<B, 2>(TensorData::new(values, shape), device), shape);
    }
}

/// Memory that is handed out again may still be read by what is queued.
fn what_is_uploaded_comes_behind_what_was_asked_for_before<B: GraphBackend>(device: &B::Device) {
    let shape = [UPLOAD_PIECE / 512, 512];
    let sums: Vec<Tensor<B, 2>> = (0..6)
        .map(|round| {
            let x = upload::<B, f32, 2>(shape, device, |_, to| to.fill(round as f32));
            x.clone() + x
        })
        .collect();
    for (round, sum) in sums.into_iter().enumerate() {
        let data = sum.into_data();
        assert!(data.as_slice::<f32>().unwrap().iter().all(|&v| v == 2.0 * round as f32), "round {round}");
    }
}

/// Around the least and the most bytes of what a device fetches when its turn comes, more often than it has memory for.
fn short_arrays_arrive_while_others_are_on_their_way<B: GraphBackend>(device: &B::Device) {
    let words = |bytes: usize| bytes / size_of::<f32>();
    let lengths = [words(1 << 16), words(1 << 16) + 1, words(1 << 16) + 6, 100_003, words(UPLOAD_PIECE) - 1];
    let mut arrived = Vec::new();
    for round in 0..3 {
        for len in lengths {
            let nodes: Vec<u32> = (round..round + len as u32).collect();
            let x: Tensor<B, 1> =
                upload_data(TensorData::new(nodes.iter().map(|&n| n as f32).collect(), [len]), device);
            let set = NodeSet::<B>::new(&nodes, len + 3, device);
            // Reads them behind what else is queued.
            arrived.push((nodes, x.clone() + x, set));
        }
    }
    for (nodes, sum, set) in arrived {
        let data = sum.into_data();
        assert!(data.as_slice::<f32>().unwrap().iter().zip(&nodes).all(|(&sum, &node)| sum == 2.0 * node as f32));
        assert_eq!(set.to_host(), nodes);
    }
}

fn what_was_uploaded_comes_back<B: GraphBackend>(device: &B::Device) {
    fn check<B: GraphBackend, E: Element + Pod>(shapes: &[[usize; 2]], device: &B::Device) {
        if !B::supports_dtype(device, E::dtype()) {
            return;
        }
        let tensors: Vec<_> = shapes.iter().map(|&shape| upload::<B, E, 2>(shape, device, fill)).collect();
        let found = download(tensors);
        let expected = shapes.iter().flat_map(|[rows, width]| (0..rows * width).map(|at| f32::from(value(at))));
        assert!(found.into_iter().eq(expected), "{shapes:?} of {:?}", E::dtype());
    }
    for len in lengths::<f32>() {
        check::<B, f32>(&[[len, 1]], device);
    }
    let [.., several, _] = lengths::<f16>();
    check::<B, f16>(&[[several, 1]], device);
    check::<B, bf16>(&[[1, several]], device);
    // Rows of any width, one matrix behind the other.
    let rows = UPLOAD_PIECE / 16;
    check::<B, f32>(&[[rows, 5], [0, 5], [3, 5], [rows, 8]], device);
    // Behind what is asked of the device before, and a part of it.
    let x = upload::<B, f32, 1>([rows * 8], device, fill);
    let found = download(vec![(x * 2.0).slice(8..rows * 8)]);
    assert!(found.into_iter().eq((8..rows * 8).map(|at| 2.0 * f32::from(value(at)))));
}
