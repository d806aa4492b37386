//! What rows would append, checked before anything is changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use half::f16;

use super::base::Kind;
use super::delta::NewEdge;
use super::refused::{Fault, Refused};
use super::row::{EdgeRow, NodeRow, Row};
use super::same::{difference, has_features, is_same, known_edges};
use super::view::{Place, View};
use crate::error::Error;
use crate::graph::{Events, MAX_EDGE_WEIGHT};

type Result<T> = std::result::Result<T, Refused>;

/// The longest id, in bytes.
const MAX_ID: usize = 1024;

/// What was appended, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Appended {
    /// New nodes, those that only edges name included, and rows of such as only edges named before.
    pub nodes: usize,
    /// New edges.
    pub edges: usize,
    /// Rows that repeat what was there.
    pub repeated: usize,
    /// Edges that are left out: from an event to one that is not later, and from a value of a shared column that joins
    /// `max_degree` nodes already.
    pub left_out: usize,
}

/// A new node, and its row where it has one.
pub(super) struct NewNode<'a> {
    pub node_type: usize,
    pub local: u32,
    pub id: &'a str,
    pub row: Option<&'a NodeRow>,
}

/// Rows in numbers, in the order in which they are appended.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub nodes: Vec<NewNode<'a>>,
    /// Rows of nodes that were there, but that no row told of.
    pub told: Vec<(u32, &'a NodeRow)>,
    pub edges: Vec<NewEdge<'a>>,
    /// Features of nodes that only edges name, by type, where there may be any.
    pub unnamed: HashMap<usize, Vec<f16>>,
    pub counts: Appended,
}

/// How times are checked: none is later than the first, which is said of the second.
#[derive(Clone, Copy)]
pub(super) struct Until {
    pub time: i64,
    pub now: i64,
}

struct Planner<'a, 'v> {
    view: View<'v>,
    until: Until,
    plan: Plan<'a>,
    /// New nodes by type and id.
    new: HashMap<(usize, &'a str), usize>,
    /// Rows of nodes that were there, by type and number.
    told: HashMap<(usize, u32), &'a NodeRow>,
    /// By type: which of the new nodes are of it.
    added: Vec<Vec<usize>>,
    /// New edges by relation and ends.
    new_edges: HashMap<(usize, u32, u32), Vec<usize>>,
    /// New edges by relation and destination, where that names one.
    named: HashMap<(usize, u32), u32>,
    /// How many new edges lead from a node, by relation and node, where there may be so many.
    from: HashMap<(usize, u32), usize>,
}

fn refused(what: String, expected: impl Into<String>, found: impl Into<String>, help: &str) -> Refused {
    Refused::unfit(Error::Data { what, expected: expected.into(), found: found.into(), help: help.into() })
}

/// The same, of what is there already with another content.
fn duplicate(what: String, expected: &str, found: impl Into<String>, help: &str) -> Refused {
    Refused { fault: Fault::Duplicate, ..refused(format!("duplicate {what}"), expected, found, help) }
}

/// What rows would append to a graph.
///
/// # Errors
/// [`Refused`] that names the node or the edge.
pub(super) fn plan<'a>(view: View, rows: &'a [Row], until: Until) -> Result<Plan<'a>> {
    let types = view.base().of_events.len();
    let mut planner = Planner {
        view,
        until,
        plan: Plan::default(),
        new: HashMap::new(),
        told: HashMap::new(),
        added: vec![Vec::new(); types],
        new_edges: HashMap::new(),
        named: HashMap::new(),
        from: HashMap::new(),
    };
    for row in rows {
        if let Row::Node(row) = row {
            planner.node(row)?;
        }
    }
    for row in rows {
        if let Row::Edge(row) = row {
            planner.edge(row)?;
        }
    }
    planner.add_loops();
    let Planner { mut plan, .. } = planner;
    (plan.counts.nodes, plan.counts.edges) = (plan.nodes.len() + plan.told.len(), plan.edges.len());
    Ok(plan)
}

impl Plan<'_> {
    /// Up to when everything hears what it heard before, once these rows are there beside `view`; [`i64::MIN`] where
    /// something without a time may hear something else.
    pub fn unheard_until(&self, view: View) -> i64 {
        let base = view.base();
        let is_new = |node_type: usize, local: u32| local >= view.count(node_type);
        // An event tells those behind it; an edge without one tells both of its ends.
        let tells = |edge: &NewEdge| {
            let [src, dst] = base.ends[edge.relation];
            !is_new(dst, edge.dst) || !base.of_events[dst] && !is_new(src, edge.src)
        };
        if !self.told.is_empty() || self.edges.iter().any(tells) {
            return i64::MIN;
        }
        self.nodes.iter().filter_map(|new| new.row?.time).min().unwrap_or(i64::MAX)
    }
}

