//! Words of a text, and a small sketch that counts how many different ones were seen.

/// Calls `visit` with every word of `text`: a run of letters and digits, lower-cased.
pub(in crate::data) fn for_each_word(text: &str, mut visit: impl FnMut(&str)) {
    let mut lower = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        lower.clear();
        if word.is_ascii() {
            lower.push_str(word);
            lower.make_ascii_lowercase();
        } else {
            lower.extend(word.chars().flat_map(char::to_lowercase));
        }
        visit(&lower);
    }
}

const WORDS: usize = 16;

/// Linear counting over 1,024 bits (Whang et al. 1990): how many different items were added, within a few percent up
/// to about 4,000 items. 128 bytes per user instead of the user's whole vocabulary; a union is a bitwise or, so the
/// order of reviews does not matter.
#[derive(Clone, Copy, Default)]
pub(in crate::data) struct WordSketch([u64; WORDS]);

impl WordSketch {
    pub fn insert(&mut self, hash: u64) {
        self.0[hash as usize / 64 % WORDS] |= 1 << (hash % 64);
    }

    pub fn merge(&mut self, other: &WordSketch) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Estimated number of different items, `-m ln(empty / m)`.
    pub fn estimate(&self) -> f64 {
        let bits = (WORDS * 64) as f64;
        let set = self.0.iter().map(|word| word.count_ones()).sum::<u32>();
        // A full sketch has no finite estimate; one empty bit is its upper end.
        let empty = (bits - f64::from(set)).max(1.0);
        bits * (bits / empty).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::super::hashing::hash_text;
    use super::*;

    #[test]
    fn words_are_lower_case_runs_of_letters_and_digits() {
        let mut words = Vec::new();
        for_each_word("Don't PAY $12.99 — ÉCLAIR!", |word| words.push(word.to_owned()));
        assert_eq!(words, ["don", "t", "pay", "12", "99", "éclair"]);
    }

    #[test]
    fn the_sketch_counts_different_words_within_a_few_percent() {
        for count in [1_u32, 50, 400, 2_000] {
            let mut sketch = WordSketch::default();
            for i in (0..count).chain(0..count) {
                sketch.insert(hash_text(&format!("word{i}")));
            }
            let error = (sketch.estimate() - f64::from(count)).abs() / f64::from(count);
            assert!(error < 0.08, "{count}: {}", sketch.estimate());
        }
    }
}
