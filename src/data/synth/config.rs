//! What a synthetic marketplace is asked to be.

use std::fmt;

use crate::config::{PipelineSynth, Preset};
use crate::error::{Error, Result};

/// Callback `(stage, done, total)` of long operations.
pub(super) type Progress<'a> = &'a dyn Fn(&'static str, u64, u64);

/// Size and shape of a synthetic marketplace.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthConfig {
    /// Number of users, at least 200.
    pub users: usize,
    /// Number of products, at least 200.
    pub products: usize,
    /// Number of sellers (brands), at least 8.
    pub sellers: usize,
    /// Mean number of reviews per user, in [5, 100]; the minimum is 5, the rest a geometric tail.
    pub mean_reviews: f64,
    /// Share of products with ordinary reviews, in (0, 1]; metadata lists many products that nobody reviewed.
    pub reviewed_share: f64,
    /// Exponent of the popularity law `(rank + 2)^-s` within a niche, in [0, 3].
    pub popularity_exponent: f64,
    /// Share of products without a seller, in [0, 1).
    pub brandless_share: f64,
    /// Share of all nodes that are anomalous, in (0, 0.1]; at least one ring is planted.
    pub fraud_share: f64,
    /// Reviewers of one product among whom co-review edges are drawn, at most 1,000; published value 25.
    pub co_review_cap: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl From<&PipelineSynth> for SynthConfig {
    fn from(section: &PipelineSynth) -> Self {
        Self { seed: section.seed, ..Self::preset(section.preset).scaled(section.scale) }
    }
}

impl Default for SynthConfig {
    /// The quickstart preset.
    fn default() -> Self {
        Self::preset(Preset::Quickstart)
    }
}

impl SynthConfig {
    /// Configuration of a preset, with seed 0.
    pub fn preset(preset: Preset) -> Self {
        let base = Self {
            users: 2_600,
            products: 2_200,
            sellers: 200,
            mean_reviews: 8.95,
            reviewed_share: 0.7,
            popularity_exponent: 1.25,
            brandless_share: 0.026,
            fraud_share: 0.072,
            co_review_cap: 25,
            seed: 0,
        };
        match preset {
            Preset::Quickstart => base,
            Preset::LuxuryBeauty => {
                Self { users: 3_800, products: 12_000, sellers: 137, reviewed_share: 0.2, fraud_share: 0.0377, ..base }
            }
            Preset::Electronics => Self {
                users: 728_719,
                products: 756_077,
                sellers: 55_679,
                reviewed_share: 0.22,
                fraud_share: 0.0044,
                ..base
            },
        }
    }

    /// The same marketplace with `factor` times the users, products and sellers (and anomalies).
    pub fn scaled(self, factor: f64) -> Self {
        // The cast saturates: an absurd factor becomes an absurd size, which `generate` refuses.
        let scale = |count: usize| (count as f64 * factor).round() as usize;
        Self { users: scale(self.users), products: scale(self.products), sellers: scale(self.sellers), ..self }
    }

    /// Nodes of all types together.
    pub fn num_nodes(&self) -> usize {
        self.users.saturating_add(self.products).saturating_add(self.sellers)
    }

    pub(super) fn check(&self) -> Result<()> {
        let sizes = [("users", self.users, 200), ("products", self.products, 200), ("sellers", self.sellers, 8)];
        for (name, count, least) in sizes {
            if count < least {
                return refuse(name, format!("at least {least}"), count, "choose a larger size or scale");
            }
        }
        if self.num_nodes() > i32::MAX as usize {
            let expected = format!("at most {} nodes in all", i32::MAX);
            return refuse("size", expected, self.num_nodes(), "choose a smaller size or scale");
        }
        let shares = [
            ("mean_reviews", self.mean_reviews, (5.0..=100.0).contains(&self.mean_reviews), "within [5, 100]"),
            (
                "reviewed_share",
                self.reviewed_share,
                self.reviewed_share > 0.0 && self.reviewed_share <= 1.0,
                "in (0, 1]",
            ),
            (
                "popularity_exponent",
                self.popularity_exponent,
                (0.0..=3.0).contains(&self.popularity_exponent),
                "within [0, 3]",
            ),
            ("brandless_share", self.brandless_share, (0.0..1.0).contains(&self.brandless_share), "in [0, 1)"),
            ("fraud_share", self.fraud_share, self.fraud_share > 0.0 && self.fraud_share <= 0.1, "in (0, 0.1]"),
        ];
        for (name, value, valid, expected) in shares {
            if !valid {
                return refuse(name, expected.into(), value, "the presets use values that fit review data");
            }
        }
        if self.co_review_cap > 1_000 {
            return refuse("co_review_cap", "at most 1000".into(), self.co_review_cap, "the published value is 25");
        }
        Ok(())
    }
}

fn refuse(name: &str, expected: String, found: impl fmt::Display, help: &str) -> Result<()> {
    Err(Error::Usage {
        argument: format!("{name} of the synthetic marketplace"),
        expected,
        found: found.to_string(),
        help: help.into(),
    })
}
