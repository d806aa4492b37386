//! The neighbourhood of some nodes as data of their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use half::f16;

use super::append::Overlay;
use super::change::NodeKey;
use super::delta::NOWHERE;
use super::derived::EdgeAt;
use super::draw::Draw;
use super::made::MadeRows;
use super::part::Part;
use super::refused::{Fault, Refused};
use super::view::{Carrier, Place, View};
use super::walk::{Found, Rows, Walk, too_large};
use crate::error::{Error, Result};
use crate::graph::{
    Adjacency, Ages, Dataset, EdgeColumns, EdgeMatrix, EdgeValues, Events, FeatureValues, Features, HeteroGraph,
    IdMaps, Labels, Values, from_the_first,
};

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
    let mut walk = Walk::new(view, draw, overlay);
    let targets = targets.iter().map(|key| {
        let (node_type, local) = target_of(view, key)?;
        Ok((node_type, walk.target(node_type, local)))
    });
    let targets: Vec<(usize, u32)> = targets.collect::<Result<_, Refused>>()?;
    walk.go()?;
    let Walk { found, rows, made, .. } = walk;
    if found.order.len() > draw.max_nodes {
        return Err(too_large(view, &found, draw));
    }
    let mut part = assemble(view, &found, rows, &targets, overlay, draw.named).map_err(Refused::unfit)?;
    let types = part.dataset.graph.node_types();
    let global = |number: u32| {
        let (node_type, place) = found.order[number as usize];
        types[node_type].offset as u32 + place
    };
    part.made = made.into_iter().map(|(number, rows)| (global(number), rows)).collect();
    Ok(part)
}

fn assemble(
    view: View,
    found: &Found,
    rows: Vec<Rows>,
    targets: &[(usize, u32)],
    overlay: Option<&Overlay>,
    named: bool,
) -> Result<Part> {
    let base = view.base();
    let counts: Vec<usize> = found.nodes.iter().map(Vec::len).collect();
    let mut carriers = Vec::with_capacity(rows.len());
    let forward = rows.into_iter().zip(&base.ends).map(|(rows, &[src, dst])| {
        let (row_ptr, col_idx, carried) = rows.in_order(counts[dst]);
        carriers.push(carried);
        Adjacency::from_checked(row_ptr, col_idx, counts[src])
    });
    let graph = base.dataset.graph.with_rows(&counts, forward.collect());
    let offsets: Vec<u32> = graph.node_types().iter().map(|of| of.offset as u32).collect();
    let events = events_of(view, &found.nodes, named, |t, local| Some(offsets[t] + found.get(t, local)?));
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
        made: BTreeMap::new(),
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

    /// What is kept of a node for so many networks, where that is good for others, too: not of what this call alone
    /// sees, which changes what is later than `until`.
    pub(super) fn made(&self, node_type: usize, local: u32, until: i64, networks: usize) -> Option<MadeRows> {
        let is_own = self.overlay.is_some_and(|overlay| local >= overlay.nodes[node_type].first);
        let time = self.time(node_type, local);
        let is_good = !is_own && until != i64::MIN && time <= until;
        is_good.then(|| self.state.made.of(time, node_type, local, networks))
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

/// Times of nodes by type and when labels became known, and where `all` is asked for what else events have; `place`
/// says how nodes are numbered.
pub(super) fn events_of(
    view: View,
    nodes: &[Vec<u32>],
    all: bool,
    place: impl Fn(usize, u32) -> Option<u32>,
) -> Option<Events> {
    let of_base = view.base().dataset.events.as_ref()?;
    let each = || nodes.iter().enumerate().flat_map(|(t, nodes)| nodes.iter().map(move |&local| (t, local)));
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
        time: each().map(|(t, local)| view.time(t, local)).collect(),
        known: each().map(known).collect(),
        amount: of_base.amount.as_ref().filter(|_| all).map(|_| each().map(amount).collect()),
        value: of_base.value.as_ref().filter(|_| all).map(|_| each().map(value).collect()),
        alert: of_base
            .alert
            .as_ref()
            .filter(|_| all)
            .map(|_| each().map(|node| alert(node).unwrap_or(Events::NO_NODE)).collect()),
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
