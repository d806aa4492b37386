//! Planted structure: review rings, bursts and shill brands, and the benign fan clubs that look like rings.

use std::collections::{HashMap, HashSet};

use rand::Rng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::catalogue::Catalogue;
use super::config::SynthConfig;
use super::rng::{Domain, item_rng, normal};
use super::tastes::{MIN_REVIEWS, Tastes};

/// Anomalies that one ring brings on average: 14 members, 6 targets, 1.25 bursts and 0.6 shill brands.
const ANOMALIES_PER_RING: f64 = 21.85;
const BURSTS_PER_RING: f64 = 1.25;
const SHILL_SHARE: f64 = 0.6;
/// Share of ring members who review few targets and hide behind ordinary reviews.
const CAMOUFLAGED_SHARE: f64 = 0.15;

/// Number of hidden directions that traces use.
pub(super) const HIDDEN_DIRECTIONS: usize = 4;

/// Trace that a ring leaves on the features of its nodes: a weight per hidden direction, of unit length.
pub(super) type Trace = [f32; HIDDEN_DIRECTIONS];

/// Users who review the same few products.
struct Group {
    members: Vec<u32>,
    products: Vec<u32>,
}

/// Everything planted; ids are local to their node type.
#[derive(Default)]
pub(super) struct Scheme {
    /// Anomalous nodes and the trace that each carries.
    pub users: HashMap<u32, Trace>,
    pub products: HashMap<u32, Trace>,
    pub sellers: HashMap<u32, Trace>,
    /// Members and products of fan clubs: the same structure as a ring, no trace, label 0.
    pub fans: HashSet<u32>,
    pub fan_products: HashSet<u32>,
    /// Planted reviews of a user, besides the ordinary ones.
    pub reviews: HashMap<u32, Vec<u32>>,
    /// Niche of a fan's club: a preference of that user.
    pub home: HashMap<u32, u32>,
    /// Users, products and sellers of every ring.
    pub rings: Vec<[Vec<u32>; 3]>,
}

impl Scheme {
    /// Plants rings until `config.fraud_share` of all nodes are anomalous, and as many clubs; moves the targets of
    /// shill brands to their sellers.
    pub fn plant(config: &SynthConfig, catalogue: &mut Catalogue) -> Self {
        let mut rng = item_rng(config.seed, Domain::Scheme, 0);
        let num_rings = ((config.num_nodes() as f64 * config.fraud_share / ANOMALIES_PER_RING).round() as usize).max(1);
        let mut scheme = Self::default();

        let sizes: Vec<usize> = (0..2 * num_rings).map(|_| rng.random_range(8..=20)).collect();
        let people = index::sample(&mut rng, config.users, sizes.iter().sum::<usize>().min(config.users)).into_vec();
        let mut people = people.into_iter().map(|u| u as u32);
        let mut taken = HashSet::new();
        let mut group_of = |rng: &mut ChaCha8Rng, size: usize, niche: Option<usize>| Group {
            members: people.by_ref().take(size).collect(),
            products: pick_products(rng, catalogue, niche, &mut taken),
        };
        let mut rings = Vec::new();
        for &size in &sizes[..num_rings] {
            rings.push(group_of(&mut rng, size, None));
        }
        for &size in &sizes[num_rings..] {
            let niche = catalogue.draw_niche(&mut rng);
            let club = group_of(&mut rng, size, Some(niche));
            scheme.home.extend(club.members.iter().map(|&user| (user, niche as u32)));
            scheme.fans.extend(&club.members);
            scheme.fan_products.extend(&club.products);
            scheme.review_together(&mut rng, &club);
        }
        let mut shills = small_brands(catalogue, config.sellers, &mut rng).into_iter();
        for ring in &rings {
            let trace = draw_trace(&mut rng);
            scheme.users.extend(ring.members.iter().map(|&user| (user, trace)));
            scheme.products.extend(ring.products.iter().map(|&product| (product, trace)));
            scheme.review_together(&mut rng, ring);
            let mut shill = Vec::new();
            if rng.random_bool(SHILL_SHARE)
                && let Some(seller) = shills.next()
            {
                scheme.sellers.insert(seller, trace);
                shill.push(seller);
                for &product in &ring.products {
                    catalogue.brand_of[product as usize] = Some(seller);
                }
            }
            scheme.rings.push([ring.members.clone(), ring.products.clone(), shill]);
        }
        let num_bursts = (num_rings as f64 * BURSTS_PER_RING).round() as usize;
        scheme.plant_bursts(config, catalogue, &rings, num_bursts, &mut taken, &mut rng);
        scheme
    }

