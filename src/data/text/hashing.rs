//! Stable 64-bit hashes: the same text gives the same number on every machine and in every version.

use crate::splitmix::mix;

/// FNV-1a over the bytes, then one avalanche so that every bit of the result is usable.
pub(in crate::data) fn hash_text(text: &str) -> u64 {
    let fnv =
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(fnv)
}

/// Adds `weight * r` to `out`, where `r` is the fixed random direction of `key`: entries ±1/sqrt(out.len()), so that
/// `|r| = 1` and directions of different keys are nearly orthogonal (Achlioptas 2003, binary coins).
pub(in crate::data) fn add_random_direction(key: u64, seed: u64, weight: f32, out: &mut [f32]) {
    let step = weight / (out.len() as f32).sqrt();
    for (word, lanes) in out.chunks_mut(64).enumerate() {
        let signs = mix(key ^ mix(seed.wrapping_add(word as u64)));
        for (bit, value) in lanes.iter_mut().enumerate() {
            *value += if signs >> bit & 1 == 1 { step } else { -step };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_directions_have_length_one_and_are_nearly_orthogonal() {
        let direction = |key| {
            let mut r = vec![0.0_f32; 112];
            add_random_direction(hash_text(key), 7, 1.0, &mut r);
            r
        };
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        let (a, b) = (direction("Electronics"), direction("Computers"));
        assert!((dot(&a, &a) - 1.0).abs() < 1e-5);
        assert!(dot(&a, &b).abs() < 0.4);
        assert_eq!(a, direction("Electronics"));
    }
}
