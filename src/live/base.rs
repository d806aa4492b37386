//! The data that a live graph began with, and what is looked up in them.

use std::sync::Arc;

use rayon::prelude::*;

use super::delta::NONE;
use super::derived::Derived;
use super::names::Names;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Events, MAX_EDGE_WEIGHT, Relation};

/// Where the edges of a relation come from.
#[derive(Debug)]
pub(super) enum Kind {
    /// They are told, under the relation `of`, which this is or is the reverse of.
    Told { of: usize, reversed: bool },
    /// They follow from what events name in the relation `named`: the latest `history` events of the same entity.
    Earlier { named: usize, history: usize, lists: EventLists },
}

/// The events of every entity, one entity behind another, in the order of time; they are the entries of a relation.
#[derive(Debug)]
pub(super) struct EventLists {
    /// Where those of each begin, and the number of all.
    starts: Vec<u64>,
}

/// What the edges of a relation carry, by entry.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub weight: Option<Vec<f32>>,
    pub time: Option<Vec<i64>>,
    pub names: Vec<String>,
    /// Row after row.
    pub values: Vec<f32>,
    /// Whether these are those of another relation in the order of its reverse.
    pub is_mirrored: bool,
    /// Whether no weight is beyond what models read.
    pub is_readable: bool,
}

impl Carried {
    /// Whether edges carry anything.
    pub fn is_any(&self) -> bool {
        self.weight.is_some() || self.time.is_some() || !self.names.is_empty()
    }
}

/// A data set that nothing changes any more. Its ids and labels are elsewhere.
#[derive(Debug)]
pub(super) struct Base {
    pub dataset: Dataset,
    /// How many bases there were before.
    pub generation: u64,
    /// By relation.
    pub kinds: Vec<Kind>,
    pub carried: Vec<Carried>,
    /// By relation: whether every edge has its mirror image.
    pub symmetric: Vec<bool>,
    /// By relation: whether every node has an edge to itself.
    pub looped: Vec<bool>,
    /// By relation: the types at both ends, source first.
    pub ends: Vec<[usize; 2]>,
    /// By node type: whether its nodes are events.
    pub of_events: Vec<bool>,
    /// By node type of events: the relation that leads to them from what an alert blocks.
    pub alerts: Vec<Option<usize>>,
    /// By global id; [`NONE`] for none.
    pub labels: Vec<u8>,
    /// The latest time of any edge.
    pub latest: i64,
    /// By relation: how many edges at most may lead from a node.
    pub max_degrees: Vec<Option<usize>>,
    /// By relation: where draws of its rows start from.
    pub keys: Vec<u64>,
    /// The same by node type.
    pub type_keys: Vec<u64>,
}

impl EventLists {
    pub fn of(&self, entity: u32) -> std::ops::Range<usize> {
        match self.starts.get(entity as usize..entity as usize + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => 0..0,
        }
    }
}

/// What an entry of the lists that a data directory has is refused with.
fn refused(relation: &str, expected: &str, found: &str) -> Error {
    Error::Data {
        what: format!("relation `{relation}`"),
        expected: expected.into(),
        found: found.into(),
        help: "import the tables again, so that the data can grow".into(),
    }
}

impl Base {
    /// Takes the ids out of a data set, and prepares what is looked up.
    ///
    /// # Errors
    /// Those of reading what edges carry; [`Error::Data`] for relations that import does not make.
    pub fn new(mut dataset: Dataset, derived: &dyn Derived, generation: u64) -> Result<(Self, Vec<Names>)> {
        let names = names_of(&mut dataset);
        let types = dataset.graph.node_types();
        let relations = dataset.graph.relations();
        let of_events: Vec<bool> = (0..types.len()).map(|t| is_of_events(&dataset, t)).collect();
        let kinds = kinds_of(&dataset, &of_events, derived)?;
        let carried = carried_of(&dataset, &kinds)?;
        let mut labels = vec![NONE; dataset.graph.num_nodes()];
        for &(node, label) in dataset.labels.iter().flat_map(|labels| &labels.entries) {
            labels[node as usize] = label;
        }
        let latest = carried.iter().filter_map(|carried| carried.time.as_ref()?.iter().max()).max().copied();
        let base = Self {
            generation,
            symmetric: (0..relations.len()).map(|at| is_symmetric(&relations[at], at, &kinds, &of_events)).collect(),
            looped: relations.iter().map(|of| of.loops.in_range >= of.forward.num_rows().max(1)).collect(),
            ends: relations.iter().map(|relation| [relation.src, relation.dst]).collect(),
            alerts: (0..types.len()).map(|t| alert_of(&dataset, t)).collect(),
            max_degrees: relations.iter().map(|relation| derived.max_degree(&relation.name)).collect(),
            keys: relations.iter().map(|relation| super::draw::hash_of(&relation.name)).collect(),
            type_keys: types.iter().map(|of| super::draw::hash_of(&of.name)).collect(),
            latest: latest.unwrap_or(i64::MIN),
            kinds,
            carried,
            of_events,
            labels,
            dataset: Dataset { labels: None, ..dataset },
        };
        Ok((base, names))
    }

