//! What users like.

use rand::Rng;

use super::catalogue::Catalogue;
use super::config::SynthConfig;
use super::rng::{Domain, geometric, item_rng};

/// Every user of 5-core data has at least five reviews.
pub(super) const MIN_REVIEWS: usize = 5;
const MAX_REVIEWS: usize = 500;

/// What a user likes and how active the user is.
pub(super) struct Tastes {
    niches: [u32; 3],
    len: usize,
    /// Number of ordinary reviews, were the user not part of any group.
    pub reviews: usize,
}

impl Tastes {
    /// One to three niches, the first one being `home` where given. Depends on seed and user only.
    pub fn of(config: &SynthConfig, catalogue: &Catalogue, home: Option<u32>, user: u32) -> Self {
        let mut rng = item_rng(config.seed, Domain::Tastes, user as usize);
        let reviews = MIN_REVIEWS + geometric(&mut rng, config.mean_reviews - MIN_REVIEWS as f64);
        let len = rng.random_range(1..=3);
        let mut niches = std::array::from_fn(|_| catalogue.draw_niche(&mut rng) as u32);
        niches[0] = home.unwrap_or(niches[0]);
        Self { niches, len, reviews: reviews.min(MAX_REVIEWS) }
    }

    pub fn niches(&self) -> &[u32] {
        &self.niches[..self.len]
    }
}
