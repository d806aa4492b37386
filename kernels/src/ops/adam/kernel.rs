//! A thread per element.

use cubecl::prelude::*;

use crate::runtime::args::launch_args;

launch_args! {
    /// [`AdamFactors`](super::AdamFactors) as the kernel sees them.
    Factors, FactorsArgs {
        rate: f32,
        mean_decay: f32,
        mean_fresh: f32,
        square_decay: f32,
        square_fresh: f32,
        correction: f32,
        epsilon: f32,
        gradient_scale: f32,
        clip_norm: f32,
        clip_epsilon: f32,
    }
}

launch_args! {
    /// The parameters and their moments.
    State, StateArgs {
        values: Array<f32>,
        mean: Array<f32>,
        square: Array<f32>,
    }
}

launch_args! {
    /// The gradient, and the square of its length.
    Gradient, GradientArgs {
        values: Array<f32>,
        sum_of_squares: Array<f32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn adam_kernel(
    state: &State,
    gradient: &Gradient,
    new: &mut State,
    f: &Factors,
    len: usize,
    #[comptime] clipped: bool,
) {
    let mut factor = f.gradient_scale;
    if clipped {
        let norm = gradient.sum_of_squares[0].sqrt() * f.gradient_scale;
        factor *= (f.clip_norm / (norm + f.clip_epsilon)).min(1.0f32);
    }
    let mut k = ABSOLUTE_POS;
    while k < len {
        let g = gradient.values[k] * factor;
        let m = state.mean[k] * f.mean_decay + g * f.mean_fresh;
        let v = state.square[k] * f.square_decay + g * g * f.square_fresh;
        let length = (v / f.correction).sqrt() + f.epsilon;
        new.mean[k] = m;
        new.square[k] = v;
        new.values[k] = state.values[k] - m / length * f.rate;
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
