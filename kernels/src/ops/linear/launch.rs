//! Matrix products on CubeCL devices with a kernel that is fixed before the launch: nothing is benchmarked.

use burn::tensor::{DType, Shape, Slice};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{launch_naive, launch_tiling};
use cubek::matmul::routines::BlueprintStrategy;
use cubek::matmul::routines::simple_unit::SimpleUnitAlgorithm;
use cubek::std::InputBinding;

use super::gram_mma::{GRAM_PLANES, partial_gram_mma_kernel};
use super::kernel::{
    GramFactorsArgs, GramSizesArgs, ProductSizesArgs, SIDE, TILE, VECTOR, WeightArgs, partial_gram_kernel,
    tall_product_kernel,
};
use super::mma::{self, ProductShape, TermArgs, TermsArgs, tall_product_mma_kernel};
use super::sum::one_by_one;
use super::{Activation, LinearBackend, Products};
use crate::ops::head::column_sums;
use crate::ops::row_dots::RowDotsBackend;
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{Rows, address, empty, f32_vector, zeros};

/// Stretches of rows whose products are added up in the end: enough for every multiprocessor of a large GPU.
const MAX_STRETCHES: usize = 512;
/// Columns of the input up to which its gradient is one sum of rows for each, where vectors of four do not fit, and
/// columns of the result up to which the registers hold such a row.
const MAX_NARROW: usize = 16;
const MAX_WIDE: usize = 1024;
/// Rows of a stretch, at least.
const MIN_ROWS: usize = 256;
/// Rows up to which a product with a thread for each result has a grid that every device takes.
const MAX_SINGLE: usize = 1 << 18;

const CUBE: CubeDim = CubeDim { x: SIDE as u32, y: SIDE as u32, z: 1 };

