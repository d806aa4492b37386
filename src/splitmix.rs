//! SplitMix64 (Steele et al., 2014): numbers that look random, each computed on its own from a key.

/// What the state grows by from one number to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number behind the state `value`: a bijection on 64 bits in which every input bit changes about half of the
/// output bits.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The number at place `counter` of the stream of seed 0.
#[inline]
pub(crate) fn nth(counter: u64) -> u64 {
    mix(counter.wrapping_mul(STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_generator() {
        let published = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!([0, 1, 2].map(nth), published);
        assert_eq!(mix(0), published[0]);
    }
}