    /// How many nodes of a type there are.
    pub fn count(&self, node_type: usize) -> u32 {
        self.dataset.graph.node_types()[node_type].count as u32
    }

    /// The global id of a node, if it is here.
    pub fn global(&self, node_type: usize, local: u32) -> Option<usize> {
        let of = &self.dataset.graph.node_types()[node_type];
        ((local as usize) < of.count).then_some(of.offset + local as usize)
    }

    pub fn relation(&self, at: usize) -> &Relation {
        &self.dataset.graph.relations()[at]
    }

    pub fn type_name(&self, node_type: usize) -> &str {
        &self.dataset.graph.node_types()[node_type].name
    }

    /// Number of feature columns.
    pub fn width(&self) -> usize {
        self.dataset.features.as_ref().map_or(0, |features| features.dim())
    }

    /// The time of an event by global id, [`Events::NO_TIME`] of what is none.
    pub fn time(&self, global: usize) -> i64 {
        self.dataset.events.as_ref().map_or(Events::NO_TIME, |events| events.time[global])
    }

    /// The relations from entities to the events of a type.
    pub fn entity_relations(&self, node_type: usize) -> impl Iterator<Item = usize> {
        (0..self.ends.len()).filter(move |&at| {
            let [src, dst] = self.ends[at];
            dst == node_type && self.of_events[dst] && !self.of_events[src]
        })
    }

    /// How many edges of a relation lead from a node of its source type; 0 where nothing tells.
    pub fn out_degree(&self, relation: usize, src: u32) -> usize {
        let of_kind = |(at, kind): (usize, &Kind)| match kind {
            Kind::Earlier { named, lists, .. } if *named == relation => Some(lists.of(src).len()),
            Kind::Told { of, reversed: true } if *of == relation => {
                let forward = &self.relation(at).forward;
                Some(if (src as usize) < forward.num_rows() { forward.degree(src as usize) } else { 0 })
            }
            _ => None,
        };
        self.kinds.iter().enumerate().find_map(of_kind).unwrap_or(0)
    }

    /// Whether edges of a relation lead into events that name at most one node in it.
    pub fn names_one(&self, relation: usize) -> bool {
        self.kinds.iter().any(|kind| matches!(kind, Kind::Earlier { named, .. } if *named == relation))
    }
}

/// Ids by type, numbers where the data have none.
fn names_of(dataset: &mut Dataset) -> Vec<Names> {
    let ids = dataset.ids.take().map(|ids| ids.0);
    let of_type = |(t, count): (usize, usize)| match &ids {
        Some(ids) => Names::of(&ids[t]),
        None => Names::of((0..count).map(|number| number.to_string())),
    };
    dataset.graph.node_types().iter().map(|of| of.count).enumerate().map(of_type).collect()
}

fn is_of_events(dataset: &Dataset, node_type: usize) -> bool {
    let Some(events) = &dataset.events else { return false };
    let of = &dataset.graph.node_types()[node_type];
    match of.count {
        0 => dataset.graph.relations().iter().any(|relation| relation.dst == node_type && relation.forward.is_spans()),
        count => !events.time[of.offset..of.offset + count].contains(&Events::NO_TIME),
    }
}

fn kinds_of(dataset: &Dataset, of_events: &[bool], derived: &dyn Derived) -> Result<Vec<Kind>> {
    let relations = dataset.graph.relations();
    let mut kinds: Vec<Option<Kind>> = relations.iter().map(|_| None).collect();
    for at in 0..relations.len() {
        if kinds[at].is_some() {
            continue;
        }
        let relation = &relations[at];
        if relation.forward.is_spans() {
            kinds[at] = Some(earlier_of(dataset, at, derived)?);
            continue;
        }
        kinds[at] = Some(Kind::Told { of: at, reversed: false });
        let is_reverse = |other: &usize| {
            let of = &relations[*other];
            let shares = Arc::ptr_eq(&of.forward, &relation.reverse) && Arc::ptr_eq(&of.reverse, &relation.forward);
            // Of few edges each can happen to have its mirror image: then the two share nothing.
            let is_called = || of.name.strip_suffix("_T") == Some(&relation.name);
            let may_be = kinds[*other].is_none() && !of.forward.is_spans() && of.stream == relation.stream;
            may_be
                && [of.src, of.dst] == [relation.dst, relation.src]
                && (shares || is_called() && of.forward.is_reverse_of(&relation.forward))
        };
        if let Some(other) = (at + 1..relations.len()).find(is_reverse) {
            kinds[other] = Some(Kind::Told { of: at, reversed: true });
        }
    }
    // What an entity hears of events would tell other events of later ones.
    if let Some(relation) = relations.iter().find(|of| of_events[of.src] && !of_events[of.dst]) {
        return Err(refused(&relation.name, "no edges from events to nodes without times", "some"));
    }
    Ok(kinds.into_iter().flatten().collect())
}

