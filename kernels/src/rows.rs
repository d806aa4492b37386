//! Inner loops of the CPU operators: gather rows, weigh them, add them up.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A storage type of features; arithmetic is f32.
pub(crate) trait Row: Copy + Send + Sync {
    fn widen(src: &[Self], dst: &mut [f32]);
    fn narrow(src: &[f32], dst: &mut [Self]);

    fn add_rows(acc: &mut [f32], x: &[Self], stride: usize, from: usize, ids: &[u32], weight: &[f32])
    where
        Self: Sized,
    {
        let mut row = vec![0f32; acc.len()];
        for (&j, &w) in ids.iter().zip(weight) {
            let at = j as usize * stride + from;
            Self::widen(&x[at..at + acc.len()], &mut row);
            acc.iter_mut().zip(&row).for_each(|(a, &v)| *a += w * v);
        }
    }

    fn add_rows_twice(acc: [&mut [f32]; 2], x: &[Self], stride: usize, from: usize, ids: &[u32], weight: [&[f32]; 2])
    where
        Self: Sized,
    {
        let [a, b] = acc;
        Self::add_rows(a, x, stride, from, ids, weight[0]);
        Self::add_rows(b, x, stride, from, ids, weight[1]);
    }

    fn dot_rows(dots: &mut [f32], own: &[f32], x: &[Self], stride: usize, from: usize, ids: &[u32])
    where
        Self: Sized,
    {
        let mut row = vec![0f32; own.len()];
        for (dot, &j) in dots.iter_mut().zip(ids) {
            let at = j as usize * stride + from;
            Self::widen(&x[at..at + own.len()], &mut row);
            *dot = own.iter().zip(&row).map(|(a, b)| a * b).sum();
        }
    }
}

impl Row for f32 {
    fn widen(src: &[f32], dst: &mut [f32]) {
        dst.copy_from_slice(src);
    }
    fn narrow(src: &[f32], dst: &mut [f32]) {
        dst.copy_from_slice(src);
    }
}

impl Row for f16 {
    fn widen(src: &[f16], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }
    fn narrow(src: &[f32], dst: &mut [f16]) {
        dst.convert_from_f32_slice(src);
    }
}

impl Row for bf16 {
    fn widen(src: &[bf16], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }
    fn narrow(src: &[f32], dst: &mut [bf16]) {
        dst.convert_from_f32_slice(src);
    }
}

pub(crate) fn exp_weights(values: &mut [f32]) -> (f32, f32) {
    let max = values.iter().copied().fold(f32::MIN, f32::max);
    let mut sum = 0f32;
    for v in values {
        *v = (*v - max).exp();
        sum += *v;
    }
    (max, sum)
}

pub(crate) fn exp_all(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v = v.exp());
}

#[derive(Clone, Copy)]
pub(crate) struct KeepKey {
    pub key0: u32,
    pub key1: u32,
    pub threshold: u32,
    pub row_base: u32,
    pub col_base: u32,
    pub reversed: bool,
}

pub(crate) fn keep_into(kept: &mut Vec<u32>, row: u32, cols: &[i32], key: KeepKey) {
    let mix = |a: u32, b: u32| {
        let mut h = a.wrapping_mul(0x9E37_79B1);
        h ^= h >> 16;
        h = h.wrapping_add(b).wrapping_mul(0x85EB_CA6B);
        h ^= h >> 13;
        h = h.wrapping_mul(0xC2B2_AE35);
        h ^ (h >> 16)
    };
    for &col in cols {
        let (r, c) = (row.wrapping_add(key.row_base), (col as u32).wrapping_add(key.col_base));
        let (dst, src) = if key.reversed { (c, r) } else { (r, c) };
        if mix(dst ^ key.key0, src ^ key.key1) < key.threshold {
            kept.push(col as u32);
        }
    }
}

pub(crate) fn zeroed<T: Copy + Default>(len: usize) -> Vec<T> {
    vec![T::default(); len]
}
