//! The neighbourhood of some nodes as data of their own.

use std::collections::HashMap;
use std::sync::Arc;

use half::f16;
use hashbrown::HashTable;

use super::append::Overlay;
use super::change::NodeKey;
use super::delta::NOWHERE;
use super::derived::EdgeAt;
use super::draw::{Draw, hash_of};
use super::part::Part;
use super::refused::{Fault, Refused};
use super::view::{Carrier, Place, View};
use crate::error::{Error, Result};
use crate::graph::{
    Adjacency, Ages, Dataset, EdgeColumns, EdgeMatrix, EdgeValues, Events, FeatureValues, Features, HeteroGraph,
    IdMaps, Labels, Values, from_the_first,
};
use crate::splitmix::mix;

/// Nodes by type in the order in which they were found.
struct Found {
    nodes: Vec<Vec<u32>>,
    /// All of them: type and place among those of the type.
    order: Vec<(usize, u32)>,
    /// Numbers in `order`, by type and number in the graph.
    table: HashTable<u32>,
}

/// Rows of a relation in the order of their nodes.
struct Rows {
    row_ptr: Vec<u64>,
    col_idx: Vec<u32>,
    carriers: Vec<Carrier>,
}

/// By which a node is looked up.
fn key_of(node_type: usize, local: u32) -> u64 {
    mix((node_type as u64) << 32 | u64::from(local))
}

impl Found {
    fn get(&self, node_type: usize, local: u32) -> Option<u32> {
        let is_own = |&at: &u32| {
            let (t, place) = self.order[at as usize];
            (t, self.nodes[t][place as usize]) == (node_type, local)
        };
        let known = self.table.find(key_of(node_type, local), is_own)?;
        Some(self.order[*known as usize].1)
    }

    /// The place of a node among those of its type.
    fn place(&mut self, node_type: usize, local: u32) -> u32 {
        if let Some(place) = self.get(node_type, local) {
            return place;
        }
        let Self { nodes, order, table } = self;
        let key = |&at: &u32| {
            let (t, place) = order[at as usize];
            key_of(t, nodes[t][place as usize])
        };
        table.insert_unique(key_of(node_type, local), order.len() as u32, key);
        let place = nodes[node_type].len() as u32;
        order.push((node_type, place));
        nodes[node_type].push(local);
        place
    }
}

/// The node of a target.
fn target_of(view: View, key: &NodeKey) -> Result<(usize, u32), Refused> {
    let refused = |expected: String, help: &str| {
        let (what, found) = (format!("target `{key}`"), "none of that name".into());
        Refused { fault: Fault::Unknown, error: Error::Data { what, expected, found, help: help.into() } }
    };
    let types = view.base().dataset.graph.node_types();
    let node_type = types.iter().position(|of| of.name == key.node_type).ok_or_else(|| {
        let names: Vec<&str> = types.iter().map(|of| of.name.as_str()).collect();
        refused(format!("a node of type {}", names.join(", ")), "write TYPE:ID")
    })?;
    let help = "append the node first, or send its row with the request";
    let local = view.find(node_type, &key.id).ok_or_else(|| refused("a known node".into(), help))?;
    Ok((node_type, local))
}

