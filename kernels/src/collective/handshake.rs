//! Whether all ranks mean the same.

use crate::runtime::hash::splitmix64;

/// Bytes of a hash.
const HASH: usize = 8;

pub(super) fn hash(bytes: &[u8]) -> [u8; HASH] {
    let word = |state: u64, chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        splitmix64(state ^ u64::from_le_bytes(word))
    };
    bytes.chunks(8).fold(splitmix64(bytes.len() as u64), word).to_le_bytes()
}

/// Of every part a hash of its name and one of its bytes, as numbers from 0 to 255.
pub(super) fn digest(parts: &[(&str, &[u8])]) -> Vec<f32> {
    let of_part = |(name, bytes): &(&str, &[u8])| [hash(name.as_bytes()), hash(bytes)].concat();
    parts.iter().flat_map(of_part).map(f32::from).collect()
}

/// The parts whose digests are not the same everywhere, with the ranks that differ from rank 0.
pub(super) fn differing(parts: &[(&str, &[u8])], digests: &[&[f32]]) -> Vec<(String, Vec<usize>)> {
    let of_part = |(k, (name, _)): (usize, &(&str, &[u8]))| {
        let part = |rank: usize| &digests[rank][k * 2 * HASH..(k + 1) * 2 * HASH];
        let ranks: Vec<usize> = (1..digests.len()).filter(|&rank| part(rank) != part(0)).collect();
        (!ranks.is_empty()).then(|| (name.to_string(), ranks))
    };
    parts.iter().enumerate().filter_map(of_part).collect()
}
