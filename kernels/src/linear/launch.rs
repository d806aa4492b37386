//! Matrix products on CubeCL devices with a strategy that is fixed before the launch: nothing is benchmarked.

use burn::tensor::DType;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::element::BoolElement;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::std::InputBinding;

use super::LinearBackend;
use crate::launch::empty;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> LinearBackend for CubeBackend<R, F, I, BT> {
    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        let dtype = lhs.dtype;
        let rank = lhs.meta.shape().num_dims();
        let mut shape = lhs.meta.shape().clone();
        shape[rank - 1] = rhs.meta.shape()[rank - 1];
        let out = empty(&lhs, shape, dtype);
        if out.meta.shape().num_elements() == 0 {
            return out;
        }
        if dtype == DType::F32 {
            full_precision(lhs, rhs, out)
        } else {
            // Tensor cores where there are some; they add up in f32.
            matmul(lhs, rhs, Some(out), MatmulStrategy::Cube, dtype).expect("the shapes of a product were checked")
        }
    }
}

/// A product in true f32: tensor cores would round the inputs to 10 bits (tf32).
fn full_precision<R: CubeRuntime>(lhs: CubeTensor<R>, rhs: CubeTensor<R>, out: CubeTensor<R>) -> CubeTensor<R> {
    let dtype = DType::F32.into();
    let mut elems = MatmulElems::from_globals(&MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype });
    launch_ref(
        &Strategy::SimpleUnit(Default::default()),
        &out.client,
        InputBinding::new(lhs.binding(), dtype),
        InputBinding::new(rhs.binding(), dtype),
        out.clone().binding(),
        &mut elems,
    )
    .expect("a product without tensor cores runs on every device");
    out
}