/// What a model sees of some nodes.
///
/// # Errors
/// [`Refused`] for a target that is not known and a neighbourhood beyond the limit.
pub(super) fn part(view: View, targets: &[NodeKey], overlay: Option<&Overlay>, draw: &Draw) -> Result<Part, Refused> {
    let base = view.base();
    let types = base.of_events.len();
    let mut found = Found { nodes: vec![Vec::new(); types], order: Vec::new(), table: HashTable::new() };
    let targets = targets.iter().map(|key| {
        let (node_type, local) = target_of(view, key)?;
        Ok((node_type, found.place(node_type, local)))
    });
    let targets: Vec<(usize, u32)> = targets.collect::<Result<_, Refused>>()?;
    let mut rows: Vec<Rows> = base.ends.iter().map(|_| Rows::default()).collect();
    let (mut places, mut first) = (Vec::new(), 0);
    for hop in 0..draw.hops {
        let end = found.order.len();
        for number in std::mem::replace(&mut first, end)..end {
            let (node_type, place) = found.order[number];
            let local = found.nodes[node_type][place as usize];
            // All of a row is no draw.
            let key = draw.fanouts.as_ref().map_or(0, |_| hash_of(view.name(node_type, local)));
            for (at, rows) in rows.iter_mut().enumerate().filter(|(at, _)| base.ends[*at][1] == node_type) {
                let sources = view.sources(at, local);
                draw.take(hop, sources.len(), [base.keys[at], base.type_keys[node_type], key], &mut places);
                for &entry in &places {
                    let (source, carrier) = sources.at(entry as usize);
                    rows.col_idx.push(found.place(base.ends[at][0], source));
                    rows.carriers.push(carrier);
                }
                rows.row_ptr.push(rows.col_idx.len() as u64);
                if found.order.len() > draw.max_nodes {
                    return Err(too_large(view, &found, draw));
                }
            }
        }
    }
    if found.order.len() > draw.max_nodes {
        return Err(too_large(view, &found, draw));
    }
    assemble(view, &found, rows, &targets, overlay, draw.named).map_err(Refused::unfit)
}

impl Default for Rows {
    fn default() -> Self {
        Self { row_ptr: vec![0], col_idx: Vec::new(), carriers: Vec::new() }
    }
}

fn too_large(view: View, found: &Found, draw: &Draw) -> Refused {
    let (node_type, place) = found.order[0];
    let name = view.name(node_type, found.nodes[node_type][place as usize]);
    let help = match &draw.fanouts {
        None => "sample the neighbourhood instead of taking all of it, or raise the limit of nodes",
        Some(_) => "lower the fanouts or the number of targets, or raise the limit of nodes",
    };
    let error = Error::Data {
        what: format!("neighbourhood of `{}:{name}`", view.base().type_name(node_type)),
        expected: format!("at most {} nodes within {} steps", draw.max_nodes, draw.hops),
        found: format!("{} or more", found.order.len()),
        help: help.into(),
    };
    Refused { fault: Fault::TooLarge, error }
}

fn assemble(
    view: View,
    found: &Found,
    mut rows: Vec<Rows>,
    targets: &[(usize, u32)],
    overlay: Option<&Overlay>,
    named: bool,
) -> Result<Part> {
    let base = view.base();
    let counts: Vec<usize> = found.nodes.iter().map(Vec::len).collect();
    let forward = rows.iter_mut().zip(&base.ends).map(|(rows, &[src, dst])| {
        let mut row_ptr = std::mem::take(&mut rows.row_ptr);
        row_ptr.resize(counts[dst] + 1, rows.col_idx.len() as u64);
        Adjacency::from_checked(row_ptr, std::mem::take(&mut rows.col_idx), counts[src])
    });
    let graph = base.dataset.graph.with_rows(&counts, forward.collect());
    let offsets: Vec<u32> = graph.node_types().iter().map(|of| of.offset as u32).collect();
    let carriers: Vec<Vec<Carrier>> = rows.into_iter().map(|rows| rows.carriers).collect();
    let events = events_of(view, &found.nodes, |t, local| Some(offsets[t] + found.get(t, local)?));
    let graph = with_ages(view, graph, &carriers, events.as_ref(), overlay)?;
    // Each id and each label is one more place in memory to go to.
    let ids = named.then(|| {
        let names = |t: usize| found.nodes[t].iter().map(|&local| view.name(t, local).to_owned()).collect();
        IdMaps((0..counts.len()).map(names).collect())
    });
    let labels = if named { labels_of(view, &found.nodes) } else { None };
    let features = features_of(view, &found.nodes, overlay);
    let dataset = Dataset {
        feature_names: base.dataset.feature_names.as_ref().filter(|_| named).cloned(),
        edge_values: (0..carriers.len()).filter_map(|at| edge_values(view, at, &carriers[at])).collect(),
        ends: base.dataset.ends.clone(),
        events,
        ..Dataset::new(graph, features, labels, ids)
    };
    let refreshed = found.nodes.iter().enumerate().flat_map(|(t, nodes)| nodes.iter().map(move |&local| (t, local)));
    Ok(Part {
        dataset,
        targets: targets.iter().map(|&(t, place)| offsets[t] + place).collect(),
        refreshed: refreshed.map(|(t, local)| view.refreshed(t, local)).collect(),
    })
}

