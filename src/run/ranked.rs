//! How well scores rank labels: the figures that a model can be chosen by.

use crate::config::RankingMetric;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Events};
use crate::metrics::{ALERTS_PER_DAY, AlertEvent, Alerts, Report, average_precision, roc_auc};

/// Day, unit and amount of the labels that are of events: what alerts need to know beside scores.
#[derive(Clone, Debug, Default)]
pub struct LabelledEvents {
    /// Places among the labels, each with its event; the scores in it say nothing.
    events: Vec<(usize, AlertEvent)>,
}

impl LabelledEvents {
    /// Of the labels `entries`, `(global id, label)`; none where the nodes have no times. An event without an entity to
    /// block is one of its own.
    pub fn of(dataset: &Dataset, entries: &[(u32, u8)]) -> Self {
        let Some(events) = &dataset.events else { return Self::default() };
        let event = |(place, &(node, label)): (usize, &(u32, u8))| {
            let at = node as usize;
            let unit = events.alert.as_ref().map(|alert| alert[at]).filter(|&unit| unit != Events::NO_NODE);
            let event = AlertEvent {
                day: events.time_of(node)?.div_euclid(86_400),
                unit: unit.unwrap_or(node),
                score: 0.0,
                is_fraud: label == 1,
                amount: events.amount.as_ref().map_or(f32::NAN, |amount| amount[at]),
            };
            Some((place, event))
        };
        Self { events: entries.iter().enumerate().filter_map(event).collect() }
    }

    /// What the alerts of every day find; `scores` are in the order of the labels. `None` without labels of events.
    ///
    /// # Panics
    /// When there is not one score per label.
    pub fn alerts(&self, scores: &[f32]) -> Option<Alerts> {
        self.alerts_by(|place| scores[place])
    }

    fn alerts_by(&self, score: impl Fn(usize) -> f32) -> Option<Alerts> {
        let scored = |&(place, event): &(usize, AlertEvent)| AlertEvent { score: score(place), ..event };
        Alerts::of(&self.events.iter().map(scored).collect::<Vec<_>>(), ALERTS_PER_DAY)
    }

    /// Refuses a metric that these labels do not have, whatever the scores. `key` of the configuration `name` asks for
    /// it.
    ///
    /// # Errors
    /// [`Error::Config`] for [`RankingMetric::Alerts`] without labels of events, and for [`RankingMetric::Stopped`]
    /// without a fraud among them that has an amount.
    pub fn check(&self, metric: RankingMetric, name: &str, key: &str) -> Result<()> {
        let alerts = self.alerts_by(|_| 0.0);
        let (column, expected) = match metric {
            RankingMetric::Alerts if alerts.is_none() => ("time", "validation labels of events, which have times"),
            RankingMetric::Stopped if alerts.is_none_or(|alerts| alerts.stopped.is_none()) => {
                ("amount", "frauds among the validation labels that are events with amounts")
            }
            _ => return Ok(()),
        };
        Err(Error::Config {
            origin: name.into(),
            key: key.into(),
            expected: format!("a metric of these data; this one needs {expected}"),
            found: if metric == RankingMetric::Alerts { "\"alerts\"" } else { "\"stopped\"" }.into(),
            help: format!(
                "name the column ({column} = \"COLUMN\" in [[nodes]]) and import the tables again, or choose \
                 \"average_precision\""
            ),
        })
    }
}

/// Figures of scores on some labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// `None` where a class is missing, as in [`Report`].
    pub auroc: Option<f64>,
    /// As [`auroc`](Self::auroc).
    pub average_precision: Option<f64>,
    /// Of events.
    pub alerts: Option<Alerts>,
}

impl Ranked {
    /// Of `scores` and `labels` in one order, which is that of `events`.
    ///
    /// # Errors
    /// [`Error::Data`] without labels of both classes.
    pub fn of(scores: &[f32], labels: &[u8], events: &LabelledEvents) -> Result<Self> {
        Ok(Self {
            auroc: Some(roc_auc(scores, labels)?),
            average_precision: Some(average_precision(scores, labels)?),
            alerts: events.alerts(scores),
        })
    }

    /// The figure of a metric; `None` where the labels do not have it.
    pub fn by(&self, metric: RankingMetric) -> Option<f64> {
        match metric {
            RankingMetric::Auroc => self.auroc,
            RankingMetric::AveragePrecision => self.average_precision,
            RankingMetric::Alerts => self.alerts.map(|alerts| alerts.precision),
            RankingMetric::Stopped => self.alerts?.stopped,
        }
    }
}

impl From<&Report> for Ranked {
    fn from(Report { overall, alerts, .. }: &Report) -> Self {
        Self { auroc: overall.roc_auc, average_precision: overall.average_precision, alerts: *alerts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::HeteroGraph;

    /// Two cards and three payments on one day, of which the last is a fraud.
    fn dataset(amount: Option<Vec<f32>>) -> Dataset {
        let graph = HeteroGraph::new(vec![("card".into(), 2), ("payment".into(), 3)], Vec::new()).unwrap();
        let time = vec![Events::NO_TIME, Events::NO_TIME, 10, 20, 30];
        let alert = Some(vec![Events::NO_NODE, Events::NO_NODE, 0, 0, 1]);
        let events = Some(Events { known: time.clone(), time, amount, value: None, alert });
        Dataset { events, ..Dataset::new(graph, None, None, None) }
    }

    #[test]
    fn a_metric_that_the_labels_do_not_have_is_refused_by_its_key() {
        let entries = [(2, 0), (3, 0), (4, 1)];
        let check = |dataset: &Dataset, entries: &[(u32, u8)], metric| {
            LabelledEvents::of(dataset, entries).check(metric, "payments", "model.metric")
        };
        let amounts = dataset(Some(vec![0.0, 0.0, 5.0, 5.0, 7.0]));
        for metric in [RankingMetric::Alerts, RankingMetric::Stopped, RankingMetric::Auroc] {
            check(&amounts, &entries, metric).unwrap();
        }
        let refused = |dataset: &Dataset, entries: &[(u32, u8)], metric, column: &str| {
            let error = check(dataset, entries, metric).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.starts_with("payments: model.metric = \"") && text.contains(column), "{text}");
        };
        check(&dataset(None), &entries, RankingMetric::Alerts).unwrap();
        refused(&dataset(None), &entries, RankingMetric::Stopped, "amount = ");
        refused(&amounts, &entries[..2], RankingMetric::Stopped, "amount = ");
        let timeless = Dataset { events: None, ..dataset(None) };
        refused(&timeless, &entries, RankingMetric::Alerts, "time = ");
        refused(&timeless, &entries, RankingMetric::Stopped, "amount = ");
    }
}
