//! A thread per stretch of elements, then a tree over the threads of a cube.

use cubecl::prelude::*;

use crate::ops::loss::{Loss, loss_term};
use crate::runtime::args::launch_args;

/// Threads of a cube, a power of two.
pub(crate) const THREADS: usize = 256;

/// What is added up for every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    /// `a`
    Value,
    /// `a^2`
    Square,
    /// A loss of the logits `a` with the targets or weights `b`.
    Loss(Loss),
}

launch_args! {
    /// What a term is made of.
    Terms, TermsArgs {
        a: Array<f32>,
        b: Array<f32>,
    }
}

#[cube]
fn term_at(terms: &Terms, k: usize, len: usize, #[comptime] term: Term) -> f32 {
    match comptime!(term) {
        Term::Value => terms.a[k],
        Term::Square => terms.a[k] * terms.a[k],
        Term::Loss(loss) => loss_term(&terms.a, &terms.b, k, len, loss),
    }
}

/// One partial sum per cube, times `scale`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn sum_kernel(terms: &Terms, out: &mut Array<f32>, scale: f32, len: usize, #[comptime] term: Term) {
    let mut shared = SharedMemory::<f32>::new(THREADS);
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    let mut k = ABSOLUTE_POS;
    while k < len {
        sum += term_at(terms, k, len, term);
        k += CUBE_COUNT * THREADS;
    }
    shared[unit] = sum;
    sync_cube();
    let mut half = THREADS.runtime() / 2;
    while half > 0 {
        if unit < half {
            let other = shared[unit + half];
            shared[unit] += other;
        }
        sync_cube();
        half /= 2;
    }
    if unit == 0 {
        out[CUBE_POS] = shared[0] * scale;
    }
}