impl View<'_> {
    /// The number of a node in the data that were refreshed last.
    pub(super) fn refreshed(&self, node_type: usize, local: u32) -> Option<u32> {
        let global = self.base().global(node_type, local)?;
        match &self.state.refreshed {
            None => Some(global as u32),
            Some(refreshed) => Some(refreshed[global]).filter(|&node| node != NOWHERE),
        }
    }
}

pub(super) fn features_of(view: View, nodes: &[Vec<u32>], overlay: Option<&Overlay>) -> Option<Features> {
    let features = view.base().dataset.features.as_ref()?;
    let (width, count) = (features.dim(), nodes.iter().map(Vec::len).sum());
    let (mut half, mut single): (Vec<f16>, Vec<f32>) = (Vec::new(), Vec::new());
    let is_half = matches!(features.values(), FeatureValues::Half(_));
    if is_half {
        half.reserve(count * width)
    } else {
        single.reserve(count * width)
    }
    let edges: &[EdgeAt] = overlay.map_or(&[], |overlay| &overlay.edges);
    let ends = |edge: &EdgeAt| {
        let [src, dst] = view.base().ends[edge.relation];
        [(src, edge.src), (dst, edge.dst)]
    };
    let mut touched: HashMap<(usize, u32), Vec<EdgeAt>> = HashMap::new();
    for edge in edges {
        let [src, dst] = ends(edge);
        touched.entry(src).or_default().push(*edge);
        if dst != src {
            touched.entry(dst).or_default().push(*edge);
        }
    }
    for (t, nodes) in nodes.iter().enumerate() {
        for &local in nodes {
            view.features(t, local, &mut half, &mut single);
            if view.base().of_events[t] {
                continue;
            }
            let edges = touched.get(&(t, local)).map_or(&[][..], Vec::as_slice);
            if edges.is_empty() && !is_changed(view, t, local) {
                continue;
            }
            if is_half {
                let start = half.len() - width;
                view.state.derived.of_node(t, local, edges, &mut half[start..]);
            } else {
                let start = single.len() - width;
                let known: Vec<f16> = single[start..].iter().map(|&value| f16::from_f32(value)).collect();
                let mut own = known.clone();
                view.state.derived.of_node(t, local, edges, &mut own);
                let changed =
                    own.iter().zip(&known).enumerate().filter(|(_, (own, known))| own.to_bits() != known.to_bits());
                changed.for_each(|(column, (own, _))| single[start + column] = own.to_f32());
            }
        }
    }
    Some(if is_half { Features::from_vec(half, count, width) } else { Features::from_f32(single, count, width) })
}

/// Whether derived columns of a node that is no event may be others than those that are stored.
fn is_changed(view: View, node_type: usize, local: u32) -> bool {
    view.base().global(node_type, local).is_none() || view.state.derived.is_changed(node_type, local)
}

/// Times of nodes by type, of which `place` says how they are numbered.
pub(super) fn events_of(view: View, nodes: &[Vec<u32>], place: impl Fn(usize, u32) -> Option<u32>) -> Option<Events> {
    let of_base = view.base().dataset.events.as_ref()?;
    let all = || nodes.iter().enumerate().flat_map(|(t, nodes)| nodes.iter().map(move |&local| (t, local)));
    let amount = |(t, local): (usize, u32)| match view.place(t, local) {
        Place::Base(global) => of_base.amount.as_ref().map_or(f32::NAN, |amount| amount[global]),
        Place::Appended(nodes, at) => nodes.amount[at],
    };
    let value = |(t, local): (usize, u32)| match view.place(t, local) {
        Place::Base(global) => of_base.value.as_ref().map_or(f32::NAN, |value| value[global]),
        Place::Appended(nodes, at) => nodes.value[at],
    };
    let known = |(t, local): (usize, u32)| view.label(t, local).map_or(Events::NEVER, |(_, known)| known);
    let alert = |(t, local): (usize, u32)| {
        let relation = view.base().alerts[t]?;
        place(view.base().ends[relation][0], view.entity(relation, local)?)
    };
    Some(Events {
        time: all().map(|(t, local)| view.time(t, local)).collect(),
        known: all().map(known).collect(),
        amount: of_base.amount.as_ref().map(|_| all().map(amount).collect()),
        value: of_base.value.as_ref().map(|_| all().map(value).collect()),
        alert: of_base.alert.as_ref().map(|_| all().map(|node| alert(node).unwrap_or(Events::NO_NODE)).collect()),
    })
}

