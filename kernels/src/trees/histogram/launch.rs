//! Histograms on CubeCL devices.

use std::ops::Range;

use burn::tensor::DType;
use burn_backend::tensor::IntTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::AtomicUsage;
use cubecl::ir::{ElemType, IntKind, StorageType, Type};
use cubecl::prelude::*;

use super::bins::{BinParts, Storage};
use super::kernel::{
    DenseBinsArgs, LeftOutArgs, MAX_CUBE_ROWS, RowGradientsArgs, RowGradientsLaunch, SparseBinsArgs, WideBinsArgs,
    dense_kernel, reconstruct_kernel, sparse_kernel, subtract_kernel, total_kernel, wide_kernel,
};
use super::{HistogramBackend, WORDS};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, address, flat, zeros};
use crate::runtime::prims::kernel::THREADS;

/// Fewer rows are not worth a cube that clears and adds up a tile.
const MIN_CUBE_ROWS: usize = 2048;

/// Cubes of a launch where there are rows enough for as many: several waves on a large GPU.
const CUBES: usize = 2048;

/// Whether the device adds to 64-bit integers in memory in one step.
pub(crate) fn adds_wide<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    #[cfg(feature = "testing")]
    if crate::runtime::switches::wants_narrow_additions() {
        return false;
    }
    let atomic = Type::new(StorageType::Atomic(ElemType::Int(IntKind::I64)));
    client.properties().atomic_type_usage(atomic).contains(AtomicUsage::Add)
}

/// The type that is added to.
fn sum_type(wide: bool) -> StorageType {
    if wide { DType::I64.into() } else { DType::U32.into() }
}

pub(crate) fn build<R: CubeRuntime>(
    bins: &BinParts<CubeTensor<R>>,
    gradients: &CubeTensor<R>,
    rows: &CubeTensor<R>,
    span: Range<usize>,
    wide: bool,
) -> CubeTensor<R> {
    let sums = zeros(gradients, [WORDS * bins.num_bins], DType::I64);
    let client = &sums.client;
    match &bins.storage {
        Storage::Dense(dense) => {
            if dense.num_tiles > 0 {
                let cubes = CUBES.div_ceil(dense.num_tiles);
                let cube_rows = span.len().div_ceil(cubes).clamp(MIN_CUBE_ROWS, MAX_CUBE_ROWS);
                // SAFETY: rows and bins were checked against their numbers when they were uploaded.
                unsafe {
                    dense_kernel::launch_unchecked::<R>(
                        client,
                        CubeCount::Static(span.len().div_ceil(cube_rows) as u32, dense.num_tiles as u32, 1),
                        CubeDim::new_1d(THREADS as u32),
                        address(&[&dense.words, gradients]),
                        DenseBinsArgs {
                            words: array(&dense.words),
                            tiles: array(&dense.tiles),
                            num_rows: bins.num_rows,
                        }
                        .launch(),
                        row_gradients(gradients, rows, &span),
                        array(&sums),
                        cube_rows,
                        wide,
                        sum_type(wide),
                    );
                }
            }
            if dense.num_wide > 0 {
                let cubes = span.len().div_ceil(THREADS).min(CUBES);
                // SAFETY: as above.
                unsafe {
                    wide_kernel::launch_unchecked::<R>(
                        client,
                        CubeCount::Static(cubes as u32, dense.num_wide as u32, 1),
                        CubeDim::new_1d(THREADS as u32),
                        address(&[&dense.wide, gradients]),
                        WideBinsArgs {
                            bins: array(&dense.wide),
                            features: array(&dense.wide_features),
                            num_rows: bins.num_rows,
                        }
                        .launch(),
                        row_gradients(gradients, rows, &span),
                        array(&sums),
                        wide,
                        sum_type(wide),
                    );
                }
            }
        }
        Storage::Sparse(sparse) => {
            let geometry = PlanePerRow::of(client);
            // SAFETY: row pointers, features and bins were checked when they were uploaded.
            unsafe {
                sparse_kernel::launch_unchecked::<R>(
                    client,
                    geometry.count(span.len()),
                    geometry.dim,
                    address(&[&sparse.entries, gradients]),
                    SparseBinsArgs { row_ptr: array(&sparse.row_ptr), entries: array(&sparse.entries) }.launch(),
                    row_gradients(gradients, rows, &span),
                    array(&sums),
                    wide,
                    sum_type(wide),
                );
            }
        }
    }
    sums
}

fn row_gradients<R: CubeRuntime>(
    gradients: &CubeTensor<R>,
    rows: &CubeTensor<R>,
    span: &Range<usize>,
) -> RowGradientsLaunch<R> {
    RowGradientsArgs { gradients: array(gradients), rows: array(rows), start: span.start, end: span.end }.launch()
}

pub(crate) fn total<R: CubeRuntime>(
    gradients: &CubeTensor<R>,
    rows: &CubeTensor<R>,
    span: Range<usize>,
    wide: bool,
) -> CubeTensor<R> {
    let sums = zeros(gradients, [WORDS], DType::I64);
    // SAFETY: the span was checked against the list, and its rows when they were uploaded.
    unsafe {
        total_kernel::launch_unchecked::<R>(
            &sums.client,
            CubeCount::Static(span.len().div_ceil(MIN_CUBE_ROWS).min(CUBES) as u32, 1, 1),
            CubeDim::new_1d(THREADS as u32),
            address(&[gradients]),
            row_gradients(gradients, rows, &span),
            array(&sums),
            wide,
            sum_type(wide),
        );
    }
    sums
}

impl_for_devices! { HistogramBackend =>
    fn build_histogram(
        bins: &BinParts<IntTensor<Self>>,
        gradients: &IntTensor<Self>,
        rows: &IntTensor<Self>,
        span: Range<usize>,
    ) -> IntTensor<Self> {
        build(bins, gradients, rows, span, adds_wide(&gradients.client))
    }

    fn gradient_total(gradients: &IntTensor<Self>, rows: &IntTensor<Self>, span: Range<usize>) -> IntTensor<Self> {
        total(gradients, rows, span, adds_wide(&gradients.client))
    }

    fn reconstruct_bins(
        sums: IntTensor<Self>,
        bins: &BinParts<IntTensor<Self>>,
        total: &IntTensor<Self>,
    ) -> IntTensor<Self> {
        let sums = if sums.can_mut() { sums } else { sums.copy() };
        // SAFETY: the histogram was built of these bins.
        unsafe {
            reconstruct_kernel::launch_unchecked::<R>(
                &sums.client,
                CubeCount::Static(bins.num_features.min(1 << 15) as u32, 1, 1),
                CubeDim::new_1d(THREADS as u32),
                array(&sums),
                LeftOutArgs {
                    offsets: array(&bins.offsets),
                    left_out: array(&bins.left_out),
                    total: array(total),
                    num_features: bins.num_features,
                }
                .launch(),
            );
        }
        sums
    }

    fn subtract_histogram(parent: IntTensor<Self>, child: &IntTensor<Self>) -> IntTensor<Self> {
        let len = parent.meta.shape()[0];
        let sums = if parent.can_mut() { parent } else { parent.copy() };
        let (count, dim) = flat(len);
        // SAFETY: the loop ends at the length of both.
        unsafe {
            subtract_kernel::launch_unchecked::<R>(
                &sums.client,
                count,
                dim,
                sums.clone().into_array_arg(),
                child.clone().into_array_arg(),
                len,
            );
        }
        sums
    }
}
