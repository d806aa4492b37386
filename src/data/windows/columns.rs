//! Which columns there are, and where those of an entity begin.

use std::ops::Deref;

use super::events::{EventColumns, KnownLabels, Measure, OtherMeasure, WindowConfig, span_name};

/// Columns of one entity type: its own windows first, then those of others' events.
pub(super) struct Block {
    /// The first column of the block.
    pub(super) first: usize,
    /// Columns of its own windows.
    pub(super) own: usize,
}

/// How far a window over an entity's own events reaches.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reach {
    /// Seconds.
    Span(i64),
    /// The last events.
    Last(usize),
}

/// A window over an entity's own events, and what is computed over it.
pub(super) struct OwnWindow {
    pub(super) reach: Reach,
    pub(super) measures: Vec<Measure>,
}

/// What is computed, with all that the data lack left out.
pub(super) struct Layout {
    /// Entity types.
    pub(super) entities: Vec<String>,
    pub(super) spans: Vec<i64>,
    pub(super) last: Vec<usize>,
    /// By window: those of time, then those of the last events.
    pub(super) windows: Vec<OwnWindow>,
    pub(super) has_values: bool,
    /// Whether known labels have columns.
    pub(super) has_labels: bool,
    /// Whether one of them says when the last label was.
    pub(super) last_known: bool,
    /// Spans of others' events; empty without a second entity or anything to compute.
    pub(super) one_hop: Vec<i64>,
    pub(super) one_hop_measures: Vec<OtherMeasure>,
    /// Whether the events are in reverse order of time.
    ahead: bool,
    pub(super) names: Vec<String>,
    pub(super) blocks: Vec<Block>,
}

/// A layout and the events that it is of.
pub(super) struct Plan<'a> {
    pub(super) events: &'a EventColumns<'a>,
    /// Known labels, if they have columns.
    pub(super) labels: Option<KnownLabels<'a>>,
    layout: Layout,
}

impl Deref for Plan<'_> {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        &self.layout
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(events: &'a EventColumns<'a>, config: &WindowConfig) -> Self {
        check(events, config);
        let labels = events.labels.filter(|_| config.labels);
        Self { events, labels, layout: Layout::new(events, config, labels.is_some()) }
    }

    pub(super) fn into_layout(self) -> Layout {
        self.layout
    }
}

impl Layout {
    fn new(events: &EventColumns, config: &WindowConfig, has_labels: bool) -> Self {
        let has_values = events.values.is_some();
        let has_others = events.entities.len() > 1;
        let of_data = |measures: &[Measure]| -> Vec<Measure> {
            let with_values = measures.iter().copied().filter(|measure| has_values || !measure.needs_values());
            with_values.filter(|&measure| has_others || measure != Measure::Distinct).collect()
        };
        let of_last = |&last: &usize| {
            let mut measures = of_data(&config.last_measures);
            // The last value alone is told by the difference to it.
            measures.retain(|&measure| last > 1 || measure == Measure::OverMean);
            OwnWindow { reach: Reach::Last(last), measures }
        };
        let of_span = |&span: &i64| OwnWindow { reach: Reach::Span(span), measures: of_data(&config.measures) };
        let one_hop_measures = config.one_hop_measures.iter().copied();
        let one_hop_measures: Vec<OtherMeasure> = one_hop_measures
            .filter(|measure| has_values || !measure.needs_values())
            .filter(|&measure| has_labels || measure != OtherMeasure::FraudShare)
            .collect();
        let mut layout = Self {
            entities: events.entities.iter().map(|entity| entity.name.to_owned()).collect(),
            spans: config.spans.clone(),
            last: config.last.clone(),
            windows: config.spans.iter().map(of_span).chain(config.last.iter().map(of_last)).collect(),
            has_values,
            has_labels,
            last_known: config.last_known,
            one_hop: if has_others && !one_hop_measures.is_empty() { config.one_hop.clone() } else { Vec::new() },
            one_hop_measures,
            ahead: config.ahead,
            names: Vec::new(),
            blocks: Vec::new(),
        };
        for entity in 0..events.entities.len() {
            let first = layout.names.len();
            layout.name_own(entity);
            let own = layout.names.len() - first;
            layout.name_others(entity);
            layout.blocks.push(Block { first, own });
        }
        layout
    }

