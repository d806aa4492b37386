//! Hashes and counter-based random numbers: the same bits on every device.

#[cfg(feature = "cube")]
use cubecl::prelude::*;

/// Two rounds of multiply and xor-shift; the constants are those of xxHash and MurmurHash3.
#[inline(always)]
pub(crate) fn mix(a: u32, b: u32) -> u32 {
    let mut h = a.wrapping_mul(0x9E37_79B1);
    h ^= h >> 16;
    h = h.wrapping_add(b).wrapping_mul(0x85EB_CA6B);
    h ^= h >> 13;
    h = h.wrapping_mul(0xC2B2_AE35);
    h ^ (h >> 16)
}

/// Philox4x32-10: one block of the counter-based generator.
pub(crate) fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product0 = u64::from(counter[0]) * 0xD251_1F53;
        let product1 = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (product1 >> 32) as u32 ^ counter[1] ^ key[0],
            product1 as u32,
            (product0 >> 32) as u32 ^ counter[3] ^ key[1],
            product0 as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// What SplitMix64 adds to its state for every number.
pub(crate) const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// The factors of its finaliser.
pub(crate) const SPLITMIX_FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// The number that SplitMix64 gives in `state`; every bit of it depends on every bit of the state.
///
/// # Source
/// Steele, Lea and Flood, Fast splittable pseudorandom number generators (OOPSLA 2014).
///
/// # Example
/// ```
/// use graphsieve_kernels::splitmix64;
/// assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
/// ```
#[inline]
pub fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(SPLITMIX_STEP);
    z = (z ^ (z >> 30)).wrapping_mul(SPLITMIX_FACTORS[0]);
    z = (z ^ (z >> 27)).wrapping_mul(SPLITMIX_FACTORS[1]);
    z ^ (z >> 31)
}

/// [`mix`] on the device.
#[cfg(feature = "cube")]
#[cube]
pub(crate) fn mix_cube(a: u32, b: u32) -> u32 {
    let mut h = a * 0x9E3779B1u32;
    h ^= h >> 16u32;
    h = (h + b) * 0x85EBCA6Bu32;
    h ^= h >> 13u32;
    h *= 0xC2B2AE35u32;
    h ^ (h >> 16u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answer_of_its_authors() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