impl<'a> Planner<'a, '_> {
    fn node_name(&self, node_type: usize, id: &str) -> String {
        format!("node `{}:{id}`", self.view.base().type_name(node_type))
    }

    fn node(&mut self, row: &'a NodeRow) -> Result<()> {
        self.check_node(row)?;
        let name = self.node_name(row.node_type, &row.id);
        let differs = |part: &str| {
            let help = "send the row as it was, or give the node another id";
            duplicate(name.clone(), "what the node had before", format!("another {part}"), help)
        };
        if let Some(&at) = self.new.get(&(row.node_type, row.id.as_str())) {
            if !self.plan.nodes[at].row.is_some_and(|told| is_same(told, row)) {
                return Err(differs("row in the same request"));
            }
            self.plan.counts.repeated += 1;
            return Ok(());
        }
        let Some(local) = self.view.find(row.node_type, &row.id) else {
            return self.add(row.node_type, &row.id, Some(row)).map(drop);
        };
        if self.is_untold(row.node_type, local) {
            match self.told.entry((row.node_type, local)) {
                Entry::Vacant(place) => {
                    place.insert(row);
                    self.plan.told.push((local, row));
                }
                Entry::Occupied(told) if is_same(told.get(), row) => self.plan.counts.repeated += 1,
                Entry::Occupied(_) => return Err(differs("row in the same request")),
            }
            return Ok(());
        }
        if let Some(part) = difference(self.view, row, local) {
            return Err(differs(part));
        }
        self.plan.counts.repeated += 1;
        Ok(())
    }

    fn check_node(&self, row: &NodeRow) -> Result<()> {
        let base = self.view.base();
        if row.node_type >= base.of_events.len() {
            let types = base.of_events.len();
            let help = "number node types as the graph does";
            return Err(refused("node type".into(), format!("below {types}"), row.node_type.to_string(), help));
        }
        check_id(&row.id)?;
        let what = || self.node_name(row.node_type, &row.id);
        let width = base.width();
        if row.features.len() != width {
            let expected = format!("{width} features");
            return Err(refused(what(), expected, row.features.len().to_string(), "give a value for every column"));
        }
        if let Some(column) = row.features.iter().position(|value| value.is_infinite()) {
            let found = format!("{} in column {column}", row.features[column]);
            return Err(refused(what(), "finite features", found, "leave out what is not known"));
        }
        if row.label.is_some_and(|label| label > 1) {
            let found = row.label.unwrap_or_default().to_string();
            return Err(refused(what(), "a label of 0 or 1", found, "leave the label out where it is not known"));
        }
        match (row.time, base.of_events[row.node_type]) {
            (None, true) => {
                Err(refused(what(), "a time", "none", "nodes of this type are events, which happen at a time"))
            }
            (Some(time), false) => {
                let help = "leave it out: nodes of this type are no events";
                Err(refused(what(), "no time", time.to_string(), help))
            }
            (Some(time), true) => self.check_time(time, what),
            (None, false) => Ok(()),
        }
    }

    fn check_time(&self, time: i64, what: impl Fn() -> String) -> Result<()> {
        if time > self.until.time {
            let expected = format!("a time up to now, {}", self.until.now);
            return Err(refused(what(), expected, time.to_string(), "times are seconds since 1970, in UTC"));
        }
        if self.view.is_old(time) || time == Events::NO_TIME {
            let expected = format!("a time from {} on, as far back as events are kept", self.view.state.cutoff);
            return Err(refused(what(), expected, time.to_string(), "keep events for longer, or leave this one out"));
        }
        Ok(())
    }

    /// Adds a node and returns its number.
    fn add(&mut self, node_type: usize, id: &'a str, row: Option<&'a NodeRow>) -> Result<u32> {
        let count = |t: usize| self.view.count(t) as usize + self.added[t].len();
        let local = count(node_type) as u32;
        // Global ids have 32 bits, of which the last stands for none.
        let all: usize = (0..self.added.len()).map(count).sum();
        if all + 1 >= u32::MAX as usize {
            let help = "keep events for a shorter time";
            return Err(refused(
                self.node_name(node_type, id),
                "fewer nodes than 32 bits number",
                all.to_string(),
                help,
            ));
        }
        if row.is_none() {
            self.unnamed(node_type);
        }
        self.added[node_type].push(self.plan.nodes.len());
        self.new.insert((node_type, id), self.plan.nodes.len());
        self.plan.nodes.push(NewNode { node_type, local, id, row });
        Ok(local)
    }

    /// Whether no row told of a node so far.
    fn is_untold(&mut self, node_type: usize, local: u32) -> bool {
        if self.view.base().of_events[node_type]
            || self.view.layers().any(|of| of.rows.contains_key(&(node_type, local)))
        {
            return false;
        }
        if let Place::Appended(nodes, at) = self.view.place(node_type, local) {
            return !nodes.has_row[at];
        }
        let view = self.view;
        let unnamed = self.unnamed(node_type);
        !unnamed.is_empty() && view.label(node_type, local).is_none() && has_features(view, node_type, local, unnamed)
    }

    /// The features of a node that only edges name.
    fn unnamed(&mut self, node_type: usize) -> &[f16] {
        let derived = &self.view.state.derived;
        self.plan.unnamed.entry(node_type).or_insert_with(|| derived.of_unnamed(node_type))
    }

    /// The node at an end of an edge, a new one where its type allows.
    fn end(&mut self, row: &EdgeRow, node_type: usize, id: &'a str) -> Result<u32> {
        if let Some(&at) = self.new.get(&(node_type, id)) {
            return Ok(self.plan.nodes[at].local);
        }
        if let Some(local) = self.view.find(node_type, id) {
            return Ok(local);
        }
        let base = self.view.base();
        let what = format!("edge of `{}` between {:?} and {:?}", base.relation(row.relation).name, row.src, row.dst);
        if base.of_events[node_type] {
            let found = format!("`{}:{id}`, which is not known", base.type_name(node_type));
            return Err(refused(what, "an event with a row", found, "append the event before the edge, or with it"));
        }
        check_id(id)?;
        self.add(node_type, id, None)
    }

    fn edge(&mut self, row: &'a EdgeRow) -> Result<()> {
        let base = self.view.base();
        if row.relation >= base.kinds.len() {
            let (help, relations) = ("number relations as the graph does", base.kinds.len());
            return Err(refused("relation".into(), format!("below {relations}"), row.relation.to_string(), help));
        }
        let name = &base.relation(row.relation).name;
        let what = || format!("edge of `{name}` from {:?} to {:?}", row.src, row.dst);
        let Kind::Told { of, reversed } = base.kinds[row.relation] else {
            let help = "leave it out: it follows from what events name";
            return Err(refused(what(), "an edge of a table", "one between events of the same node", help));
        };
        self.check_carried(row, of, &what)?;
        let (src_id, dst_id) = if reversed { (&row.dst, &row.src) } else { (&row.src, &row.dst) };
        let [src_type, dst_type] = base.ends[of];
        let src = self.end(row, src_type, src_id)?;
        let dst = self.end(row, dst_type, dst_id)?;
        let moment = base.of_events[dst_type].then(|| self.time(dst_type, dst));
        if base.of_events[src_type] && moment.is_some_and(|moment| self.time(src_type, src) >= moment) {
            self.plan.counts.left_out += 1;
            return Ok(());
        }
        let edge = NewEdge { relation: of, src, dst, weight: row.weight, time: row.time, values: &row.values, moment };
        if self.is_repeated(&edge, &what)? {
            self.plan.counts.repeated += 1;
            return Ok(());
        }
        if base.names_one(of) {
            let named = match self.named.entry((of, dst)) {
                Entry::Occupied(known) => Some(*known.get()),
                Entry::Vacant(place) => {
                    place.insert(src);
                    if dst < self.view.count(dst_type) { self.view.entity(of, dst) } else { None }
                }
            };
            if named.is_some_and(|named| named != src) {
                let found = format!("a second one, {src_id:?}");
                let help = "an event names one node of this relation: send the edge as it was, or another event";
                return Err(duplicate(what(), "one source", found, help));
            }
        }
        if base.max_degrees[of].is_some_and(|most| self.out_degree(of, src) >= most) {
            self.plan.counts.left_out += 1;
            return Ok(());
        }
        self.push(edge);
        if base.symmetric[of] && src != dst {
            self.push(NewEdge { src: dst, dst: src, ..edge });
        }
        Ok(())
    }

    /// Adds an edge from every new node to itself, in relations where every node has one.
    fn add_loops(&mut self) {
        let base = self.view.base();
        for relation in (0..base.ends.len()).filter(|&at| base.looped[at]) {
            let has_loops = matches!(base.kinds[relation], Kind::Told { reversed: false, .. });
            if base.carried[relation].is_any() || !has_loops {
                continue;
            }
            let is_new = |node: &u32| !self.new_edges.contains_key(&(relation, *node, *node));
            let node_type = base.ends[relation][0];
            let own = self.added[node_type].iter().map(|&at| self.plan.nodes[at].local);
            for node in own.filter(is_new).collect::<Vec<_>>() {
                let moment = base.of_events[node_type].then(|| self.time(node_type, node));
                let (src, dst) = (node, node);
                self.push(NewEdge { relation, src, dst, weight: None, time: None, values: &[], moment });
            }
        }
    }

    /// How many edges lead from a node, these rows included. What left since the base was made still counts.
    fn out_degree(&self, relation: usize, src: u32) -> usize {
        let appended: usize = self.view.layers().map(|layer| layer.edges[relation].out.get(src).len()).sum();
        let new = self.from.get(&(relation, src)).copied().unwrap_or(0);
        self.view.base().out_degree(relation, src) + appended + new
    }

    fn push(&mut self, edge: NewEdge<'a>) {
        if self.view.base().max_degrees[edge.relation].is_some() {
            *self.from.entry((edge.relation, edge.src)).or_default() += 1;
        }
        self.new_edges.entry((edge.relation, edge.src, edge.dst)).or_default().push(self.plan.edges.len());
        self.plan.edges.push(edge);
    }

    fn check_carried(&self, row: &EdgeRow, of: usize, what: &impl Fn() -> String) -> Result<()> {
        let carried = &self.view.base().carried[of];
        let has = |is: bool| if is { "one" } else { "none" };
        for (part, expected, found) in [
            ("a weight", carried.weight.is_some(), row.weight.is_some()),
            ("a time", carried.time.is_some(), row.time.is_some()),
        ] {
            if expected != found {
                let expected = format!("{part}: {}, as all edges of the relation", has(expected));
                return Err(refused(what(), expected, has(found), "give the edge what its table has"));
            }
        }
        if row.values.len() != carried.names.len() {
            let expected = format!("{} values", carried.names.len());
            return Err(refused(what(), expected, row.values.len().to_string(), "give a value for every column"));
        }
        let is_bad =
            |weight: f32| !weight.is_finite() || carried.is_readable && !(0.0..=MAX_EDGE_WEIGHT).contains(&weight);
        if let Some(weight) = row.weight.filter(|&weight| is_bad(weight)) {
            let expected = format!("a weight from 0 to {MAX_EDGE_WEIGHT:e}");
            return Err(refused(what(), expected, weight.to_string(), "a weight says how much an edge counts"));
        }
        if let Some(value) = row.values.iter().find(|value| !value.is_finite()) {
            return Err(refused(what(), "finite values", value.to_string(), "leave out what is not known"));
        }
        row.time.map_or(Ok(()), |time| self.check_time(time, what))
    }

    /// The time of an event that is there or comes with these rows.
    fn time(&self, node_type: usize, local: u32) -> i64 {
        if local < self.view.count(node_type) {
            return self.view.time(node_type, local);
        }
        let at = self.added[node_type][(local - self.view.count(node_type)) as usize];
        self.plan.nodes[at].row.and_then(|row| row.time).unwrap_or(Events::NO_TIME)
    }

    /// Whether an edge is there already. Without times there is one between two nodes, which then has to be the same.
    fn is_repeated(&self, edge: &NewEdge, what: &impl Fn() -> String) -> Result<bool> {
        let same = |weight: Option<f32>, time: Option<i64>, values: &[f32]| {
            (weight.map(f32::to_bits), time) == (edge.weight.map(f32::to_bits), edge.time)
                && values.iter().map(|value| value.to_bits()).eq(edge.values.iter().map(|value| value.to_bits()))
        };
        let mut is_there = false;
        let new = self.new_edges.get(&(edge.relation, edge.src, edge.dst));
        for &at in new.into_iter().flatten() {
            let known = &self.plan.edges[at];
            is_there = true;
            if same(known.weight, known.time, known.values) {
                return Ok(true);
            }
        }
        for carrier in known_edges(self.view, edge) {
            is_there = true;
            let (of, view) = (edge.relation, self.view);
            if same(view.weight(of, carrier), view.edge_time(of, carrier), view.values(of, carrier)) {
                return Ok(true);
            }
        }
        if is_there && edge.time.is_none() {
            let help = "edges without times are there once: give them times where each counts";
            let found = "another weight or other values";
            return Err(duplicate(what(), "what the edge had before", found, help));
        }
        Ok(false)
    }
}

fn check_id(id: &str) -> Result<()> {
    if (1..=MAX_ID).contains(&id.len()) {
        return Ok(());
    }
    let found = format!("{} bytes", id.len());
    Err(refused("id of a node".into(), format!("1 to {MAX_ID} bytes"), found, "give the node another id"))
}
