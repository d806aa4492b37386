//! Operators of the rows of a matrix.

use graphsieve_kernels::testing::gradient::{gather_grad, linear_grad, pair_dot_grad};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{
    Dtype, assert_close, assert_close_at_scale, oracle, probe, values_in, with_tiled_products,
};
use graphsieve_kernels::{
    Activation, GraphBackend, PairIndex, Part, RowIndex, beside_pieces, combine, combine_products, dropout,
    gather_rows, linear, normalise_rows, on_every_backend, pair_dot, row_dots,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "dense";
        dropout_matches_the_oracle,
        pair_dot_matches_the_oracle,
        gather_matches_the_oracle,
        linear_matches_the_oracle_for_few_rows,
        linear_matches_the_oracle_below_the_bound_of_stretches,
        linear_matches_the_oracle_above_the_bound_of_stretches,
        linear_matches_the_oracle_for_every_shape,
        linear_by_tiles_matches_the_oracle,
        linear_is_as_accurate_for_rows_and_columns_of_every_size,
        combine_matches_its_definition,
        sums_of_products_match_their_definition,
        normalised_rows_match_their_definition,
        pieces_match_their_definition,
        row_dots_match_the_oracle,
    )
}

fn dropout_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_dropout::<B>(Dtype::F32, device);
}

pub fn check_dropout<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let (drop, oracle_drop) = half_weightless();
    let scale = 32f64.exp2() / f64::from(oracle_drop.threshold);
    for (rows, width) in [(0, 4), (1, 1), (70, 3), (33, 31), (40, 128), (3, 500)] {
        let name = format!("dropout [{rows}, {width}] {dtype:?}");
        let values = values_in(dtype, 51, rows * width);
        let x = up::<Ad<B>, 2>(&values, [rows, width], dtype, device).require_grad();
        let out = dropout(x.clone(), &drop);
        let factor = |k: usize| {
            let kept = oracle_drop.keep((k / width) as u32, (k % width) as u32);
            if kept { scale } else { 0.0 }
        };
        let times_factors = |of: &[f64]| -> Vec<f64> { of.iter().enumerate().map(|(k, v)| v * factor(k)).collect() };
        assert_close(&name, &down(out.clone().inner()), &times_factors(&values), dtype, 1);
        if rows == 0 {
            continue; // Burn's own product and sum of the loss do not take a matrix without rows.
        }
        // Rows of a part are dropped as they are in the whole.
        let [first, later] = [1, rows - 1];
        if later > 0 {
            let part = dropout(x.clone().inner().narrow(0, first, later), &drop.with_bases(first as u32, 0));
            assert_eq!(down(part), down(out.clone().inner().narrow(0, first, later)), "{name}, from row {first} on");
        }
        let grads = backward::<B, 2>(out, dtype);
        let g: Vec<f64> = probe(rows * width).iter().map(|&p| dtype.round(p)).collect();
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &times_factors(&g), dtype, 1);
    }
}

fn pieces_match_their_definition<B: GraphBackend>(device: &B::Device) {
    check_pieces::<B>(Dtype::F32, device);
}

pub fn check_pieces<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for (rows, width, columns, pieces) in [(0, 3, 3, 2), (1, 1, 1, 1), (70, 5, 3, 4), (33, 4, 0, 2), (300, 37, 37, 6)] {
        let name = format!("pieces [{rows}, {width}], {columns} columns in {pieces} {dtype:?}");
        let values = values_in(dtype, 53, rows * width);
        let mut ends: Vec<f64> = values_in(Dtype::F32, 54, columns * (pieces + 1));
        for ends in ends.chunks_exact_mut(pieces + 1) {
            ends.sort_unstable_by(f64::total_cmp);
            // The last piece of a column may be empty.
            ends[pieces] = ends[pieces - 1].max(ends[pieces] - 0.3);
        }
        let x = up::<Ad<B>, 2>(&values, [rows, width], dtype, device);
        let out = beside_pieces(x, up::<Ad<B>, 2>(&ends, [columns, pieces + 1], Dtype::F32, device));
        assert_eq!(out.dims(), [rows, width + columns * pieces], "{name}");
        let share = |x: f64, [from, to]: [f64; 2]| match x {
            _ if from == to || x <= from => 0.0,
            _ if x >= to => 1.0,
            _ => (x - from) / (to - from),
        };
        let row = |row: &[f64]| -> Vec<f64> {
            let of_column = |(x, ends): (&f64, &[f64])| {
                let shares: Vec<f64> = ends.windows(2).map(|ends| share(*x, [ends[0], ends[1]])).collect();
                shares
            };
            let shares = row.iter().zip(ends.chunks(pieces + 1)).flat_map(of_column);
            row.iter().copied().chain(shares).collect()
        };
        let want: Vec<f64> = values.chunks(width).flat_map(row).collect();
        assert_close(&name, &down(out.inner()), &want, dtype, 1);
    }
}