impl_for_devices! { LinearBackend =>
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        let (rows, columns, dtype) = (x.meta.shape()[0], w.meta.shape()[1], x.dtype);
        let out = empty(&x, [rows, columns], dtype);
        if out.meta.shape().num_elements() == 0 {
            return out;
        }
        let tensor_cores = has_tensor_cores(&out.client);
        // A weight that was only transposed in name is read as it lies.
        let turned = !(tensor_cores && w.meta.strides()[0] == 1 && w.meta.strides()[1] >= w.meta.shape()[0]);
        let (x, w) = (Rows::of(x), Rows::of(if turned { into_contiguous(w) } else { Self::float_transpose(w) }));
        if !fits(&x) || !fits(&w) || !columns.is_multiple_of(VECTOR) {
            let w = if turned { w.tensor } else { Self::float_transpose(w.tensor) };
            launch_units(&x.tensor, &as_dtype(w, dtype), &out);
            return out;
        }
        let tiles = rows.div_ceil(TILE).min(1 << 15) as u32;
        let column_tiles = columns.div_ceil(TILE) as u32;
        if tensor_cores {
            tall_product(&[(x, w)], &out, turned, None);
            return out;
        }
        let count = CubeCount::Static(tiles, column_tiles, 1);
        // SAFETY: every load and store is guarded by the sizes of its matrix.
        unsafe {
            tall_product_kernel::launch_unchecked::<R>(
                &out.client,
                count,
                CUBE,
                address(&[&x.tensor, &w.tensor, &out]),
                VECTOR,
                x.matrix(VECTOR),
                WeightArgs { matrix: w.matrix(VECTOR) }.launch(),
                array(&out),
                ProductSizesArgs { rows, depth: x.width / VECTOR, columns: columns / VECTOR }.launch(),
                [dtype.into(), w.tensor.dtype.into()],
            );
        }
        out
    }

    fn combine_products(
        terms: Products<Self>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let ((rows, dtype), columns) = ((terms[0].0.meta.shape()[0], terms[0].0.dtype), terms[0].1.meta.shape()[1]);
        let weights_dtype = terms[0].1.dtype;
        let client = &terms[0].0.client;
        let step = mma::depth_of_step(dtype == DType::F32);
        let depth: usize = terms.iter().map(|(x, _)| x.meta.shape()[1].next_multiple_of(step)).sum();
        let one_kernel = has_tensor_cores(client)
            && depth <= most_depth(client)
            && rows > 0
            && columns > 0
            && columns.is_multiple_of(VECTOR)
            && terms.iter().all(|(_, w)| w.dtype == weights_dtype);
        if one_kernel {
            let rows_of = |(x, w): &(CubeTensor<R>, CubeTensor<R>)| (Rows::of(x.clone()), Rows::of(w.clone()));
            let read: Vec<_> = terms.iter().map(rows_of).collect();
            if read.iter().all(|(x, w)| fits(x) && fits(w)) {
                let out = empty(&terms[0].0, [rows, columns], dtype);
                tall_product(&read, &out, true, Some(&Finish { bias: bias.map(f32_vector), scale, activation }));
                return out;
            }
        }
        one_by_one::<Self>(terms, bias, scale, activation)
    }

    fn weight_gradient(x: FloatTensor<Self>, g: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self> {
        let storage = x.dtype;
        let (rows, height, width) = (x.meta.shape()[0], x.meta.shape()[1], g.meta.shape()[1]);
        if rows == 0 {
            return zeros(&x, [height, width], dtype);
        }
        let (x, g) = (Rows::of(x), Rows::of(g));
        let sum = if fits(&x) && fits(&g) {
            let per_stretch = rows.div_ceil(MAX_STRETCHES).max(MIN_ROWS);
            let stretches = rows.div_ceil(per_stretch);
            let partial = empty(&x.tensor, [stretches, height * width], DType::F32);
            let tiles = [height, width].map(|side| side.div_ceil(TILE) as u32);
            let count = CubeCount::Static(stretches as u32, tiles[0], tiles[1]);
            let reached = address(&[&x.tensor, &g.tensor, &partial]);
            let (tall, wide) = (height / VECTOR, width / VECTOR);
            let sizes = GramSizesArgs { rows, rows_per_stretch: per_stretch, height: tall, width: wide };
            // SAFETY: every load and store is guarded by the sizes of its matrix.
            unsafe {
                if has_tensor_cores(&partial.client) {
                    partial_gram_mma_kernel::launch_unchecked::<R>(
                        &partial.client,
                        count,
                        CubeDim { x: 32, y: GRAM_PLANES, z: 1 },
                        reached,
                        VECTOR,
                        words(storage),
                        GramFactorsArgs { x: x.matrix(VECTOR), g: g.matrix(VECTOR) }.launch(),
                        array(&partial),
                        sizes.launch(),
                        storage == DType::F32,
                        storage.into(),
                    );
                } else {
                    partial_gram_kernel::launch_unchecked::<R>(
                        &partial.client,
                        count,
                        CUBE,
                        reached,
                        VECTOR,
                        GramFactorsArgs { x: x.matrix(VECTOR), g: g.matrix(VECTOR) }.launch(),
                        array(&partial),
                        sizes.launch(),
                        storage.into(),
                    );
                }
            }
            Self::float_reshape(column_sums(partial), Shape::new([height, width]))
        } else if height <= MAX_NARROW && width <= MAX_WIDE {
            Self::weighted_column_sums(g.tensor, x.tensor)
        } else {
            in_stretches::<Self, R>(&as_dtype(x.tensor, DType::F32), &as_dtype(g.tensor, DType::F32))
        };
        as_dtype(sum, dtype)
    }
}

/// What happens to a sum of products.
struct Finish<R: CubeRuntime> {
    bias: Option<CubeTensor<R>>,
    scale: f32,
    activation: Activation,
}

