//! Sums on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::SumBackend;
use super::kernel::{THREADS, Term, TermsArgs, sum_kernel};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, f32_vector};

/// Elements that one cube adds up alone: a second launch costs more than sixteen loads of a thread.
const ELEMENTS_PER_CUBE: usize = 16 * THREADS;

/// Most partial sums: the second launch is one cube again.
const MAX_CUBES: usize = ELEMENTS_PER_CUBE;

/// `scale` times the sum of `term` over `len` elements, at least one: `[1]`, in an order that depends on `len` alone.
pub(crate) fn sum<R: CubeRuntime>(
    a: CubeTensor<R>,
    b: Option<CubeTensor<R>>,
    len: usize,
    scale: f32,
    term: Term,
) -> CubeTensor<R> {
    let cubes = len.div_ceil(ELEMENTS_PER_CUBE).min(MAX_CUBES);
    let last = cubes == 1;
    let a = f32_vector(a);
    // A vector that is not there still needs a buffer.
    let b = b.map_or_else(|| a.clone(), f32_vector);
    let out = empty(&a, [cubes], DType::F32);
    // SAFETY: the loop ends at `len`, which the vectors have, and every cube has its element of the result.
    unsafe {
        sum_kernel::launch_unchecked::<R>(
            &out.client,
            CubeCount::Static(cubes as u32, 1, 1),
            CubeDim::new_1d(THREADS as u32),
            address(&[&a, &b]),
            TermsArgs { a: array(&a), b: array(&b) }.launch(),
            array(&out),
            if last { scale } else { 1.0 },
            len,
            term,
        );
    }
    if last { out } else { sum(out, None, cubes, scale, Term::Value) }
}

impl_for_devices! { SumBackend =>
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let len = x.meta.shape()[0];
        sum(x, None, len, 1.0, Term::Square)
    }
}
