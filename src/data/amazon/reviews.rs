//! Reviews of known products, with what later stages need of their texts but not the texts.

use rayon::prelude::*;
use serde::Deserialize;

use super::catalogue::{Catalogue, Interner, inverse, sorted_order, take_in_order};
use super::fields;
use super::json_lines::{self, JsonLines, LineReport, Malformed};
use super::loose::Loose;
use super::sentiment;
use crate::data::Progress;
use crate::data::text::hashing::hash_text;
use crate::data::text::ragged::Ragged;
use crate::data::text::words::{WordSketch, for_each_word};
use crate::error::{Error, Result};

/// One review of a known product; about 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Review {
    /// Local user and product ids.
    pub user: u32,
    pub product: u32,
    /// Stars, 1 to 5.
    pub rating: Option<f32>,
    /// Seconds since 1970.
    pub time: Option<u32>,
    /// Helpful votes.
    pub votes: u32,
    /// Words of the text.
    pub words: u32,
    /// `|sentiment - rating|` with both on [-1, 1]; `None` without text or rating.
    pub mismatch: Option<f32>,
    /// Whether the purchase was verified; `None` where the file does not say (2014 vintage).
    pub verified: Option<bool>,
    text_hash: u64,
}

/// All reviews of known products, sorted by user and then product.
pub(super) struct Reviews {
    /// User ids, sorted.
    pub users: Vec<String>,
    pub reviews: Vec<Review>,
    /// Positions in `reviews` of each user's and each product's reviews.
    pub by_user: Ragged<u32>,
    pub by_product: Ragged<u32>,
    /// Different words each user ever wrote.
    pub vocabularies: Vec<WordSketch>,
    /// Reviews of products that the metadata does not list.
    pub unknown_product: u64,
    /// Reviews dropped as exact repetitions: same user, product, time, rating and text.
    pub duplicates: u64,
    pub report: LineReport,
}

impl Reviews {
    /// Reads the reviews of the products in `catalogue`.
    ///
    /// # Errors
    /// Those of [`json_lines::read`]; [`Error::Data`] when no review is of a known product.
    pub fn read(source: &JsonLines, catalogue: &Catalogue, progress: &dyn Fn(Progress)) -> Result<Self> {
        let mut users = Interner::default();
        let mut vocabularies: Vec<WordSketch> = Vec::new();
        let mut reviews = Vec::new();
        let mut unknown_product = 0;
        let consume = |record: Option<ReviewRecord>| {
            let Some(record) = record else {
                unknown_product += 1;
                return;
            };
            let user = users.index(record.user);
            if user as usize == vocabularies.len() {
                vocabularies.push(WordSketch::default());
            }
            vocabularies[user as usize].merge(&record.vocabulary);
            reviews.push(Review { user, ..record.review });
        };
        let report = json_lines::read(source, progress, |line| parse(line, catalogue), consume)?;
        if reviews.is_empty() || reviews.len() > u32::MAX as usize {
            let found = format!(
                "{} such reviews ({} lines, {} malformed, {unknown_product} of unknown products)",
                reviews.len(),
                report.lines,
                report.malformed
            );
            return Err(Error::Data {
                what: format!("{} with the metadata", source.path.display()),
                expected: "between one and 4 billion reviews whose `asin` the metadata lists".into(),
                found,
                help: "give reviews and metadata of the same category, and check that they are not swapped".into(),
            });
        }

        let order = sorted_order(&users.names);
        let rank = inverse(&order);
        reviews.iter_mut().for_each(|review| review.user = rank[review.user as usize]);
        let repeated = |r: &Review| (r.user, r.product, r.time, r.rating.map(f32::to_bits), r.text_hash);
        // Stable, so that of exact repetitions the one that comes first in the file stays.
        reviews.par_sort_by_key(repeated);
        let before = reviews.len();
        reviews.dedup_by_key(|review| repeated(review));
        Ok(Self {
            by_user: Ragged::group(order.len(), reviews.iter().map(|review| review.user)),
            by_product: Ragged::group(catalogue.ids.len(), reviews.iter().map(|review| review.product)),
            vocabularies: order.iter().map(|&old| vocabularies[old as usize]).collect(),
            users: take_in_order(&mut users.names, &order),
            unknown_product,
            duplicates: (before - reviews.len()) as u64,
            reviews,
            report,
        })
    }