/// The depth of a product whose weight fits in shared memory.
fn most_depth<R: CubeRuntime>(client: &ComputeClient<R>) -> usize {
    let room = client.properties().hardware.max_shared_memory_size / (mma::TILE * size_of::<f32>()) - 1;
    let steps = 2 * mma::depth_of_step(false);
    room / steps * steps
}

/// The sum of up to four products of `x` and `w`, which fit, on tensor cores; several are not deeper than
/// [`most_depth`] together.
fn tall_product<R: CubeRuntime>(
    terms: &[(Rows<R>, Rows<R>)],
    out: &CubeTensor<R>,
    turned: bool,
    finish: Option<&Finish<R>>,
) {
    let (rows, columns, dtype) = (out.meta.shape()[0], out.meta.shape()[1], out.dtype);
    let weights_dtype = terms[0].1.tensor.dtype;
    let split = dtype == DType::F32;
    let padded = |x: &Rows<R>| x.width.next_multiple_of(mma::depth_of_step(split));
    let whole = terms.iter().map(|(x, _)| padded(x)).sum::<usize>();
    let depth = if terms.len() == 1 { terms[0].0.width } else { whole };
    let cubes = out.client.properties().hardware.num_streaming_multiprocessors.unwrap_or(128) as usize;
    let cubes = rows.div_ceil(mma::ROWS).clamp(1, cubes) as u32;
    let chunk = whole.next_multiple_of(2 * mma::depth_of_step(split)).min(most_depth(&out.client));
    let shape = ProductShape {
        terms: terms.len(),
        chunk,
        whole: depth <= chunk,
        turned,
        split,
        bias: finish.is_some_and(|finish| finish.bias.is_some()),
        ends: finish.is_some(),
        activation: finish.map_or_else(Activation::default, |finish| finish.activation),
    };
    let mut first = 0;
    // A term that is not there still needs its buffers.
    let mut term = |at: usize| {
        let (x, w) = terms.get(at).unwrap_or(&terms[0]);
        let start = first;
        first += padded(x) / VECTOR;
        let (x_rows, weight) = (x.matrix(VECTOR), w.matrix(VECTOR));
        TermArgs { x: x_rows, w: weight, depth: x.width, first: start, end: first }.launch()
    };
    let arguments = TermsArgs { a: term(0), b: term(1), c: term(2), d: term(3) }.launch();
    let bias = finish.and_then(|finish| finish.bias.as_ref()).unwrap_or(out);
    let mut reached = vec![out];
    reached.extend(terms.iter().flat_map(|(x, w)| [&x.tensor, &w.tensor]));
    // SAFETY: every load and store is guarded by the sizes of its matrix.
    unsafe {
        tall_product_mma_kernel::launch_unchecked::<R>(
            &out.client,
            CubeCount::Static(cubes, columns.div_ceil(TILE) as u32, 1),
            CubeDim { x: 32, y: mma::PRODUCT_PLANES, z: 1 },
            address(&reached),
            VECTOR,
            words(dtype),
            arguments,
            array(bias),
            finish.map_or(1.0, |finish| finish.scale),
            array(out),
            ProductSizesArgs { rows, depth, columns }.launch(),
            shape,
            [dtype.into(), weights_dtype.into(), halves_of(dtype).into()],
        );
    }
}

/// The type that tensor cores multiply matrices of `dtype` in.
fn halves_of(dtype: DType) -> DType {
    if dtype == DType::F32 { DType::F16 } else { dtype }
}

