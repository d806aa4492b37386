//! What is for sale: categories, niches within them, product popularity and brands.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::config::SynthConfig;
use super::rng::{Domain, cumulative, draw, item_rng};

const MAX_CATEGORIES: usize = 24;
/// Reviewed products of a niche: large enough for niches to overlap little, small enough for fans to meet again.
const NICHE_SIZE: f64 = 150.0;
/// Rank offset of the Zipf-Mandelbrot laws: flattens the very top, as in real review data.
const POPULARITY_OFFSET: f64 = 2.0;
/// The largest brand of Electronics sells about 2 % of its products.
const BRAND_OFFSET: f64 = 5.0;
const BRAND_EXPONENT: f64 = 1.0;

/// Products in niches and brands.
pub(super) struct Catalogue {
    /// Products of every niche, most popular first.
    pub niches: Vec<Vec<u32>>,
    /// How many of `niches[i]`, from the front, attract ordinary reviews.
    pub reviewed: Vec<usize>,
    pub category_of_niche: Vec<u8>,
    pub niche_of: Vec<u32>,
    /// Seller of every product; `None` for unbranded goods.
    pub brand_of: Vec<Option<u32>>,
    popularity: Vec<f64>,
    niche_sums: Vec<f64>,
}

impl Catalogue {
    pub fn generate(config: &SynthConfig) -> Self {
        let mut rng = item_rng(config.seed, Domain::Catalogue, 0);
        let categories = (config.sellers / 4).clamp(2, MAX_CATEGORIES);
        let category_weights: Vec<f64> = (0..categories).map(|c| (c as f64 + 2.0).powf(-0.6)).collect();
        let category_total: f64 = category_weights.iter().sum();

        let niches_in_all = config.products as f64 * config.reviewed_share / NICHE_SIZE;
        let mut category_of_niche = Vec::new();
        let mut niche_weights = Vec::new();
        for (category, weight) in category_weights.iter().enumerate() {
            let share = weight / category_total;
            let count = (share * niches_in_all).round().max(1.0) as usize;
            category_of_niche.extend(std::iter::repeat_n(category as u8, count));
            niche_weights.extend(std::iter::repeat_n(share / count as f64, count));
        }

        // Products join in random order, so that an id says nothing about popularity.
        let mut order: Vec<u32> = (0..config.products as u32).collect();
        order.shuffle(&mut rng);
        let weight_sums = cumulative(niche_weights);
        let mut niches = vec![Vec::new(); category_of_niche.len()];
        let mut niche_of = vec![0; config.products];
        for &product in &order {
            let niche = draw(&mut rng, &weight_sums);
            niche_of[product as usize] = niche as u32;
            niches[niche].push(product);
        }
        let reviewed: Vec<usize> = niches
            .iter()
            .map(|niche| {
                ((niche.len() as f64 * config.reviewed_share).ceil() as usize).clamp(8.min(niche.len()), niche.len())
            })
            .collect();
        let ranks = reviewed.iter().copied().max().unwrap_or(0);
        let zipf = |rank: usize| (rank as f64 + POPULARITY_OFFSET).powf(-config.popularity_exponent);
        let popularity = cumulative((0..ranks).map(zipf));
        let niche_sums = cumulative(reviewed.iter().map(|&n| n as f64));

        let category_of = |product: u32| category_of_niche[niche_of[product as usize] as usize] as usize;
        let brand_of = draw_brands(config, &order, category_of, categories, &mut rng);
        Self { niches, reviewed, category_of_niche, niche_of, brand_of, popularity, niche_sums }
    }

    /// A niche, in proportion to its reviewed products.
    pub fn draw_niche(&self, rng: &mut ChaCha8Rng) -> usize {
        draw(rng, &self.niche_sums)
    }

    /// A reviewed product of `niche`, by popularity.
    pub fn draw_product(&self, rng: &mut ChaCha8Rng, niche: usize) -> u32 {
        self.niches[niche][draw(rng, &self.popularity[..=self.reviewed[niche]])]
    }

    /// Products of `niche` that few people know: the least popular reviewed ones and as many new arrivals.
    pub fn obscure(&self, niche: usize) -> &[u32] {
        let (all, reviewed) = (&self.niches[niche], self.reviewed[niche]);
        &all[reviewed * 6 / 10..(reviewed * 14 / 10).min(all.len())]
    }
}

/// Seller of every product. Brand sizes are Zipf-like; a brand takes the products of one category while they last.
fn draw_brands(
    config: &SynthConfig,
    order: &[u32],
    category_of: impl Fn(u32) -> usize,
    categories: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<Option<u32>> {
    let mut free: Vec<Vec<u32>> = vec![Vec::new(); categories];
    for &product in order {
        if !rng.random_bool(config.brandless_share) {
            free[category_of(product)].push(product);
        }
    }
    let branded = free.iter().map(Vec::len).sum::<usize>() as f64;
    let weight = |rank: usize| (rank as f64 + BRAND_OFFSET).powf(-BRAND_EXPONENT);
    let total: f64 = (0..config.sellers).map(weight).sum();
    let mut sellers: Vec<u32> = (0..config.sellers as u32).collect();
    sellers.shuffle(rng);
    let mut brand_of = vec![None; config.products];
    for (rank, &seller) in sellers.iter().enumerate() {
        let mut missing = (branded * weight(rank) / total).round().max(1.0) as usize;
        // The largest rest is the home category: brands spread over the categories by their sizes.
        while missing > 0
            && let Some(rest) = free.iter_mut().max_by_key(|rest| rest.len())
            && !rest.is_empty()
        {
            let taken = rest.split_off(rest.len().saturating_sub(missing));
            missing -= taken.len();
            taken.iter().for_each(|&product| brand_of[product as usize] = Some(seller));
        }
    }
    brand_of
}