fn pair_dot_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_pair_dot::<B>(&[1, 31, 128, 200], Dtype::F32, device);
}

pub fn check_pair_dot<B: GraphBackend>(widths: &[usize], dtype: Dtype, device: &B::Device) {
    let (num_left, num_right) = (40, 25);
    for &width in widths {
        for pairs in [0usize, 1, 700] {
            let name = format!("pair_dot width {width} pairs {pairs} {dtype:?}");
            let mut rng = graphsieve_kernels::testing::Rng::new(3);
            let (ia, ib) = (rng.indices(pairs, num_left), rng.indices(pairs, num_right));
            let (a, b) = (values_in(dtype, 41, num_left * width), values_in(dtype, 42, num_right * width));
            let left = up::<Ad<B>, 2>(&a, [num_left, width], dtype, device).require_grad();
            let right = up::<Ad<B>, 2>(&b, [num_right, width], dtype, device).require_grad();
            let index = PairIndex::new(&ia, &ib, num_left, num_right, device);
            let out = pair_dot(left.clone(), right.clone(), &index);
            let want = oracle::pair_dot(&a, &b, width, &ia, &ib);
            assert_close(&name, &down(out.clone().inner()), &want, Dtype::F32, width);
            if pairs == 0 {
                continue;
            }
            let grads = backward::<B, 1>(out, Dtype::F32);
            let (da, db) = pair_dot_grad(&a, &b, width, &ia, &ib, &probe(pairs));
            assert_close(&format!("{name}: dleft"), &gradient::<B, 2>(&left, &grads), &da, dtype, pairs);
            assert_close(&format!("{name}: dright"), &gradient::<B, 2>(&right, &grads), &db, dtype, pairs);
        }
    }
}

fn gather_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_gather::<B>(&[1, 33], Dtype::F32, device);
}

pub fn check_gather<B: GraphBackend>(widths: &[usize], dtype: Dtype, device: &B::Device) {
    let rows = 30;
    for &width in widths {
        let xs = values_in(dtype, 51, rows * width);
        let index = graphsieve_kernels::testing::Rng::new(4).indices(500, rows);
        let x = up::<Ad<B>, 2>(&xs, [rows, width], dtype, device).require_grad();
        let out = gather_rows(x.clone(), &RowIndex::new(&index, rows, device));
        let got: Vec<f64> = down(out.clone().inner()).into_iter().map(f64::from).collect();
        assert_eq!(got, oracle::gather(&xs, width, &index), "a gather copies");
        let grads = backward::<B, 2>(out, dtype);
        let rounded_probe: Vec<f64> = probe(500 * width).iter().map(|&p| dtype.round(p)).collect();
        let want = gather_grad(rows, width, &index, &rounded_probe);
        assert_close("gather: dx", &gradient::<B, 2>(&x, &grads), &want, dtype, 500);
    }
}

fn linear_matches_the_oracle_for_few_rows<B: GraphBackend>(device: &B::Device) {
    // Tiles of 128, stretches of 256 and more.
    check_rows::<B>(&[1, 100, 257], device);
}

// On the CPU 512 stretches of at least 64: 32,768 is the first size that is split, and 33,000 leaves a remainder.
fn linear_matches_the_oracle_below_the_bound_of_stretches<B: GraphBackend>(device: &B::Device) {
    check_rows::<B>(&[32_767], device);
}

