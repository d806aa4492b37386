//! A base and what was appended to it as one data directory.

use std::path::Path;

use rayon::prelude::*;

use super::base::{Base, Carried, Kind};
use super::delta::NOWHERE;
use super::derived::Independent;
use super::extract::{events_of, features_of, labels_of};
use super::made::Made;
use super::state::State;
use super::view::View;
use crate::data::tables::earlier;
use crate::error::Result;
use crate::graph::{
    Adjacency, Classes, Dataset, EdgeColumns, EdgeValues, Events, HeteroGraph, IdMaps, RelationSpec, StoredSplit,
    Values,
};

/// Says by global id which node of the data that were refreshed last a node is: u32, the largest for none.
pub(super) const REFRESHED_FILE: &str = "refreshed.bin";

/// All data that stay, and which they were.
pub(super) struct Whole {
    pub dataset: Dataset,
    /// By new global id: the one in the old base, [`NOWHERE`] of what was appended.
    pub origins: Vec<u32>,
    /// By new global id: the one in the data that were refreshed last; `None` where all are the same.
    pub refreshed: Option<Vec<u32>>,
}

/// Edges of a relation while they are collected.
struct Collected {
    adjacency: Adjacency,
    weight: Vec<f32>,
    time: Vec<i64>,
    values: Vec<f32>,
}

/// A copy of a state that its owner goes on changing; columns that follow from other rows are filled in.
pub(super) fn snapshot(state: &State) -> State {
    let view = View { state, overlay: None };
    let base = &state.base;
    let mut delta = state.delta.clone();
    let columns = base.width();
    if (0..columns).any(|column| state.derived.is_derived(column)) {
        for t in (0..base.of_events.len()).filter(|&t| !base.of_events[t]) {
            let is_other = |&local: &u32| base.global(t, local).is_none() || state.derived.is_changed(t, local);
            let other: Vec<u32> = (0..view.count(t)).filter(is_other).collect();
            let mut by_type: Vec<Vec<u32>> = base.of_events.iter().map(|_| Vec::new()).collect();
            by_type[t] = other;
            let Some(features) = features_of(view, &by_type, None) else { continue };
            let rows = features.as_f16();
            let rows = by_type[t].iter().zip(rows.chunks_exact(columns)).map(|(&local, row)| ((t, local), row.into()));
            delta.rows.extend(rows);
        }
    }
    State {
        base: base.clone(),
        names: state.names.clone(),
        delta,
        derived: Box::new(Independent { columns, history: 0 }),
        stale: Vec::new(),
        labels: state.labels.clone(),
        forgotten: state.forgotten.clone(),
        holes: state.holes.clone(),
        cutoff: state.cutoff,
        latest: state.latest,
        refreshed: state.refreshed.clone(),
        refreshed_at: state.refreshed_at,
        made: Made::default(),
        mark: state.mark,
        journal: None,
    }
}

impl Whole {
    /// # Errors
    /// Those of [`HeteroGraph::new`].
    pub fn of(state: &State) -> Result<Self> {
        let view = View { state, overlay: None };
        let base = view.base();
        let types = base.dataset.graph.node_types();
        let kept = |t: usize| (0..view.count(t)).filter(|&local| !view.is_gone(t, local)).collect();
        let nodes: Vec<Vec<u32>> = (0..types.len()).map(kept).collect();
        let places: Vec<Vec<u32>> = (0..types.len()).map(|t| places(&nodes[t], view.count(t))).collect();
        let mut offsets = vec![0u32];
        nodes.iter().for_each(|nodes| offsets.push(offsets[offsets.len() - 1] + nodes.len() as u32));
        let place = |t: usize, local: u32| Some(places[t][local as usize]).filter(|&place| place != NOWHERE);
        let events = events_of(view, &nodes, true, |t, local| Some(offsets[t] + place(t, local)?));
        let (mut specs, mut edge_values) = (Vec::new(), Vec::new());
        for (at, &[src, dst]) in base.ends.iter().enumerate() {
            let relation = base.relation(at);
            let adjacency = match &base.kinds[at] {
                Kind::Told { .. } => {
                    let collected = collect(view, at, &nodes[dst], &places[src], nodes[src].len());
                    let (adjacency, values) = collected.parts(&relation.name, &base.carried[at]);
                    edge_values.extend(values);
                    adjacency
                }
                Kind::Earlier { named, history, .. } => {
                    let entities = base.ends[*named][0];
                    let entity = |&event: &u32| {
                        let entity = view.entity(*named, event).and_then(|entity| place(entities, entity));
                        entity.unwrap_or(Events::NO_NODE)
                    };
                    let of_event: Vec<u32> = nodes[dst].par_iter().with_min_len(1 << 12).map(entity).collect();
                    let first = offsets[dst] as usize;
                    let times = events.as_ref().map_or(&[][..], |events| &events.time[first..first + nodes[dst].len()]);
                    earlier(&of_event, times, nodes[entities].len(), *history)
                }
            };
            specs.push(RelationSpec {
                name: relation.name.clone(),
                src,
                dst,
                stream: relation.stream.clone(),
                primary: relation.primary,
                adjacency,
            });
        }
        let counts = types.iter().zip(&nodes).map(|(of, nodes)| (of.name.clone(), nodes.len())).collect();
        let graph = HeteroGraph::with_reverse_relations(counts, specs, |_| true)?;
        let of_nodes = |f: &(dyn Fn(usize, u32) -> u32 + Sync)| -> Vec<u32> {
            nodes.iter().enumerate().flat_map(|(t, nodes)| nodes.iter().map(move |&local| f(t, local))).collect()
        };
        let origin = |t: usize, local: u32| base.global(t, local).map_or(NOWHERE, |global| global as u32);
        let origins = of_nodes(&origin);
        let refreshed = of_nodes(&|t, local| view.refreshed(t, local).unwrap_or(NOWHERE));
        let is_same = refreshed.iter().zip(0..).all(|(&node, own)| node == own);
        let names =
            |t: usize| nodes[t].par_iter().with_min_len(1 << 12).map(move |&local| view.name(t, local).to_owned());
        let ids = IdMaps((0..types.len()).map(|t| names(t).collect()).collect());
        let dataset = Dataset {
            classes: classes_of(base, &origins),
            feature_names: base.dataset.feature_names.clone(),
            edge_values,
            ends: base.dataset.ends.clone(),
            events,
            split: split_of(base, &origins),
            ..Dataset::new(graph, features_of(view, &nodes, None), labels_of(view, &nodes), Some(ids))
        };
        Ok(Self { dataset, origins, refreshed: (!is_same).then_some(refreshed) })
    }