/// `x^T g` of f32 matrices as a batch of products over stretches of rows, whose results are added up.
fn in_stretches<B: LinearBackend<FloatTensorPrimitive = CubeTensor<R>>, R: CubeRuntime>(
    x: &CubeTensor<R>,
    g: &CubeTensor<R>,
) -> CubeTensor<R> {
    let (rows, height, width) = (x.meta.shape()[0], x.meta.shape()[1], g.meta.shape()[1]);
    let stretches = if rows >= MAX_STRETCHES * MIN_ROWS { MAX_STRETCHES } else { 1 };
    let per_stretch = rows / stretches;
    let main = per_stretch * stretches;
    let part = |t: &CubeTensor<R>, from: usize, to: usize, width: usize| {
        B::float_slice(t.clone(), &[Slice::from(from..to), Slice::from(0..width)])
    };
    let batch = |t: &CubeTensor<R>, width: usize| {
        B::float_reshape(part(t, 0, main, width), Shape::new([stretches, per_stretch, width]))
    };
    let partial = empty(x, [stretches, height, width], x.dtype);
    let turned = B::float_swap_dims(batch(x, height), 1, 2);
    launch_units(&turned, &batch(g, width), &partial);
    let partial = B::float_reshape(partial, Shape::new([stretches, height * width]));
    let sum = B::float_reshape(column_sums(into_contiguous(partial)), Shape::new([height, width]));
    if main == rows {
        return sum;
    }
    let rest = B::weight_gradient(part(x, main, rows, height), part(g, main, rows, width), DType::F32);
    B::float_add(sum, rest)
}

/// Whether the device has the tensor-core products that [`mma`] and [`super::gram_mma`] are written for.
fn has_tensor_cores<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    let cd_type = ElemType::Float(FloatKind::F32).into();
    let properties = client.properties();
    let has = |(factor, k)| {
        let factor = ElemType::Float(factor).into();
        properties.features.matmul.mma.contains(&MmaConfig { a_type: factor, b_type: factor, cd_type, m: 16, n: 8, k })
    };
    properties.hardware.plane_size_max == 32
        && properties.hardware.plane_size_min == 32
        && [(FloatKind::F16, 16), (FloatKind::BF16, 16), (FloatKind::TF32, 8)].into_iter().all(has)
}

/// Words of a vector of four.
fn words(dtype: DType) -> usize {
    VECTOR * dtype.size() / size_of::<u32>()
}

/// Whether the rows can be read by vectors of four.
fn fits<R: CubeRuntime>(rows: &Rows<R>) -> bool {
    rows.width.is_multiple_of(VECTOR) && rows.is_aligned_to(VECTOR)
}

fn as_dtype<R: CubeRuntime>(tensor: CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    if tensor.dtype == dtype { tensor } else { cast(tensor, dtype) }
}

/// A product without tensor cores, which takes any widths and runs on every device. It names its two kernels: with
/// cubek's choice by `Strategy`, or Burn's `matmul`, twenty are compiled into this crate.
fn launch_units<R: CubeRuntime>(lhs: &CubeTensor<R>, rhs: &CubeTensor<R>, out: &CubeTensor<R>) {
    let dtype = out.dtype.into();
    let mut elems = MatmulElems::from_globals(&MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype });
    // A driver that runs on the processor has narrow planes. Mesa's takes some three seconds to compile a product of
    // tiles in registers, for each kind of widths, and runs it no faster.
    let tiles = takes_tiles(&out.client, out.meta.shape()[out.meta.num_dims() - 2]);
    let [lhs, rhs] = [lhs, rhs].map(|operand| InputBinding::new(operand.clone().binding(), dtype));
    let (client, out) = (&out.client, out.clone().binding());
    let launched = if tiles {
        let blueprint = BlueprintStrategy::<(), SimpleUnitAlgorithm>::default();
        launch_tiling::launch_ref(client, lhs, rhs, out, &blueprint, &mut elems)
    } else {
        launch_naive::launch_ref(client, lhs, rhs, out, &elems)
    };
    launched.expect("a product without tensor cores runs on every device");
}

/// Whether a product without tensor cores is made of tiles in registers.
fn takes_tiles<R: CubeRuntime>(client: &ComputeClient<R>, rows: usize) -> bool {
    #[cfg(feature = "testing")]
    if crate::runtime::switches::wants_tiled_products() {
        return true;
    }
    client.properties().hardware.plane_size_max >= 32 || rows > MAX_SINGLE
}
