//! Whether what comes was there before.

use half::f16;

use super::delta::NewEdge;
use super::row::NodeRow;
use super::view::{Carrier, Place, View};
use crate::graph::{Events, FeatureValues};

/// What a row says otherwise than it was said before. Labels are not compared: they can come later, and change.
pub(super) fn difference(view: View, row: &NodeRow, local: u32) -> Option<&'static str> {
    let t = row.node_type;
    let (value, amount) = match view.place(t, local) {
        Place::Base(global) => {
            let amount = view.base().dataset.events.as_ref().and_then(|events| events.amount.as_ref());
            (None, amount.map(|amount| amount[global]))
        }
        Place::Appended(nodes, at) => (Some(nodes.value[at]), Some(nodes.amount[at])),
    };
    let differs = |own: Option<f32>, known: Option<f32>| {
        let own = own.unwrap_or(f32::NAN);
        known.is_some_and(|known| own.to_bits() != known.to_bits() && !(own.is_nan() && known.is_nan()))
    };
    if row.time.unwrap_or(Events::NO_TIME) != view.time(t, local) {
        Some("time")
    } else if differs(row.value, value) {
        Some("value")
    } else if differs(row.amount, amount) {
        Some("amount")
    } else if !has_features(view, t, local, &row.features) {
        Some("feature")
    } else {
        None
    }
}

/// The edges between the ends of an edge.
pub(super) fn known_edges(view: View, edge: &NewEdge) -> Vec<Carrier> {
    let base = view.base();
    let [src_type, dst_type] = base.ends[edge.relation];
    if edge.src >= view.count(src_type) || edge.dst >= view.count(dst_type) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let relation = base.relation(edge.relation);
    if let (Some(_), Some(_)) = (base.global(src_type, edge.src), base.global(dst_type, edge.dst)) {
        let [row, back] = [relation.forward.row(edge.dst as usize), relation.reverse.row(edge.src as usize)];
        // The shorter one says whether there is anything to be found.
        if back.len() >= row.len() || back.contains(&edge.dst) {
            let entries = relation.forward.entries(edge.dst as usize).zip(row);
            let own = entries.filter(|(_, source)| **source == edge.src);
            found.extend(own.map(|(entry, _)| Carrier::Base(entry)));
        }
    }
    for (at, layer) in view.layers().enumerate() {
        let edges = &layer.edges[edge.relation];
        let [into, out] = [edges.into.get(edge.dst), edges.out.get(edge.src)];
        let shorter = if into.len() <= out.len() { into } else { out };
        let is_own = |&&known: &&u32| (edges.src[known as usize], edges.dst[known as usize]) == (edge.src, edge.dst);
        found.extend(shorter.iter().filter(is_own).map(|&known| Carrier::Appended(at, known)));
    }
    found
}

/// Whether two rows say the same, of which a missing value is a part.
pub(super) fn is_same(a: &NodeRow, b: &NodeRow) -> bool {
    let bits = |of: &NodeRow| {
        let numbers = [of.value, of.amount].map(|value| value.map(f32::to_bits));
        let features = of.features.iter().map(|value| value.to_bits());
        (numbers, features.collect::<Vec<_>>(), of.time, of.label, of.known)
    };
    bits(a) == bits(b)
}

/// Whether the columns that a node has of its own are these.
pub(super) fn has_features(view: View, node_type: usize, local: u32, own: &[f16]) -> bool {
    let (mut half, mut single) = (Vec::new(), Vec::new());
    view.features(node_type, local, &mut half, &mut single);
    let is_same = |column: usize| match view.base().dataset.features.as_ref().map(|features| features.values()) {
        Some(FeatureValues::Half(_)) => half[column].to_bits() == own[column].to_bits() || half[column] == own[column],
        Some(FeatureValues::Single(_)) => {
            let (known, own) = (single[column], own[column]);
            f16::from_f32(known).to_bits() == own.to_bits() || known == own.to_f32()
        }
        None => true,
    };
    let is_missing = |column: usize| own[column].is_nan() && half.get(column).is_some_and(|value| value.is_nan());
    (0..own.len()).all(|column| view.state.derived.is_derived(column) || is_same(column) || is_missing(column))
}
