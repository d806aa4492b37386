//! Primitives over vectors on the CPU.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Bytes, DType, Element};
use burn_flex::{Flex, FlexTensor, Layout};
use bytemuck::Pod;
use rayon::prelude::*;

use super::{Prefix, PrimsBackend, Reduction};
use crate::runtime::flex;

/// An element of a vector here.
trait Number: Element + Pod + PartialOrd + Send + Sync {
    /// Orders like the number, floats in their total order.
    type Key: Ord + Send;
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
    fn key(self) -> Self::Key;
}

macro_rules! integer {
    ($($E:ty),+) => {
        $(impl Number for $E {
            type Key = $E;
            const ZERO: Self = 0;
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn key(self) -> $E {
                self
            }
        })+
    };
}
integer!(i32, u32, i64);

impl Number for f32 {
    type Key = i32;
    const ZERO: Self = 0.0;
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn key(self) -> i32 {
        let bits = self.to_bits() as i32;
        // Negative floats order against their bits.
        if bits < 0 { bits ^ i32::MAX } else { bits }
    }
}

/// Runs `$body` with `$E` bound to the element of `$x`.
macro_rules! with_number {
    ($x:expr, $E:ident => $body:expr) => {
        match $x.dtype() {
            DType::I32 => {
                type $E = i32;
                $body
            }
            DType::U32 => {
                type $E = u32;
                $body
            }
            DType::I64 => {
                type $E = i64;
                $body
            }
            DType::F32 => {
                type $E = f32;
                $body
            }
            other => panic!("expected i32, u32, i64 or f32, got {other:?}"),
        }
    };
}

fn slice<E: Number>(x: &FlexTensor) -> &[E] {
    x.as_slice().expect("the caller made the vector contiguous and matched its dtype")
}

fn vector<E: Number>(values: Vec<E>) -> FlexTensor {
    let len = values.len();
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous([len].into()), E::dtype())
}

fn reduce(x: FlexTensor, by: Reduction) -> FlexTensor {
    let x = x.to_contiguous();
    with_number!(x, E => vector(vec![reduced::<E>(slice(&x), by)]))
}

#[allow(clippy::eq_op)] // Only a NaN differs from itself.
fn reduced<E: Number>(x: &[E], by: Reduction) -> E {
    x[1..].iter().fold(x[0], |a, &b| match by {
        Reduction::Sum => a.plus(b),
        Reduction::Max if b > a || a != a => b,
        Reduction::Min if b < a || a != a => b,
        _ => a,
    })
}

fn prefix_sum(x: FlexTensor, prefix: Prefix) -> FlexTensor {
    let x = x.to_contiguous();
    with_number!(x, E => vector(prefix_sums::<E>(slice(&x), prefix)))
}

fn prefix_sums<E: Number>(x: &[E], prefix: Prefix) -> Vec<E> {
    let mut sum = E::ZERO;
    let next = |&value: &E| {
        let before = sum;
        sum = sum.plus(value);
        if prefix == Prefix::Inclusive { sum } else { before }
    };
    x.iter().map(next).collect()
}

fn argsort(x: FlexTensor) -> FlexTensor {
    let x = x.to_contiguous();
    with_number!(x, E => vector(positions::<E>(slice(&x))))
}

fn positions<E: Number>(x: &[E]) -> Vec<i32> {
    let mut order: Vec<i32> = (0..x.len() as i32).collect();
    order.par_sort_unstable_by_key(|&at| (x[at as usize].key(), at));
    order
}

impl PrimsBackend for Flex {
    fn reduce_ints(x: IntTensor<Self>, by: Reduction) -> IntTensor<Self> {
        reduce(x, by)
    }

    fn reduce_floats(x: FloatTensor<Self>, by: Reduction) -> FloatTensor<Self> {
        reduce(x, by)
    }

    fn prefix_sum_ints(x: IntTensor<Self>, prefix: Prefix) -> IntTensor<Self> {
        prefix_sum(x, prefix)
    }

    fn prefix_sum_floats(x: FloatTensor<Self>, prefix: Prefix) -> FloatTensor<Self> {
        prefix_sum(x, prefix)
    }

    fn argsort_ints(x: IntTensor<Self>) -> IntTensor<Self> {
        argsort(x)
    }

    fn argsort_floats(x: FloatTensor<Self>) -> IntTensor<Self> {
        argsort(x)
    }

    fn partition_by_flag(values: IntTensor<Self>, flags: IntTensor<Self>) -> (IntTensor<Self>, IntTensor<Self>) {
        let (values, flags) = (values.to_contiguous(), flags.to_contiguous());
        with_number!(values, E => {
            let flagged = slice::<E>(&values).iter().zip(flex::ids(&flags));
            let side = |wanted: bool| flagged.clone().filter(move |(_, f)| (**f != 0) == wanted).map(|(&v, _)| v);
            let mut parted: Vec<E> = side(true).collect();
            let count = parted.len() as i32;
            parted.extend(side(false));
            (vector(parted), vector(vec![count]))
        })
    }
}
