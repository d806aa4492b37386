//! What is drawn of the neighbourhood of a node.

use crate::sampler::distinct;
use crate::splitmix::mix;

/// What a model makes of single nodes from what is around them and keeps while that is what it was: only where whole
/// rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Makes {
    /// Embeddings of nodes that were not there when all were refreshed, with the rows between their layers.
    pub embeddings: Option<Around>,
    /// How many networks of two layers score the targets; 0 where something else looks two steps, too.
    pub networks: usize,
}

/// Where embeddings are read, and what they are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    /// How many steps from the targets the nodes are of which they are read, at most as many as are gone from them
    /// anyway.
    pub within: usize,
    /// How many steps are gone from a node of which one is to be made.
    pub reach: usize,
}

/// How far a model looks, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Steps from the targets. Nodes so far away have no rows.
    pub hops: usize,
    /// What is kept of nodes: nothing is gone around them that only that is made of.
    pub makes: Makes,
    /// How many entries of every row are taken, by step from the targets; without it all are.
    ///
    /// What is drawn of a row depends on the seed, type and id of its node, the name of the relation and the step
    /// alone, and on the row itself.
    pub fanouts: Option<Vec<usize>>,
    pub seed: u64,
    /// Nodes that a neighbourhood may have.
    pub max_nodes: usize,
    /// Whether ids, labels, names of columns, and of events amounts and alerts come with it, which explanations read
    /// and scores do not.
    pub named: bool,
}

impl Draw {
    /// Fills `places` with what is taken of a row of so many entries, in ascending order. `keys` tell of the relation,
    /// the node type and the id.
    pub(super) fn take(&self, hop: usize, entries: usize, keys: [u64; 3], places: &mut Vec<u32>) {
        let fanout = self.fanouts.as_ref().map_or(usize::MAX, |fanouts| fanouts.get(hop).copied().unwrap_or(0));
        places.clear();
        places.resize(entries.min(fanout), 0);
        let key = keys.into_iter().chain([hop as u64]).fold(mix(self.seed), |sum, word| mix(sum ^ word));
        distinct(places, entries, key);
    }
}

/// A number that tells a text from others.
pub(super) fn hash_of(text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(text.len() as u64, |sum, word| mix(sum ^ word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart_and_draws_follow_from_them_alone() {
        let texts: Vec<String> = (0..2000).map(|at| "x".repeat(at % 19) + &at.to_string()).collect();
        let hashes: std::collections::HashSet<u64> = texts.iter().map(|text| hash_of(text)).collect();
        assert_eq!(hashes.len(), texts.len());
        let draw =
            Draw { hops: 2, makes: Makes::default(), fanouts: Some(vec![3, 2]), seed: 7, max_nodes: 100, named: true };
        let take = |hop, entries, id: &str| {
            let mut places = Vec::new();
            draw.take(hop, entries, [1, 2, hash_of(id)], &mut places);
            places
        };
        assert_eq!((take(0, 2, "a"), take(1, 9, "a").len(), take(2, 9, "a").len()), (vec![0, 1], 2, 0));
        assert_eq!(take(0, 90, "a"), take(0, 90, "a"));
        let drawn: std::collections::HashSet<Vec<u32>> = texts.iter().map(|id| take(0, 90, id)).collect();
        assert!(drawn.len() > 1900);
        assert!(drawn.iter().all(|places| places.is_sorted() && places[2] < 90));
    }
}