    /// Most members review most of the group's products; some only a few of them.
    fn review_together(&mut self, rng: &mut ChaCha8Rng, group: &Group) {
        for &user in &group.members {
            let share = if rng.random_bool(CAMOUFLAGED_SHARE) {
                rng.random_range(0.3..0.6)
            } else {
                rng.random_range(0.7..1.0)
            };
            let count = (group.products.len() as f64 * share).ceil() as usize;
            let chosen = index::sample(rng, group.products.len(), count.min(group.products.len()));
            self.reviews.entry(user).or_default().extend(chosen.iter().map(|i| group.products[i]));
        }
    }

    /// Bursts: an obscure product suddenly reviewed by members of unrelated rings and by hardly active users.
    fn plant_bursts(
        &mut self,
        config: &SynthConfig,
        catalogue: &Catalogue,
        rings: &[Group],
        count: usize,
        taken: &mut HashSet<u32>,
        rng: &mut ChaCha8Rng,
    ) {
        for _ in 0..count {
            let niche = catalogue.draw_niche(rng);
            let Some(&product) = pick(rng, catalogue.obscure(niche), taken) else { continue };
            self.products.insert(product, draw_trace(rng));
            let reviewers = rng.random_range(10..=20);
            for i in 0..reviewers {
                let user = if i * 3 < reviewers * 2 {
                    let ring = &rings[rng.random_range(0..rings.len())];
                    ring.members.get(rng.random_range(0..ring.members.len().max(1))).copied()
                } else {
                    let hardly_active = |&user: &u32| {
                        Tastes::of(config, catalogue, None, user).reviews == MIN_REVIEWS
                            && !self.users.contains_key(&user)
                    };
                    (0..50).map(|_| rng.random_range(0..config.users as u32)).find(hardly_active)
                };
                if let Some(user) = user {
                    self.reviews.entry(user).or_default().push(product);
                }
            }
        }
    }
}

/// 4 to 8 obscure products that no other group took: of one niche, or across categories.
fn pick_products(
    rng: &mut ChaCha8Rng,
    catalogue: &Catalogue,
    niche: Option<usize>,
    taken: &mut HashSet<u32>,
) -> Vec<u32> {
    let count = rng.random_range(4..=8);
    let mut products = Vec::with_capacity(count);
    for _ in 0..count {
        let niche = niche.unwrap_or_else(|| catalogue.draw_niche(rng));
        products.extend(pick(rng, catalogue.obscure(niche), taken));
    }
    products
}

/// A candidate that is not taken yet; `None` after a number of failed attempts.
fn pick<'a>(rng: &mut ChaCha8Rng, candidates: &'a [u32], taken: &mut HashSet<u32>) -> Option<&'a u32> {
    if candidates.is_empty() {
        return None;
    }
    (0..50).map(|_| &candidates[rng.random_range(0..candidates.len())]).find(|product| taken.insert(**product))
}

/// Sellers of 2 to 12 products in random order: where a few pushed products make a difference.
fn small_brands(catalogue: &Catalogue, sellers: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut sizes = vec![0; sellers];
    catalogue.brand_of.iter().flatten().for_each(|&seller| sizes[seller as usize] += 1);
    let small: Vec<u32> = (0..sellers as u32).filter(|&s| (2..=12).contains(&sizes[s as usize])).collect();
    index::sample(rng, small.len(), small.len()).iter().map(|i| small[i]).collect()
}

fn draw_trace(rng: &mut ChaCha8Rng) -> Trace {
    let raw: Trace = std::array::from_fn(|_| 1.0 + 0.4 * normal(rng));
    let norm = raw.iter().map(|v| v * v).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.map(|v| v / norm)
}
