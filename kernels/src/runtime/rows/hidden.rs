//! Hidden layers of edges: what both ends and the values of an edge add up to, behind a leaky ReLU.

use super::element::{Element, load_first, store_first};
use super::gathered::Rows;
use super::isa::{Kernel, dispatch};
use super::vector::Vector;

/// `out[k] = leaky_relu(own + x[ids[k]] + sum_v values[k, v] projection[v])`, rows of `own.len()` channels each; `x`
/// has rows of as many. The slope is not negative.
///
/// # Panics
/// If a row does not lie in `x`, or lengths differ.
pub(crate) fn hidden_rows<E: Element>(
    out: &mut [f32],
    own: &[f32],
    (x, ids): (&[E], &[u32]),
    (values, projection): (&[f32], &[f32]),
    slope: f32,
) {
    let rows = Rows::new(x, own.len(), 0, ids, ids.len());
    dispatch(HiddenRows { out, own, rows, values, projection, slope });
}

/// Turns what [`hidden_rows`] made, channels `from..from + own.len()` of rows of `stride` elements, into the gradient
/// of what stands before the leaky ReLU: `weight[k] own leaky_relu'`.
///
/// # Panics
/// If lengths do not fit.
pub(crate) fn lean_rows(hidden: &mut [f32], (stride, from): (usize, usize), own: &[f32], weight: &[f32], slope: f32) {
    dispatch(LeanRows { hidden, stride, from, own, weight, slope });
}

/// [`hidden_rows`].
struct HiddenRows<'a, E> {
    out: &'a mut [f32],
    own: &'a [f32],
    rows: Rows<'a, E>,
    values: &'a [f32],
    projection: &'a [f32],
    slope: f32,
}

impl<E: Element> Kernel for HiddenRows<'_, E> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (width, num_rows) = (self.own.len(), self.rows.ids.len());
        let columns = self.projection.len() / width;
        assert_eq!(self.out.len(), num_rows * width);
        assert_eq!(self.projection.len(), columns * width);
        assert_eq!(self.values.len(), num_rows * columns);
        self.rows.check(width);
        let far = self.rows.far();
        let whole = width / V::LANES * V::LANES;
        let (own, projection, out) = (self.own.as_ptr(), self.projection.as_ptr(), self.out.as_mut_ptr());
        // SAFETY: channels are below `width`, for which all lengths are checked.
        unsafe {
            let one = V::splat(1.0);
            for k in 0..num_rows {
                if far {
                    self.rows.prefetch(k, 0, width);
                }
                let (row, values) = (self.rows.get(k, 0), self.values.as_ptr().add(k * columns));
                let out = out.add(k * width);
                for at in (0..whole).step_by(V::LANES) {
                    let mut sum = E::load::<V>(row.add(at)).mul_add(one, V::load(own.add(at)));
                    for v in 0..columns {
                        sum = V::load(projection.add(v * width + at)).mul_add(V::splat(*values.add(v)), sum);
                    }
                    sum.store(out.add(at));
                }
                if whole < width {
                    let left = width - whole;
                    let first = load_first::<V, f32>(own.add(whole), left);
                    let mut sum = load_first::<V, E>(row.add(whole), left).mul_add(one, first);
                    for v in 0..columns {
                        let weights = load_first::<V, f32>(projection.add(v * width + whole), left);
                        sum = weights.mul_add(V::splat(*values.add(v)), sum);
                    }
                    store_first(sum, out.add(whole), left);
                }
            }
        }
        for value in self.out {
            *value = if *value > 0.0 { *value } else { self.slope * *value };
        }
    }
}

/// [`lean_rows`].
struct LeanRows<'a> {
    hidden: &'a mut [f32],
    stride: usize,
    from: usize,
    own: &'a [f32],
    weight: &'a [f32],
    slope: f32,
}

impl Kernel for LeanRows<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        assert_eq!(self.hidden.len(), self.weight.len() * self.stride);
        for (row, &weight) in self.hidden.chunks_exact_mut(self.stride).zip(self.weight) {
            let (steep, flat) = (weight, weight * self.slope);
            // A leaky ReLU keeps the sign of what it is given.
            for (value, own) in row[self.from..][..self.own.len()].iter_mut().zip(self.own) {
                *value = own * if *value > 0.0 { steep } else { flat };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::super::Row;
    use super::super::isa::{Isa, run_on};
    use super::*;

    fn check<E: Row>() {
        for (width, columns) in [(1, 0), (3, 2), (8, 1), (17, 4), (64, 0), (133, 16)] {
            let number = |k: usize| ((k * 7919 + 13) % 61) as f32 / 32.0 - 1.0;
            let ids = [3u32, 0, 3, 1, 2];
            let (x, own): (Vec<f32>, Vec<f32>) =
                ((0..4 * width).map(number).collect(), (0..width).map(number).collect());
            let mut stored = vec![E::default(); x.len()];
            E::narrow(&x, &mut stored);
            let projection: Vec<f32> = (0..columns * width).map(|k| number(k + 5)).collect();
            let values: Vec<f32> = (0..ids.len() * columns).map(|k| number(k + 9)).collect();
            let weight: Vec<f32> = (0..ids.len()).map(|k| number(k + 3)).collect();
            let before = |k: usize, c: usize| -> f64 {
                let of_edge = |v: usize| f64::from(values[k * columns + v]) * f64::from(projection[v * width + c]);
                f64::from(x[ids[k] as usize * width + c]) + f64::from(own[c]) + (0..columns).map(of_edge).sum::<f64>()
            };
            for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
                let mut out = vec![f32::NAN; ids.len() * width];
                let rows = Rows::new(&stored, width, 0, &ids, ids.len());
                let (values, projection, own) = (&values[..], &projection[..], &own[..]);
                // SAFETY: the instruction set is available.
                unsafe { run_on(isa, HiddenRows { out: &mut out, own, rows, values, projection, slope: 0.25 }) };
                for (at, &found) in out.iter().enumerate() {
                    let sum = before(at / width, at % width);
                    let want = if sum > 0.0 { sum } else { 0.25 * sum };
                    assert!((f64::from(found) - want).abs() < 1e-5, "{isa:?} {width} {columns}: {found}, not {want}");
                }
                let (from, mut lean) = (width / 3, out.clone());
                let part = &own[from..];
                let (hidden, weight) = (&mut lean[..], &weight[..]);
                // SAFETY: as above.
                unsafe { run_on(isa, LeanRows { hidden, stride: width, from, own: part, weight, slope: 0.25 }) };
                for (at, (&found, &before)) in lean.iter().zip(&out).enumerate() {
                    let slope = if before > 0.0 { 1.0 } else { 0.25 };
                    let want = if at % width < from { before } else { own[at % width] * (weight[at / width] * slope) };
                    assert_eq!(found, want, "{isa:?} {width} {columns}");
                }
            }
        }
    }

    #[test]
    fn hidden_rows_and_their_gradients_are_those_of_f64() {
        check::<f32>();
        check::<f16>();
    }
}
