//! A thread per element.

use cubecl::prelude::*;

/// [`AdamFactors`](super::AdamFactors) as the kernel sees them.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Factors {
    pub rate: f32,
    pub mean_decay: f32,
    pub mean_fresh: f32,
    pub square_decay: f32,
    pub square_fresh: f32,
    pub correction: f32,
    pub epsilon: f32,
    pub gradient_scale: f32,
    pub clip_norm: f32,
    pub clip_epsilon: f32,
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn adam_kernel(
    values: &Array<f32>,
    mean: &Array<f32>,
    square: &Array<f32>,
    gradient: &Array<f32>,
    squares: &Array<f32>,
    new_values: &mut Array<f32>,
    new_mean: &mut Array<f32>,
    new_square: &mut Array<f32>,
    f: Factors,
    len: usize,
    #[comptime] clipped: bool,
) {
    let mut factor = f.gradient_scale;
    if clipped {
        let norm = squares[0].sqrt() * f.gradient_scale;
        factor *= (f.clip_norm / (norm + f.clip_epsilon)).min(1.0f32);
    }
    let mut k = ABSOLUTE_POS;
    while k < len {
        let g = gradient[k] * factor;
        let m = mean[k] * f.mean_decay + g * f.mean_fresh;
        let v = square[k] * f.square_decay + g * g * f.square_fresh;
        let length = (v / f.correction).sqrt() + f.epsilon;
        new_mean[k] = m;
        new_square[k] = v;
        new_values[k] = values[k] - m / length * f.rate;
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