fn linear_matches_the_oracle_above_the_bound_of_stretches<B: GraphBackend>(device: &B::Device) {
    check_rows::<B>(&[32_768, 33_000], device);
}

fn check_rows<B: GraphBackend>(counts: &[usize], device: &B::Device) {
    for &rows in counts {
        check_linear::<B>(rows, 31, 9, [Dtype::F32; 2], device);
    }
}

fn linear_matches_the_oracle_for_every_shape<B: GraphBackend>(device: &B::Device) {
    // Tiles of 128 results and 32 deep, widths that are no multiple of a vector, and a depth that does not fit in
    // shared memory at once; few columns, such as values of edges.
    for (k, m) in
        [(4, 8), (128, 128), (384, 128), (132, 260), (31, 128), (128, 1), (900, 132), (3, 24), (1, 128), (12, 9)]
    {
        check_linear::<B>(700, k, m, [Dtype::F32; 2], device);
    }
}

/// Odd widths, whose product and both gradients are tiles in registers where a narrow plane would take a thread for
/// each result; and one column, for which there are products of their own.
fn linear_by_tiles_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    for (rows, k, m) in [(257, 31, 9), (700, 128, 1)] {
        with_tiled_products(|| check_linear::<B>(rows, k, m, [Dtype::F32; 2], device));
    }
}

/// Rows and columns that differ by many powers of two, rows whose values grow or shrink along the depth by 2^24; a row
/// of zeros, and one with an infinity, which stays its own.
fn linear_is_as_accurate_for_rows_and_columns_of_every_size<B: GraphBackend>(device: &B::Device) {
    const ZEROS: usize = 7;
    const INFINITE: usize = 11;
    let (rows, k, m) = (300, 132, 140);
    let power = |exponent: usize, below: i32| f64::from(exponent as i32 - below).exp2();
    let of_row = |r: usize| power(r % 81, 40);
    let of_column = |c: usize| power(c % 41, 20);
    let along = |r: usize, d: usize| match r % 3 {
        0 => 1.0,
        1 => power(24 * d / k, 24),
        _ => power(24 - 24 * d / k, 24),
    };
    let scaled = |at: usize, x: f64| match at / k {
        ZEROS => 0.0,
        INFINITE if at % k == 5 => f64::INFINITY,
        r => x * of_row(r) * along(r, at % k),
    };
    let xs: Vec<f64> =
        values_in(Dtype::F32, 64, rows * k).into_iter().enumerate().map(|(at, x)| scaled(at, x)).collect();
    let ws: Vec<f64> =
        values_in(Dtype::F32, 65, k * m).into_iter().enumerate().map(|(at, w)| w * of_column(at % m)).collect();
    let x = up::<B, 2>(&xs, [rows, k], Dtype::F32, device);
    let got = down(linear(x, up::<B, 2>(&ws, [k, m], Dtype::F32, device), None));
    let want = oracle::linear(&xs, &ws, &vec![0.0; m], k);
    for r in 0..rows {
        let own = r * m..(r + 1) * m;
        if r == INFINITE {
            assert!(got[own].iter().all(|y| !y.is_finite()), "row {r} has an infinity");
            continue;
        }
        let of_size = |(c, y): (usize, f64)| y / of_row(r) / of_column(c);
        let got: Vec<f32> =
            got[own.clone()].iter().enumerate().map(|(c, &y)| of_size((c, f64::from(y))) as f32).collect();
        let want: Vec<f64> = want[own].iter().copied().enumerate().map(of_size).collect();
        assert_close(&format!("row {r}"), &got, &want, Dtype::F32, k);
    }
}

pub fn check_half_linear<B: GraphBackend>(dtypes: [Dtype; 2], device: &B::Device) {
    for (rows, k, m) in
        [(300, 128, 128), (2_000, 128, 128), (2_000, 384, 128), (33_000, 31, 9), (100, 31, 7), (600, 3, 24)]
    {
        check_linear::<B>(rows, k, m, dtypes, device);
    }
}