pub(super) fn labels_of(view: View, nodes: &[Vec<u32>]) -> Option<Labels> {
    let all = nodes.iter().enumerate().flat_map(|(t, nodes)| nodes.iter().map(move |&local| (t, local)));
    let label = |(place, (t, local)): (u32, (usize, u32))| Some((place, view.label(t, local)?.0));
    let entries: Vec<(u32, u8)> = (0..).zip(all).filter_map(label).collect();
    (!entries.is_empty()).then_some(Labels { entries })
}

/// What the edges of a relation carry.
pub(super) fn edge_values(view: View, relation: usize, carriers: &[Carrier]) -> Option<EdgeValues> {
    let carried = &view.base().carried[relation];
    let weight = carried.weight.as_ref().map(|_| {
        let weight = carriers.iter().map(|&carrier| view.weight(relation, carrier).unwrap_or_default());
        Values::Made(weight.collect())
    });
    let time = carried.time.as_ref().filter(|_| !carried.is_mirrored).map(|_| {
        let time = carriers.iter().map(|&carrier| view.edge_time(relation, carrier).unwrap_or_default());
        Values::Made(time.collect())
    });
    let columns = (!carried.names.is_empty()).then(|| {
        let values = carriers.iter().flat_map(|&carrier| view.values(relation, carrier)).copied();
        EdgeColumns { names: carried.names.clone(), values: Values::Made(values.collect()) }
    });
    let relation = view.base().relation(relation).name.clone();
    (weight.is_some() || time.is_some() || columns.is_some()).then_some(EdgeValues { relation, weight, time, columns })
}

/// The ages that edges have where the base was given any: in data without events they count from the latest edge of
/// all, which a part need not have.
fn with_ages(
    view: View,
    mut graph: HeteroGraph,
    carriers: &[Vec<Carrier>],
    events: Option<&Events>,
    overlay: Option<&Overlay>,
) -> Result<HeteroGraph> {
    let base = view.base();
    if !base.dataset.graph.has_ages() {
        return Ok(graph);
    }
    if let Some(events) = events {
        graph.set_times(from_the_first(&events.time)?);
    }
    let of_overlay = overlay.iter().flat_map(|overlay| &overlay.edges).filter_map(|edge| edge.time).max();
    let latest = view.state.latest.max(of_overlay.unwrap_or(i64::MIN));
    let names: Vec<String> = graph.relations().iter().map(|relation| relation.name.clone()).collect();
    for (at, name) in names.iter().enumerate() {
        let ages = match &base.relation(at).ages {
            None => continue,
            Some(Ages::Nodes) => Ages::Nodes,
            Some(Ages::Edges(_)) => {
                let relation = &graph.relations()[at];
                let first = graph.node_types()[relation.dst].offset;
                let until = |row: usize| events.map_or(latest, |events| events.time[first + row]);
                let rows = (0..relation.forward.num_rows())
                    .flat_map(|row| relation.forward.entries(row).map(move |entry| (row, entry)));
                let age = |(row, entry): (usize, usize)| {
                    let time = view.edge_time(at, carriers[at][entry]).unwrap_or_default();
                    until(row).saturating_sub(time) as f32
                };
                Ages::Edges(Arc::new(EdgeMatrix::new(rows.map(age).collect(), 1)))
            }
        };
        graph.set_ages(name, ages);
    }
    Ok(graph)
}
