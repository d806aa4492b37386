//! Hashed words of the texts of a node.

use std::collections::HashMap;

use super::hashing::hash_text;
use super::words::for_each_word;

/// Columns of the hashed term matrix.
pub(in crate::data) const NUM_COLUMNS: usize = 1 << 16;
/// Different terms kept of one node, the first ones. Bounds the matrix at 512 bytes a node: 0.4 GB for the 756
/// thousand products of Amazon's Electronics.
pub(in crate::data) const MAX_TERMS: usize = 128;

/// A column of the term matrix and how often its words occur in the texts of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::data) struct Term {
    pub column: u16,
    pub count: u16,
}

/// Counts the terms of one node, in the order in which its texts are added; markup is skipped.
#[derive(Default)]
pub(in crate::data) struct TermCounter(HashMap<u16, u16>);

impl TermCounter {
    pub fn add(&mut self, text: &str) {
        let counts = &mut self.0;
        for part in visible_parts(text) {
            for_each_word(part, |word| {
                let column = (hash_text(word) >> 48) as u16;
                let full = counts.len() >= MAX_TERMS;
                if let Some(count) = counts.get_mut(&column) {
                    *count = count.saturating_add(1);
                } else if !full && word.len() > 1 {
                    counts.insert(column, 1);
                }
            });
        }
    }

    /// The terms in ascending order of their columns.
    pub fn finish(self) -> Vec<Term> {
        let mut terms: Vec<Term> = self.0.into_iter().map(|(column, count)| Term { column, count }).collect();
        terms.sort_unstable_by_key(|term| term.column);
        terms
    }
}

/// The stretches of `text` outside `<...>`; a bracket that is never closed is kept as text.
fn visible_parts(text: &str) -> impl Iterator<Item = &str> {
    text.split('<').enumerate().map(|(i, part)| match part.split_once('>') {
        Some((_, visible)) if i > 0 => visible,
        _ => part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(texts: &[&str]) -> Vec<Term> {
        let mut counter = TermCounter::default();
        texts.iter().for_each(|text| counter.add(text));
        counter.finish()
    }

    #[test]
    fn terms_count_words_outside_markup() {
        let terms = count(&["Gift Card", "<div class=\"gift\">Gift card</div>, a card < 5"]);
        assert_eq!(terms.iter().map(|term| term.count).collect::<std::collections::BTreeSet<_>>(), [2, 3].into());
        assert_eq!(terms.len(), 2);
    }

    #[test]
    fn the_number_of_terms_is_capped() {
        let long: String = (0..1000).map(|i| format!("word{i} ")).collect();
        let terms = count(&[&long]);
        assert!(terms.len() == MAX_TERMS && terms.is_sorted_by_key(|term| term.column));
    }
}