fn check_linear<B: GraphBackend>(rows: usize, k: usize, m: usize, [dtype, weights]: [Dtype; 2], device: &B::Device) {
    let (xs, ws, bs) = (values_in(dtype, 61, rows * k), values_in(weights, 62, k * m), values_in(dtype, 63, m));
    let x = up::<Ad<B>, 2>(&xs, [rows, k], dtype, device).require_grad();
    let w = up::<Ad<B>, 2>(&ws, [k, m], weights, device).require_grad();
    // What the product sees of them.
    let ws: Vec<f64> = ws.into_iter().map(|w| dtype.round(w)).collect();
    let b = up::<Ad<B>, 1>(&bs, [m], dtype, device).require_grad();
    let out = linear(x.clone(), w.clone(), Some(b.clone()));
    let name = format!("linear {rows} rows, {k} to {m}, {dtype:?}, weights {weights:?}");
    assert_close(&name, &down(out.clone().inner()), &oracle::linear(&xs, &ws, &bs, k), dtype, k);
    let grads = backward::<B, 2>(out, dtype);
    let rounded_probe: Vec<f64> = probe(rows * m).iter().map(|&p| dtype.round(p)).collect();
    let (dx, dw, db) = linear_grad(&xs, &ws, k, m, &rounded_probe);
    assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &dx, dtype, m);
    assert_close(&format!("{name}: dw"), &gradient::<B, 2>(&w, &grads), &dw, dtype, rows);
    assert_close(&format!("{name}: db"), &gradient::<B, 1>(&b, &grads), &db, dtype, rows);
}

fn combine_matches_its_definition<B: GraphBackend>(device: &B::Device) {
    for (parts, with_bias, activation) in [
        (1, false, Activation::Elu),
        (2, true, Activation::Relu),
        (3, true, Activation::Identity),
        (4, true, Activation::Elu),
        (7, true, Activation::Elu),
    ] {
        check_combine::<B>(parts, with_bias, activation, Dtype::F32, device);
    }
}

pub fn check_half_combine<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for (parts, activation) in [(2, Activation::Elu), (3, Activation::Relu), (7, Activation::Identity)] {
        check_combine::<B>(parts, true, activation, dtype, device);
    }
    for weights in [dtype, Dtype::F32] {
        check_products::<B>(300, &[128, 128], 128, Activation::Elu, [dtype, weights], device);
    }
}

/// Depths of whole blocks and others, more products than one kernel adds up, and more depth than it takes.
fn sums_of_products_match_their_definition<B: GraphBackend>(device: &B::Device) {
    for (rows, depths, width, activation) in [
        (300, vec![128, 128], 128, Activation::Elu),
        (700, vec![128, 36, 64], 132, Activation::Relu),
        (40, vec![384], 128, Activation::Relu),
        (200, vec![32, 128, 4, 128], 128, Activation::Identity),
        (40, vec![32; 5], 128, Activation::Elu),
        (20, vec![384, 384], 128, Activation::Elu),
        (20, vec![31, 8], 12, Activation::Elu),
    ] {
        check_products::<B>(rows, &depths, width, activation, [Dtype::F32; 2], device);
    }
}

