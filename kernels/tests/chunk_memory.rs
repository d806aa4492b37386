//! What a training step in chunks of rows holds at most, counted by the allocator of this program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use graphsieve_kernels::testing::Fixture;
use graphsieve_kernels::{
    Activation, Csr, Destinations, DropEdge, GatConfig, ScoreColumns, Term, attend, attend_inputs, combine, linear,
    row_dots, sum_in_chunks,
};

struct Counted;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: what the system gives and takes, counted.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

type Ad = Autodiff<Flex>;

const NODES: usize = 24_000;
const WIDTH: usize = 64;
/// Relations of a node type with itself, each with a weight of its own.
const RELATIONS: usize = 3;

fn matrix(seed: u64, rows: usize, columns: usize) -> Tensor<Ad, 2> {
    let values = graphsieve_kernels::testing::values_in(graphsieve_kernels::testing::Dtype::F32, seed, rows * columns);
    let values: Vec<f32> = values.into_iter().map(|v| v as f32 * 0.3).collect();
    Tensor::from_data(TensorData::new(values, [rows, columns]), &FlexDevice)
}

/// A weight and the vectors of both parts of the score for every relation and both layers.
fn parameters() -> Vec<[Tensor<Ad, 2>; 2]> {
    let of = |k: u64| [matrix(10 + k, WIDTH, WIDTH).require_grad(), matrix(20 + k, 2, WIDTH).require_grad()];
    (0..2 * RELATIONS as u64).map(of).collect()
}

/// A step of two layers of attention as Stage 2 has them: the loss and a gradient of every parameter.
fn step(csr: &[Csr<Ad>], x: &Tensor<Ad, 2>, parameters: &[[Tensor<Ad, 2>; 2]], chunk: Option<usize>) -> Vec<Vec<f32>> {
    let layer = |h: Tensor<Ad, 2>, at: usize| {
        let data = at == 0;
        let own = &parameters[at * RELATIONS..(at + 1) * RELATIONS];
        let columns = |vectors: &Tensor<Ad, 2>| {
            let vectors = if data { vectors.clone().detach() } else { vectors.clone() };
            let scores = row_dots(h.clone(), vectors);
            [0, 1].map(|first| ScoreColumns { scores: scores.clone(), first })
        };
        let drop_edge = |relation: usize| DropEdge::new(0.5, 1, 1, at as u32, relation as u32);
        let config = |relation| GatConfig { drop_edge: drop_edge(relation), ..Default::default() };
        let relations = csr.iter().zip(own).enumerate();
        if let Some(chunk) = chunk {
            let terms = relations.map(|(k, (csr, [weight, vectors]))| {
                let (scores, weight) = (columns(vectors), weight.clone());
                match data {
                    true => {
                        let rows = [h.clone(), h.clone()];
                        Term::attend_inputs(csr, rows, vectors.clone(), scores, 1, weight, &config(k))
                    }
                    false => Term::attend(csr, h.clone(), scores, 1, weight, &config(k)),
                }
            });
            return sum_in_chunks(terms.collect(), None, 0.5, Activation::Elu, Destinations::new(NODES, None), chunk);
        }
        let parts = relations.map(|(k, (csr, [weight, vectors]))| {
            let [dst, src] = columns(vectors);
            let attended = match data {
                true => attend_inputs(csr, h.clone(), h.clone(), vectors.clone(), [dst, src], config(k)),
                false => attend(csr, h.clone(), dst, src, 1, config(k)),
            };
            linear(attended, weight.clone(), None)
        });
        combine(parts.collect(), None, 0.5, Activation::Elu)
    };
    let h = layer(layer(x.clone(), 0), 1);
    let head = Tensor::<Ad, 2>::ones([1, WIDTH], &FlexDevice);
    let loss = row_dots(h, head).powi_scalar(2).mean();
    let value = loss.clone().inner().into_data().into_vec::<f32>().unwrap();
    let grads = loss.backward();
    let of = |leaf: &Tensor<Ad, 2>| leaf.grad(&grads).unwrap().into_data().into_vec::<f32>().unwrap();
    let mut all = vec![value];
    all.extend(parameters.iter().flatten().map(of));
    all
}

#[test]
fn a_step_in_chunks_holds_results_their_gradients_and_little_else() {
    let graph = Fixture::random(5, NODES, NODES, 4 * NODES);
    let csr: Vec<Csr<Ad>> =
        (0..RELATIONS).map(|_| Csr::from_host(&graph.row_ptr, &graph.col_idx, NODES, &FlexDevice).unwrap()).collect();
    drop(graph);
    let (x, parameters) = (matrix(1, NODES, WIDTH), parameters());
    let whole_matrix = (NODES * WIDTH * size_of::<f32>()) as f64;
    // Matrices of the size of a result, above what was there before: features, graph, parameters.
    let peak = |chunk: Option<usize>| {
        let before = HELD.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let results = step(&csr, &x, &parameters, chunk);
        ((MOST.load(Ordering::Relaxed) - before) as f64 / whole_matrix, results)
    };
    peak(Some(400));
    let (at_once, want) = peak(None);
    let (in_chunks, got) = peak(Some(400));
    println!("peak above features and graph, in matrices of a result: at once {at_once:.2}, in chunks {in_chunks:.2}");
    // The results of both layers and a gradient of each; scores and the like are narrow.
    assert!(in_chunks < 4.9, "{in_chunks:.2} matrices in chunks");
    assert!(at_once > 2.0 * in_chunks, "{at_once:.2} matrices at once, {in_chunks:.2} in chunks");
    for (which, (got, want)) in got.iter().zip(&want).enumerate() {
        let scale = want.iter().fold(0f32, |scale, v| scale.max(v.abs()));
        assert!(scale > 0.0, "gradient {which}");
        let apart = got.iter().zip(want).fold(0f32, |apart, (a, b)| apart.max((a - b).abs()));
        assert!(apart <= 2e-5 * scale, "loss or gradient {which}: {apart} apart of {scale}");
    }
}