    /// Whether windows of others look at how unusual events were for whom they are of.
    pub(super) fn needs_unusual(&self) -> bool {
        !self.one_hop.is_empty() && self.one_hop_measures.iter().any(|measure| measure.is_of_unusual())
    }

    /// The entity types beside `entity`, by index.
    pub(super) fn others(&self, entity: usize) -> impl Iterator<Item = usize> {
        (0..self.entities.len()).filter(move |&other| other != entity)
    }

    /// What the names of the columns of an entity type begin with.
    fn prefix(&self, entity: usize) -> String {
        let ahead = if self.ahead { "_ahead" } else { "" };
        format!("{}{ahead}", self.entities[entity])
    }

    /// The order in which [`own`](super::own) writes them.
    fn name_own(&mut self, entity: usize) {
        let name = |index: usize| &self.entities[index];
        let own = self.prefix(entity);
        let mut names = Vec::new();
        for OwnWindow { reach, measures } in &self.windows {
            let window = match reach {
                Reach::Span(span) => format!("{own}_{}", span_name(*span)),
                Reach::Last(last) => format!("{own}_last_{last}"),
            };
            for &measure in measures {
                match measure {
                    Measure::Distinct => {
                        names.extend(self.others(entity).map(|other| format!("{window}_distinct_{}", name(other))));
                    }
                    _ => names.push(format!("{window}_{}", measure.name())),
                }
            }
            if let Reach::Last(_) = reach {
                names.push(format!("{window}_days"));
            }
        }
        names.push(format!("{own}_so_far_count"));
        if self.has_values {
            names.extend(["so_far_over_mean", "difference", "same_value"].map(|what| format!("{own}_{what}")));
        }
        if self.has_labels {
            for &span in &self.spans {
                let window = format!("{own}_{}", span_name(span));
                names.extend(["known_frauds", "fraud_share"].map(|what| format!("{window}_{what}")));
            }
            names.extend(self.last.iter().map(|last| format!("{own}_last_{last}_fraud_share")));
            names.push(format!("{own}_last_fraud_days"));
            let longest = self.spans.iter().max();
            names.extend(longest.map(|&span| format!("{own}_{}_first_fraud_days", span_name(span))));
            names.extend(self.last_known.then(|| format!("{own}_last_known_days")));
        }
        self.names.append(&mut names);
    }

    /// The order in which [`others`](super::others) writes them.
    fn name_others(&mut self, entity: usize) {
        let own = self.prefix(entity);
        let mut names = Vec::new();
        for other in self.others(entity) {
            for &span in &self.one_hop {
                let window = format!("{own}_{}_other_{}", span_name(span), self.entities[other]);
                names.extend(self.one_hop_measures.iter().map(|measure| format!("{window}_{}", measure.name())));
            }
        }
        self.names.append(&mut names);
    }
}

/// Names of the columns that [`compute`](super::compute()) makes, in their order.
///
/// # Panics
/// As [`compute`](super::compute()).
pub fn column_names(events: &EventColumns, config: &WindowConfig) -> Vec<String> {
    Plan::new(events, config).into_layout().names
}

fn check(events: &EventColumns, config: &WindowConfig) {
    let count = events.times.len();
    assert!(count < u32::MAX as usize, "windows: expected fewer than {} events, found {count}", u32::MAX);
    let same = |what: &str, found: usize| assert_eq!(found, count, "windows: one of `{what}` per event");
    events.values.iter().for_each(|values| same("values", values.len()));
    if let Some(labels) = &events.labels {
        same("label", labels.label.len());
        same("known", labels.known.len());
        let delay = labels.delay.unwrap_or(0);
        assert!(delay >= 0, "windows: expected a delay of at least 0, found {delay}");
    }
    for entity in &events.entities {
        same(entity.name, entity.of_event.len());
        let outside = entity.of_event.iter().find(|&&id| id != u32::MAX && id as usize >= entity.count);
        assert!(outside.is_none(), "windows: `{}` has {} entities, found id {outside:?}", entity.name, entity.count);
    }
    let spans = config.spans.iter().chain(&config.one_hop);
    assert!(spans.clone().all(|&span| span > 0), "windows: expected spans above 0, found {:?}", config.spans);
    assert!(!config.last.contains(&0), "windows: expected numbers of events above 0, found {:?}", config.last);
}
