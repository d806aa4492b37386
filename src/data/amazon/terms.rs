//! Hashed words of a product's title and description.

use std::collections::HashMap;

use super::hashing::hash_text;
use super::loose::Loose;
use super::words::for_each_word;

/// Columns of the hashed term matrix.
pub(super) const NUM_COLUMNS: usize = 1 << 16;
/// Different terms kept of one product, title first. Bounds the matrix at 512 bytes a product: 0.4 GB for the 756
/// thousand products of Amazon's Electronics.
pub(super) const MAX_TERMS: usize = 128;

/// A column of the term matrix and how often its words occur in one product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Term {
    pub column: u16,
    pub count: u16,
}

/// Terms of one product in ascending order of their columns; markup is skipped.
pub(super) fn count_terms(title: &str, description: &Loose) -> Vec<Term> {
    let mut counts: HashMap<u16, u16> = HashMap::new();
    let mut add = |text: &str| {
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
    };
    add(title);
    description.for_each_text(&mut add);
    let mut terms: Vec<Term> = counts.into_iter().map(|(column, count)| Term { column, count }).collect();
    terms.sort_unstable_by_key(|term| term.column);
    terms
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

    #[test]
    fn terms_count_words_outside_markup() {
        let description = Loose::List(vec![Loose::Text("<div class=\"gift\">Gift card</div>, a card < 5".into())]);
        let terms = count_terms("Gift Card", &description);
        assert_eq!(terms.iter().map(|term| term.count).collect::<std::collections::BTreeSet<_>>(), [2, 3].into());
        assert_eq!(terms.len(), 2);
    }

    #[test]
    fn the_number_of_terms_is_capped() {
        let long: String = (0..1000).map(|i| format!("word{i} ")).collect();
        let terms = count_terms(&long, &Loose::Null);
        assert!(terms.len() == MAX_TERMS && terms.is_sorted_by_key(|term| term.column));
    }
}