    /// The reviews written by user `i`, sorted by product.
    pub fn of_user(&self, i: usize) -> impl Iterator<Item = &Review> + Clone {
        self.by_user.row(i).iter().map(|&position| &self.reviews[position as usize])
    }

    /// The reviews of product `i`, sorted by user.
    pub fn of_product(&self, i: usize) -> impl Iterator<Item = &Review> + Clone {
        self.by_product.row(i).iter().map(|&position| &self.reviews[position as usize])
    }
}

/// Share of `reviews` with a verified purchase among those that say; `None` when none says.
pub(super) fn verified_ratio<'a>(reviews: impl Iterator<Item = &'a Review>) -> Option<f64> {
    let (known, verified) = reviews
        .filter_map(|review| review.verified)
        .fold((0_u32, 0_u32), |(known, verified), yes| (known + 1, verified + u32::from(yes)));
    (known > 0).then(|| f64::from(verified) / f64::from(known))
}

struct ReviewRecord {
    user: String,
    /// With a user id that is not set yet.
    review: Review,
    vocabulary: WordSketch,
}

/// The fields of both vintages; whichever is missing stays `Null`.
#[derive(Deserialize)]
#[allow(non_snake_case)]
struct RawReview<'a> {
    #[serde(borrow, default)]
    asin: Loose<'a>,
    #[serde(borrow, default)]
    reviewerID: Loose<'a>,
    #[serde(borrow, default)]
    overall: Loose<'a>,
    #[serde(borrow, default)]
    unixReviewTime: Loose<'a>,
    #[serde(borrow, default)]
    reviewTime: Loose<'a>,
    #[serde(borrow, default)]
    vote: Loose<'a>,
    #[serde(borrow, default)]
    helpful: Loose<'a>,
    #[serde(borrow, default)]
    verified: Loose<'a>,
    #[serde(borrow, default)]
    reviewText: Loose<'a>,
    #[serde(borrow, default)]
    summary: Loose<'a>,
}

/// `Ok(None)` is a sound review of a product that is not in the catalogue.
fn parse(line: &str, catalogue: &Catalogue) -> Result<Option<ReviewRecord>, Malformed> {
    let raw: RawReview = serde_json::from_str(line)
        .map_err(|error| Malformed { expected: "a JSON object with a review", found: error.to_string() })?;
    let (asin, user) = (raw.asin.text().trim(), raw.reviewerID.text().trim());
    if asin.is_empty() || user.is_empty() {
        let found = if asin.is_empty() { "no `asin`" } else { "no `reviewerID`" };
        return Err(Malformed { expected: "a review with `asin` and `reviewerID`", found: found.into() });
    }
    let Some(product) = catalogue.find(asin) else { return Ok(None) };

    // A review without text often has its whole message in the headline.
    let text = if raw.reviewText.text().trim().is_empty() { raw.summary.text() } else { raw.reviewText.text() };
    let mut words = 0;
    let mut vocabulary = WordSketch::default();
    for_each_word(text, |word| {
        words += 1;
        vocabulary.insert(hash_text(word));
    });
    let rating = raw.overall.number().filter(|stars| (1.0..=5.0).contains(stars)).map(|stars| stars as f32);
    let mismatch = rating
        .filter(|_| words > 0)
        .map(|stars| (sentiment::compound(text) - (f64::from(stars) - 3.0) / 2.0).abs() as f32);
    let review = Review {
        user: u32::MAX,
        product,
        rating,
        time: raw.unixReviewTime.count().or_else(|| fields::parse_date(raw.reviewTime.text())),
        votes: raw.vote.count().or_else(|| raw.helpful.first()?.count()).unwrap_or(0),
        words,
        mismatch,
        verified: raw.verified.boolean(),
        text_hash: hash_text(text),
    };
    Ok(Some(ReviewRecord { user: user.to_owned(), review, vocabulary }))
}
