//! numpy's `RandomState`, draw by draw: splits that were made with it can be made again.

/// Words of the state of MT19937.
const WORDS: usize = 624;
/// Distance of the word that is mixed in.
const MIDDLE: usize = 397;

/// The legacy generator of numpy, MT19937 (Matsumoto and Nishimura, 1998).
#[derive(Clone)]
pub(super) struct RandomState {
    words: [u32; WORDS],
    at: usize,
}

impl RandomState {
    /// As `numpy.random.RandomState(seed)`.
    pub fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        for at in 1..WORDS {
            let before = words[at - 1];
            words[at] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(at as u32);
        }
        Self { words, at: WORDS }
    }

    fn next(&mut self) -> u32 {
        if self.at == WORDS {
            for at in 0..WORDS {
                let joined = (self.words[at] & 0x8000_0000) | (self.words[(at + 1) % WORDS] & 0x7fff_ffff);
                let twisted = (joined >> 1) ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.words[at] = self.words[(at + MIDDLE) % WORDS] ^ twisted;
            }
            self.at = 0;
        }
        let mut word = self.words[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number from 0 to `largest`: draws are cut to its bits until one is small enough.
    fn up_to(&mut self, largest: u32) -> u32 {
        if largest == 0 {
            return 0;
        }
        let mask = u32::MAX >> largest.leading_zeros();
        loop {
            let drawn = self.next() & mask;
            if drawn <= largest {
                return drawn;
            }
        }
    }

    /// As `shuffle`: every place from the last to the second is swapped with one up to it.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.up_to(last as u32) as usize);
        }
    }

    /// As `permutation(count)`; the first `n` of it are `choice(count, n, replace=False)`.
    pub fn permutation(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        self.shuffle(&mut order);
        order
    }
}
