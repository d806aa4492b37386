//! `[split]`: how import divides the labels.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Span, wrong};
use crate::data::split::SplitFractions;
use crate::error::Result;

/// `[split]`: stored in the data, where every training reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitTable {
    /// What decides about the part of a label. Default random.
    pub by: SplitBy,
    /// Seed of a draw, default 42.
    pub seed: u64,
    /// Share of the labels for training, default 0.6; by time also a length of time.
    pub train: PartSize,
    /// Share for validation, default 0.2.
    pub validation: PartSize,
    /// Share for the test, default 0.2.
    pub test: PartSize,
    /// By group: node types; nodes that share one of their nodes stay together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// By time: when the test begins; default: so that it ends with the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_from: Option<String>,
    /// By time: what is left out before validation and before the test. Default: the delay of the labels; where a
    /// column alone says when they became known, the time within which 19 of 20 of either class did, of those that were
    /// known when the first test began, in whole days where it is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// By time: windows in turn; each begins by the length of the test after the one before. Default 1.
    #[serde(skip_serializing_if = "is_one")]
    pub windows: usize,
    /// By time: type of the entities whose events leave validation and test once a fraud of theirs is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

/// What decides about the part of a label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitBy {
    /// A draw, stratified by label and node type.
    #[default]
    Random,
    /// A draw of whole groups.
    Group,
    /// The time of the event.
    Time,
}

impl SplitBy {
    /// As the description writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Group => "group",
            Self::Time => "time",
        }
    }
}

/// How large a part is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PartSize {
    /// Share of the labels.
    Share(f64),
    /// Length of time.
    Span(Span),
}

impl Default for SplitTable {
    fn default() -> Self {
        let SplitFractions { train, validation, test } = SplitFractions::default();
        let [train, validation, test] = [train, validation, test].map(PartSize::Share);
        Self {
            by: SplitBy::Random,
            seed: 42,
            train,
            validation,
            test,
            groups: Vec::new(),
            test_from: None,
            gap: None,
            windows: 1,
            blocked: None,
        }
    }
}

fn is_one(windows: &usize) -> bool {
    *windows == 1
}

impl SplitTable {
    /// The three shares, unless the parts are lengths of time.
    pub fn fractions(&self) -> Option<SplitFractions> {
        match [self.train, self.validation, self.test] {
            [PartSize::Share(train), PartSize::Share(validation), PartSize::Share(test)] => {
                Some(SplitFractions { train, validation, test })
            }
            _ => None,
        }
    }

    /// The three lengths of time, unless the parts are shares.
    pub fn spans(&self) -> Option<[i64; 3]> {
        match [self.train, self.validation, self.test] {
            [PartSize::Span(train), PartSize::Span(validation), PartSize::Span(test)] => {
                Some([train.0, validation.0, test.0])
            }
            _ => None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |key: &str, expected: &str, found: String, help: &str| Err(wrong(key, expected, found, help));
        let [train, validation, test] = [self.train, self.validation, self.test].map(|size| match size {
            PartSize::Share(share) => share.to_string(),
            PartSize::Span(span) => span.to_string(),
        });
        let found = format!("train {train}, validation {validation}, test {test}");
        match (self.fractions(), self.spans()) {
            (Some(SplitFractions { train, validation, test }), _) => {
                let shares = [train, validation, test];
                if !shares.iter().all(|share| share.is_finite() && *share > 0.0)
                    || (shares.iter().sum::<f64>() - 1.0).abs() > 1e-6
                {
                    let help = "use for example 0.6, 0.2 and 0.2";
                    return wrong("split", "three positive shares that add up to 1", found, help);
                }
            }
            (None, Some(_)) if self.by == SplitBy::Time => {}
            (None, Some(_)) => {
                let help = "add by = \"time\", or use for example 0.6, 0.2 and 0.2";
                return wrong("split", "three shares, unless the split is by time", found, help);
            }
            (None, None) => {
                let help = "use for example \"21d\", \"7d\" and \"7d\", or 0.6, 0.2 and 0.2";
                return wrong("split", "three lengths of time, or three shares", found, help);
            }
        }
        let of_time = [
            ("split.test_from", self.test_from.is_some()),
            ("split.gap", self.gap.is_some()),
            ("split.windows", self.windows != 1),
            ("split.blocked", self.blocked.is_some()),
        ];
        if let (true, Some((key, _))) = (self.by != SplitBy::Time, of_time.iter().find(|(_, given)| *given)) {
            return wrong(key, "it with by = \"time\" alone", "another split".into(), "leave it out, or split by time");
        }
        if (self.by == SplitBy::Group) == self.groups.is_empty() {
            let help = "for example by = \"group\" with groups = [\"device\"]";
            return wrong("split.groups", "node types where the split is by group, and there alone", "".into(), help);
        }
        if self.windows == 0 || (self.windows > 1 || self.test_from.is_some()) && self.spans().is_none() {
            let help = "for example train = \"21d\", validation = \"7d\", test = \"7d\"";
            let expected = "at least one window; lengths of time for several ones, and where the test has a beginning";
            return wrong("split.windows", expected, format!("{} windows of shares", self.windows), help);
        }
        Ok(())
    }
}

impl Serialize for PartSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            PartSize::Share(share) => serializer.serialize_f64(*share),
            PartSize::Span(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PartSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let wrong = |found: &dyn std::fmt::Display| {
            de::Error::custom(format!(
                "expected a share such as 0.2, or a length of time such as \"7d\", found {found}"
            ))
        };
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Float(share) => Ok(Self::Share(share)),
            toml::Value::Integer(share) => Ok(Self::Share(share as f64)),
            toml::Value::String(text) => Span::parse(&text).map(Self::Span).ok_or_else(|| wrong(&text)),
            other => Err(wrong(&other)),
        }
    }
}