/// Whether every edge has its mirror image, and new ones get theirs: not where that is so of no edge at all, or where
/// another relation has the mirror images.
fn is_symmetric(relation: &Relation, at: usize, kinds: &[Kind], of_events: &[bool]) -> bool {
    let has_reverse = kinds.iter().any(|kind| matches!(kind, Kind::Told { of, reversed: true } if *of == at));
    let has_edges = relation.forward.num_edges() > relation.loops.in_range;
    relation.is_symmetric() && has_edges && !has_reverse && !of_events[relation.dst]
}

/// A relation `earlier_{named}` whose entries are the events of one entity after another.
fn earlier_of(dataset: &Dataset, at: usize, derived: &dyn Derived) -> Result<Kind> {
    let (relations, events) = (dataset.graph.relations(), dataset.events.as_ref());
    let relation = &relations[at];
    let wrong = |found: &str| refused(&relation.name, "the events of every entity in the order of time", found);
    let Some(of) = relation.name.strip_prefix("earlier_") else { return Err(wrong("another name than earlier_…")) };
    let Some(events) = events else { return Err(wrong("no events")) };
    let is_named = |name: &str| name == of || name.strip_suffix("_T") == Some(of);
    let named = relations.iter().position(|known| known.dst == relation.dst && is_named(&known.name));
    let named = named.ok_or_else(|| wrong(&format!("no relation `{of}` that leads to the events")))?;
    let first = dataset.graph.node_types()[relation.dst].offset;
    let entities = relations[named].forward.num_cols();
    // By entity, its events by time.
    let order = |&event: &u32| {
        let row = relations[named].forward.row(event as usize);
        Some((*row.first()?, events.time[first + event as usize], event))
    };
    let order: Option<Vec<_>> = relation.forward.col_idx().par_iter().map(order).collect();
    let order = order.filter(|order| order.is_sorted_by(|a, b| a < b)).ok_or_else(|| wrong("another order"))?;
    let mut starts = vec![0u64; entities + 1];
    order.iter().for_each(|(entity, ..)| starts[*entity as usize + 1] += 1);
    (0..entities).for_each(|entity| starts[entity + 1] += starts[entity]);
    Ok(Kind::Earlier { named, history: derived.history(of), lists: EventLists { starts } })
}

fn carried_of(dataset: &Dataset, kinds: &[Kind]) -> Result<Vec<Carried>> {
    let relations = dataset.graph.relations();
    let mut all: Vec<Carried> = Vec::with_capacity(kinds.len());
    for (relation, kind) in relations.iter().zip(kinds) {
        let name = &relation.name;
        let weight = dataset.edge_weights(name)?.map(|weight| weight.into_owned());
        let time = dataset.edge_times(name)?.map(|time| time.into_owned());
        let values = dataset.edge_columns(name)?.map_or(Vec::new(), |values| values.values().to_vec());
        let is_readable = weight.iter().flatten().all(|weight| (0.0..=MAX_EDGE_WEIGHT).contains(weight));
        let names = dataset.value_names(name).to_vec();
        let own = Carried { weight, time, names, values, is_mirrored: false, is_readable };
        let Kind::Told { of, reversed: true } = kind else {
            all.push(own);
            continue;
        };
        if own.is_any() {
            return Err(refused(name, "what edges carry with one direction alone", "some with both"));
        }
        let partner: &Carried = &all[*of];
        if !partner.is_any() {
            all.push(own);
            continue;
        }
        let entries = relations[*of].forward.entries_in(&relation.forward);
        let width = partner.names.len();
        let mirrored = Carried {
            weight: partner.weight.as_ref().map(|weight| entries.iter().map(|&entry| weight[entry]).collect()),
            time: partner.time.as_ref().map(|time| entries.iter().map(|&entry| time[entry]).collect()),
            names: partner.names.clone(),
            values: entries.iter().flat_map(|at| &partner.values[at * width..(at + 1) * width]).copied().collect(),
            is_mirrored: true,
            is_readable: partner.is_readable,
        };
        all.push(mirrored);
    }
    Ok(all)
}

/// The relation whose sources the alerts of a type of events name.
fn alert_of(dataset: &Dataset, node_type: usize) -> Option<usize> {
    let alert = dataset.events.as_ref()?.alert.as_ref()?;
    let types = dataset.graph.node_types();
    let of = &types[node_type];
    let alerts = alert[of.offset..of.offset + of.count].iter().copied().enumerate();
    let some: Vec<(usize, u32)> = alerts.filter(|(_, alert)| *alert != Events::NO_NODE).take(1000).collect();
    let names_them = |relation: &Relation| {
        let offset = types[relation.src].offset as u32;
        let is_named = |&(event, alert): &(usize, u32)| {
            relation.forward.row(event).first().is_some_and(|&source| offset + source == alert)
        };
        relation.dst == node_type && !relation.forward.is_spans() && some.iter().all(is_named)
    };
    if some.is_empty() { None } else { dataset.graph.relations().iter().position(names_them) }
}
