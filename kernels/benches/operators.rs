//! Times of the operators on one device: median of ten runs after three, on a random graph.
//!
//! `cargo bench -p graphsieve-kernels --bench operators -- cpu|cuda|vulkan [rows] [mean degree] [channels]`

use std::time::Instant;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Distribution, Tensor};
use graphsieve_kernels::testing::Fixture;
use graphsieve_kernels::{Csr, DropEdge, GatConfig, GraphBackend, SpmmConfig, gat, linear, spmm};

const WARM_UP: usize = 3;
const RUNS: usize = 10;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |k: usize, default: usize| arguments.get(k).and_then(|a| a.parse().ok()).unwrap_or(default);
    let size = (number(1, 20_000), number(2, 60), number(3, 128));
    match arguments.first().map_or("cpu", String::as_str) {
        "cpu" => bench::<burn_flex::Flex>(size, &Default::default()),
        #[cfg(feature = "cuda")]
        "cuda" => bench::<graphsieve_kernels::Cuda>(size, &Default::default()),
        #[cfg(feature = "vulkan")]
        "vulkan" => bench::<graphsieve_kernels::Vulkan>(size, &Default::default()),
        other => eprintln!("expected cpu, cuda or vulkan (if built in), found {other}"),
    }
}

fn time<B: Backend>(name: &str, device: &B::Device, mut run: impl FnMut()) {
    let mut times = Vec::new();
    for k in 0..WARM_UP + RUNS {
        B::sync(device).expect("the device works");
        let start = Instant::now();
        run();
        B::sync(device).expect("the device works");
        if k >= WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    println!("{name:<44} {:>10.3} ms", times[RUNS / 2]);
}

fn bench<B: GraphBackend>((rows, degree, channels): (usize, usize, usize), device: &B::Device) {
    type Ad<B> = Autodiff<B>;
    let graph = Fixture::random(1, rows, rows, rows * degree);
    println!("{rows} rows, {} edges, {channels} channels; median of {RUNS}", graph.num_edges());
    let csr = Csr::<Ad<B>>::from_host(&graph.row_ptr, &graph.col_idx, rows, device).expect("the graph is valid");
    let drop = DropEdge::new(0.85, 1, 1, 0, 0);
    for dtype in [DType::F32, DType::F16] {
        let random =
            |shape: [usize; 2]| Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 0.1), device).cast(dtype);
        let x = random([rows, channels]);
        let tracked = || Tensor::<Ad<B>, 2>::from_inner(x.clone()).require_grad();
        let weight = random([channels, channels]);
        let tracked_weight = || Tensor::<Ad<B>, 2>::from_inner(weight.clone()).require_grad();
        let attention = |heads: usize| {
            let values = Tensor::<B, 2>::random([heads, channels / heads], Distribution::Normal(0.0, 0.1), device);
            Tensor::<Ad<B>, 2>::from_inner(values).require_grad()
        };
        let name = |op: &str| format!("{op} {dtype:?}");
        let inner = csr.clone().inner();
        time::<B>(&name("copy"), device, || {
            let _ = x.clone().mul_scalar(1.5);
        });
        time::<B>(&name("spmm forward"), device, || {
            let _ = spmm(&inner, x.clone(), None, SpmmConfig::default());
        });
        for heads in [1, 4] {
            for drop_edge in [None, drop] {
                let config = || GatConfig { drop_edge, ..Default::default() };
                let kept = if drop_edge.is_some() { ", 15 % kept" } else { "" };
                let (a, b) = (attention(heads), attention(heads));
                let (ia, ib) = (a.clone().inner(), b.clone().inner());
                time::<B>(&name(&format!("gat {heads} heads forward{kept}")), device, || {
                    let _ = gat(&inner, x.clone(), x.clone(), ia.clone(), ib.clone(), config());
                });
                time::<B>(&name(&format!("gat {heads} heads forward + backward{kept}")), device, || {
                    let h = tracked();
                    let out = gat(&csr, h.clone(), h, a.clone(), b.clone(), config());
                    let _ = out.backward();
                });
            }
        }
        time::<B>(&name("linear forward"), device, || {
            let _ = linear(x.clone(), weight.clone(), None);
        });
        time::<B>(&name("linear forward + dx + dw"), device, || {
            let _ = linear(tracked(), tracked_weight(), None).backward();
        });
        let bias = Tensor::<B, 1>::zeros([channels], device).cast(dtype);
        time::<B>(&name("linear forward + dw + db"), device, || {
            let bias = Tensor::<Ad<B>, 1>::from_inner(bias.clone()).require_grad();
            let _ = linear(Tensor::from_inner(x.clone()), tracked_weight(), Some(bias)).backward();
        });
        time::<B>(&name("elu forward + backward"), device, || {
            let _ = elu(tracked()).backward();
        });
        time::<B>(&name("relu forward + backward"), device, || {
            let _ = burn::tensor::activation::relu(tracked()).backward();
        });
        time::<B>(&name("row norm forward + backward"), device, || {
            let h = tracked();
            let length = (h.clone() * h.clone()).sum_dim(1).add_scalar(1e-6).sqrt();
            let _ = (h / length).backward();
        });
    }
}