/// A bias and a product for each of `depths`; the result, and the gradient of each factor.
fn check_products<B: GraphBackend>(
    rows: usize,
    depths: &[usize],
    width: usize,
    activation: Activation,
    [dtype, weights]: [Dtype; 2],
    device: &B::Device,
) {
    let name =
        format!("sum of products {rows} x {depths:?} to {width}, {activation:?}, {dtype:?}, weights {weights:?}");
    let scale = 0.5;
    let bias = values_in(Dtype::F32, 90, width);
    let tracked_bias = up::<Ad<B>, 1>(&bias, [width], Dtype::F32, device).require_grad();
    let (mut sums, mut factors, mut parts) = (vec![0.0; rows * width], Vec::new(), Vec::new());
    for (at, &depth) in depths.iter().enumerate() {
        let seed = 100 + 2 * at as u64;
        let (xs, ws) = (values_in(dtype, seed, rows * depth), values_in(weights, seed + 1, depth * width));
        let x = up::<Ad<B>, 2>(&xs, [rows, depth], dtype, device).require_grad();
        let weight = up::<Ad<B>, 2>(&ws, [depth, width], weights, device).require_grad();
        // What the product sees of them.
        let ws: Vec<f64> = ws.into_iter().map(|w| dtype.round(w)).collect();
        let first = if at == 0 { bias.clone() } else { vec![0.0; width] };
        sums.iter_mut().zip(oracle::linear(&xs, &ws, &first, depth)).for_each(|(sum, y)| *sum += y);
        parts.push(Part::Product { x: x.clone(), weight: weight.clone() });
        factors.push((x, xs, weight, ws, depth));
    }
    let out = combine_products(parts, Some(tracked_bias.clone()), scale as f32, activation);
    let terms: usize = depths.iter().sum();
    let want: Vec<f64> = sums.iter().map(|sum| value(activation, scale * sum)).collect();
    assert_close(&name, &down(out.clone().inner()), &want, dtype, terms);
    let grads = backward::<B, 2>(out, dtype);
    let shared = probe(rows * width).into_iter().zip(&sums);
    let shared: Vec<f64> = shared.map(|(p, sum)| scale * dtype.round(p) * slope(activation, scale * sum)).collect();
    // The slope of ELU is made of the sums, and has their error.
    let of_sums = if activation == Activation::Elu { terms } else { 0 };
    for (at, (x, xs, weight, ws, depth)) in factors.into_iter().enumerate() {
        let (dx, dw, _) = linear_grad(&xs, &ws, depth, width, &shared);
        assert_close(&format!("{name}: dx {at}"), &gradient::<B, 2>(&x, &grads), &dx, dtype, width + of_sums);
        assert_close(&format!("{name}: dw {at}"), &gradient::<B, 2>(&weight, &grads), &dw, dtype, rows + of_sums);
    }
    let want: Vec<f64> = (0..width).map(|c| (0..rows).map(|r| shared[r * width + c]).sum()).collect();
    assert_close(&format!("{name}: dbias"), &gradient::<B, 1>(&tracked_bias, &grads), &want, dtype, rows + of_sums);
}

fn value(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::Relu => y.max(0.0),
        Activation::Elu if y <= 0.0 => y.exp_m1(),
        Activation::Identity | Activation::Elu => y,
    }
}

fn slope(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::Relu => f64::from(u8::from(y > 0.0)),
        Activation::Elu if y <= 0.0 => y.exp(),
        Activation::Identity | Activation::Elu => 1.0,
    }
}

fn check_combine<B: GraphBackend>(
    parts: u64,
    with_bias: bool,
    activation: Activation,
    dtype: Dtype,
    device: &B::Device,
) {
    let (rows, width) = (20, 25);
    let name = format!("combine {parts} parts {dtype:?} {activation:?}");
    let inputs: Vec<Vec<f64>> = (0..parts).map(|p| values_in(dtype, 75 + p, rows * width)).collect();
    let bias = values_in(Dtype::F32, 90, width);
    let scale = 0.5;
    let tracked: Vec<_> =
        inputs.iter().map(|x| up::<Ad<B>, 2>(x, [rows, width], dtype, device).require_grad()).collect();
    let tracked_bias = with_bias.then(|| up::<Ad<B>, 1>(&bias, [width], Dtype::F32, device).require_grad());
    let out = combine(tracked.clone(), tracked_bias.clone(), scale as f32, activation);
    let sum = |k: usize| {
        let bias = if with_bias { bias[k % width] } else { 0.0 };
        scale * (inputs.iter().map(|x| x[k]).sum::<f64>() + bias)
    };
    let want: Vec<f64> = (0..rows * width).map(|k| value(activation, sum(k))).collect();
    assert_close(&name, &down(out.clone().inner()), &want, dtype, parts as usize);
    let grads = backward::<B, 2>(out, dtype);
    let dx: Vec<f64> = probe(rows * width)
        .iter()
        .enumerate()
        .map(|(k, &p)| scale * dtype.round(p) * slope(activation, sum(k)))
        .collect();
    for x in &tracked {
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(x, &grads), &dx, dtype, 2);
    }
    if let Some(bias) = tracked_bias {
        let want: Vec<f64> = (0..width).map(|c| (0..rows).map(|r| dx[r * width + c]).sum()).collect();
        assert_close(&format!("{name}: dbias"), &gradient::<B, 1>(&bias, &grads), &want, dtype, rows);
    }
}

