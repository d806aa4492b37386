//! The relations of the marketplace: purchase, selling and co-purchase.

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::catalogue::Catalogue;
use super::reviews::Reviews;
use crate::data::text::ragged::Ragged;
use crate::error::{Error, Result};
use crate::graph::Adjacency;

/// user <- product: one entry for every product a user reviewed at least once.
pub(super) fn purchases(reviews: &Reviews) -> Adjacency {
    let pairs: Vec<(u32, u32)> = reviews.reviews.iter().map(|review| (review.user, review.product)).collect();
    Adjacency::from_edges(reviews.users.len(), reviews.by_product.num_rows(), &pairs)
}

/// product <- seller: at most one entry per product.
pub(super) fn selling(catalogue: &Catalogue) -> Adjacency {
    let sellers = catalogue.products.iter().enumerate();
    let pairs: Vec<(u32, u32)> = sellers.filter_map(|(p, product)| Some((p as u32, product.seller?))).collect();
    Adjacency::from_edges(catalogue.ids.len(), catalogue.sellers.len(), &pairs)
}

/// user <- user: all pairs of users among at most `cap` sampled reviewers of a product, in both directions, and one
/// self-loop per user.
///
/// `reviewers` is product <- user. Every product draws from its own random stream, so neither the number of threads
/// nor other products change its sample. A hub product thus costs `cap²` entries, not the square of its reviewers.
pub(super) fn co_purchases(reviewers: &Adjacency, cap: usize, seed: u64) -> Result<Adjacency> {
    let num_users = reviewers.num_cols();
    let samples: Vec<Vec<u32>> = (0..reviewers.num_rows())
        .into_par_iter()
        .map(|product| {
            let users = reviewers.row(product);
            if users.len() <= cap {
                return users.to_vec();
            }
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(product as u64);
            let mut sample: Vec<u32> = index::sample(&mut rng, users.len(), cap).iter().map(|i| users[i]).collect();
            sample.sort_unstable();
            sample
        })
        .collect();
    let mut sampled = Ragged::default();
    samples.into_iter().for_each(|sample| sampled.push_row(sample));

    // Each user's row is the union of the samples that the user is in; no list of all pairs ever exists.
    let places = Ragged::group(num_users, sampled.items().iter().copied());
    let product_of: Vec<u32> =
        sampled.rows().enumerate().flat_map(|(p, row)| std::iter::repeat_n(p as u32, row.len())).collect();
    let rows: Vec<Vec<u32>> = (0..num_users)
        .into_par_iter()
        .map(|user| {
            let others = places.row(user).iter().flat_map(|&at| sampled.row(product_of[at as usize] as usize));
            let mut row: Vec<u32> = others.copied().chain([user as u32]).collect();
            row.sort_unstable();
            row.dedup();
            row.shrink_to_fit();
            row
        })
        .collect();
    let mut row_ptr = Vec::with_capacity(num_users + 1);
    row_ptr.push(0);
    for row in &rows {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len() as u64);
    }
    Adjacency::new(row_ptr, rows.concat(), num_users).map_err(|error| Error::Data {
        what: "co-purchase relation".into(),
        expected: "a sound adjacency".into(),
        found: error.to_string(),
        help: "this is a defect of the program; please report it with the input files".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_purchase_links_all_reviewers_of_a_product_and_every_user_with_itself() {
        // product <- user: product 0 by users 0, 1, 2; product 1 by 2, 3; user 4 by nobody else.
        let reviewers = Adjacency::from_edges(3, 5, &[(0, 0), (0, 1), (0, 2), (1, 2), (1, 3), (2, 4)]);
        let euu = co_purchases(&reviewers, 25, 1).unwrap();
        let rows: Vec<&[u32]> = (0..5).map(|i| euu.row(i)).collect();
        assert_eq!(rows, [&[0, 1, 2][..], &[0, 1, 2], &[0, 1, 2, 3], &[2, 3], &[4]]);
    }

    #[test]
    fn a_hub_product_links_only_the_sampled_users_symmetrically_and_by_seed() {
        let pairs: Vec<(u32, u32)> = (0..100).map(|user| (0, user)).collect();
        let reviewers = Adjacency::from_edges(1, 100, &pairs);
        let euu = co_purchases(&reviewers, 25, 1).unwrap();
        assert_eq!(euu.num_edges(), 25 * 24 + 100);
        assert!(euu.is_reverse_of(&euu));
        let again = co_purchases(&reviewers, 25, 1).unwrap();
        let other = co_purchases(&reviewers, 25, 2).unwrap();
        assert_eq!(euu.col_idx(), again.col_idx());
        assert_ne!(euu.col_idx(), other.col_idx());
    }
}