    /// Writes the directory, with files of other content that belong to the data.
    ///
    /// # Errors
    /// Those of [`Dataset::write`].
    pub fn write(&self, dir: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
        let mut more: Vec<(&str, Vec<u8>)> =
            files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
        if let Some(refreshed) = &self.refreshed {
            more.push((REFRESHED_FILE, bytemuck::cast_slice(refreshed).to_vec()));
        }
        self.dataset.write_with(dir, &more).map(drop)
    }
}

/// By number: the place among those that stay.
fn places(kept: &[u32], count: u32) -> Vec<u32> {
    let mut places = vec![NOWHERE; count as usize];
    kept.iter().zip(0..).for_each(|(&local, place)| places[local as usize] = place);
    places
}

fn collect(view: View, relation: usize, rows: &[u32], places: &[u32], num_cols: usize) -> Collected {
    let carried = &view.base().carried[relation];
    let carries = carried.is_any() && !carried.is_mirrored;
    let mut row_ptr = Vec::with_capacity(rows.len() + 1);
    row_ptr.push(0u64);
    let (mut col_idx, mut weight, mut time, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for &row in rows {
        for (source, carrier) in view.sources(relation, row).iter() {
            col_idx.push(places[source as usize]);
            if carries {
                weight.extend(view.weight(relation, carrier));
                time.extend(view.edge_time(relation, carrier));
                values.extend_from_slice(view.values(relation, carrier));
            }
        }
        row_ptr.push(col_idx.len() as u64);
    }
    Collected { adjacency: Adjacency::from_checked(row_ptr, col_idx, num_cols), weight, time, values }
}

impl Collected {
    /// The rows, and what edges carry where they carry anything of their own.
    fn parts(self, relation: &str, carried: &Carried) -> (Adjacency, Option<EdgeValues>) {
        let Self { adjacency, weight, time, values } = self;
        let names = carried.names.clone();
        let of = EdgeValues {
            relation: relation.to_owned(),
            weight: carried.weight.as_ref().map(|_| Values::Made(weight.into())),
            time: carried.time.as_ref().map(|_| Values::Made(time.into())),
            columns: (!names.is_empty()).then(|| EdgeColumns { names, values: Values::Made(values.into()) }),
        };
        let is_any = of.weight.is_some() || of.time.is_some() || of.columns.is_some();
        (adjacency, (is_any && !carried.is_mirrored).then_some(of))
    }
}

/// Classes of data that have more than the two of labels; appended nodes have none.
fn classes_of(base: &Base, origins: &[u32]) -> Option<Classes> {
    let classes = base.dataset.classes.as_ref().filter(|classes| classes.count() > 2)?;
    let of = |&origin: &u32| classes.of_node().get(origin as usize).copied().flatten();
    Some(Classes::new(origins.iter().map(of).collect()))
}

/// The split of the labels; appended nodes are in no part.
fn split_of(base: &Base, origins: &[u32]) -> Option<StoredSplit> {
    let split = base.dataset.split.as_ref()?;
    let of = |parts: &Vec<u8>| origins.iter().map(|&origin| parts.get(origin as usize).copied().unwrap_or(0)).collect();
    Some(StoredSplit { windows: split.windows.iter().map(of).collect(), ..split.clone() })
}