fn normalised_rows_match_their_definition<B: GraphBackend>(device: &B::Device) {
    check_normalised::<B>(&[1, 31, 128, 200], Dtype::F32, device);
}

pub fn check_normalised<B: GraphBackend>(widths: &[usize], dtype: Dtype, device: &B::Device) {
    for &width in widths {
        let rows = 40;
        let mut xs = values_in(dtype, 77, rows * width);
        xs[..width].fill(0.0);
        let x = up::<Ad<B>, 2>(&xs, [rows, width], dtype, device).require_grad();
        let out = normalise_rows(x.clone());
        let name = format!("normalise_rows width {width} {dtype:?}");
        // A row of one element has no gradient: two equal terms cancel.
        let (mut z, mut dx, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        let weights = probe(rows * width);
        for (row, g) in xs.chunks(width).zip(weights.chunks(width)) {
            let length = (row.iter().map(|v| v * v).sum::<f64>() + 1e-12).sqrt();
            let unit: Vec<f64> = row.iter().map(|v| v / length).collect();
            let along: f64 = unit.iter().zip(g).map(|(u, g)| u * g).sum();
            dx.extend(unit.iter().zip(g).map(|(u, g)| (g - u * along) / length));
            terms.extend(unit.iter().zip(g).map(|(u, g)| (g.abs() + (u * along).abs()) / length));
            z.extend(unit);
        }
        assert_close(&name, &down(out.clone().inner()), &z, Dtype::F32, width);
        let grads = backward::<B, 2>(out, Dtype::F32);
        // The row of zeros has a gradient of 1e6: its own scale would hide every other row.
        let got = gradient::<B, 2>(&x, &grads);
        let check = |what: &str, part: std::ops::Range<usize>| {
            let (got, want, terms) = (&got[part.clone()], &dx[part.clone()], &terms[part]);
            assert_close_at_scale(&format!("{name}: {what}"), got, want, terms, dtype, width);
        };
        if dtype == Dtype::F32 {
            check("dx of zeros", 0..width);
        }
        check("dx", width..rows * width);
    }
}

fn row_dots_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    // 32 rows and more to a partial sum on GPUs, eight at a time, 1024 on the CPU; four vectors to a launch.
    let shapes = [(1, 1, 1), (193, 31, 3), (2_100, 128, 4), (300, 200, 9)];
    check_row_dots::<B>(&shapes, Dtype::F32, device);
}

/// Shapes are rows, their width and vectors.
pub fn check_row_dots<B: GraphBackend>(shapes: &[(usize, usize, usize)], dtype: Dtype, device: &B::Device) {
    for &(rows, width, count) in shapes {
        let name = format!("row_dots {rows} x {width}, {count} vectors, {dtype:?}");
        let (xs, vs) = (values_in(dtype, 78, rows * width), values_in(Dtype::F32, 79, count * width));
        let x = up::<Ad<B>, 2>(&xs, [rows, width], dtype, device).require_grad();
        let v = up::<Ad<B>, 2>(&vs, [count, width], Dtype::F32, device).require_grad();
        let out = row_dots(x.clone(), v.clone());
        let transposed: Vec<f64> = (0..width * count).map(|k| vs[k % count * width + k / count]).collect();
        let want = oracle::linear(&xs, &transposed, &vec![0.0; count], width);
        assert_close(&name, &down(out.clone().inner()), &want, Dtype::F32, width);
        let grads = backward::<B, 2>(out, Dtype::F32);
        let (dx, dv, _) = linear_grad(&xs, &transposed, width, count, &probe(rows * count));
        let dv: Vec<f64> = (0..width * count).map(|k| dv[k % width * count + k / width]).collect();
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &dx, dtype, count);
        assert_close(&format!("{name}: dv"), &gradient::<B, 2>(&v, &grads), &dv, Dtype::F32, rows);
    }
}
