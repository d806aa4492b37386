//! Columns that depend on other rows: windows of events, and figures of the edges of a node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use half::f16;
use rayon::prelude::*;

use super::derived::{Derived, EdgeAt, EventAt, Rebaser};
use super::reader::RowReader;
use crate::data::tables::{FigureColumns, Figures, RowTables, WindowColumns, WindowRules};
use crate::data::windows::{Entity, EventColumns, Fact, Guest, KnownLabels, Running};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Dataset, Events};

/// The part of a stored split that a model learns from.
const TRAINING: u8 = 1;

/// Windows of the events of one type.
struct Windows {
    /// Index of the node type.
    node_type: usize,
    rules: WindowRules,
    columns: WindowColumns,
    running: Running,
    /// By entity type, the relation that names the entity, and the node type of that.
    relations: Vec<[usize; 2]>,
    /// Numbers of pairs, where the entities are pairs: then `relations` are those of both ends.
    pairs: Option<HashMap<[u32; 2], u32>>,
    /// Events of the base: later ones are of no training.
    base: u32,
}

/// One end of a static relation, whose nodes have columns of their edges.
struct End {
    relation: usize,
    /// Index of the node type.
    node_type: usize,
    is_dst: bool,
    columns: FigureColumns,
    /// Nodes whose edges are not those of the base.
    changed: HashMap<u32, Changed>,
}

impl End {
    /// The node that an edge has at this end.
    fn own(&self, edge: &EdgeAt) -> u32 {
        if self.is_dst { edge.dst } else { edge.src }
    }

    /// The node at its other end.
    fn other(&self, edge: &EdgeAt) -> u32 {
        if self.is_dst { edge.src } else { edge.dst }
    }
}

/// A node whose edges are not those of the base.
struct Changed {
    figures: Figures,
    added: Vec<EdgeAt>,
}

/// A static relation of the base.
struct Static {
    /// Node types of source and destination.
    types: [usize; 2],
    forward: Arc<Adjacency>,
    reverse: Arc<Adjacency>,
    /// Entry by entry of `forward`.
    weight: Option<Vec<f32>>,
    time: Option<Vec<i64>>,
}

/// Everything of a feature row that depends on other rows; see [`Derived`].
///
/// Counts so far are those of the rows that the base and what was appended hold, so that a server that runs, one that
/// was restarted and an import of these rows agree to the byte. An event sees what has a smaller time. One that comes
/// late counts for what comes after it, a late label for what happened when it was known, and what is forgotten for
/// nothing any more, also in columns of events that were appended before; those of the base stay what they were.
pub struct Columns {
    tables: Option<Arc<RowTables>>,
    /// By node type: the features of a node that only edges name, without figures of edges.
    unnamed: Vec<Vec<f16>>,
    histories: HashMap<String, usize>,
    is_derived: Vec<bool>,
    windows: Vec<Windows>,
    ends: Vec<End>,
    statics: HashMap<usize, Static>,
    /// Relation, source and destination of the edges with times that were appended to those.
    joined: HashSet<(usize, u32, u32)>,
    /// Nodes that are left out of everything.
    forgotten: HashSet<(usize, u32)>,
}

impl Columns {
    /// Of the rows of a base, all of which are gone through.
    ///
    /// # Errors
    /// [`Error::Config`] for windows of later events; [`Error::Format`] for an import that does not belong to the base;
    /// those of reading weights and times.
    pub fn new(reader: &RowReader, base: &Dataset) -> Result<Self> {
        let unnamed = (0..base.graph.node_types().len()).map(|node_type| reader.unnamed(node_type)).collect();
        Self::of(reader.tables().cloned(), unnamed, reader.width(), base)
    }

    fn of(tables: Option<Arc<RowTables>>, unnamed: Vec<Vec<f16>>, width: usize, base: &Dataset) -> Result<Self> {
        let mut columns = Self {
            tables: tables.clone(),
            unnamed,
            histories: HashMap::new(),
            is_derived: vec![false; width],
            windows: Vec::new(),
            ends: Vec::new(),
            statics: HashMap::new(),
            joined: HashSet::new(),
            forgotten: HashSet::new(),
        };
        let Some(tables) = tables else {
            columns.histories = longest_histories(base);
            return Ok(columns);
        };
        columns.histories = tables.histories().into_iter().collect();
        for rules in tables.windows()? {
            let windows = Windows::new(&tables, rules, base)?;
            columns.is_derived[windows.columns.range()].fill(true);
            columns.windows.push(windows);
        }
        columns.add_ends(&tables, base)?;
        for end in &columns.ends {
            end.columns.columns().for_each(|column| columns.is_derived[column] = true);
        }
        Ok(columns)
    }

    fn add_ends(&mut self, tables: &RowTables, base: &Dataset) -> Result<()> {
        for (at, relation) in base.graph.relations().iter().enumerate() {
            let ends = [(relation.dst, "in", true), (relation.src, "out", false)].map(|(node_type, way, is_dst)| {
                let columns = tables.figure_columns(&format!("{}.{way}", relation.name));
                End { relation: at, node_type, is_dst, columns, changed: HashMap::new() }
            });
            let ends: Vec<End> = ends.into_iter().filter(|end| end.columns.columns().next().is_some()).collect();
            if ends.is_empty() {
                continue;
            }
            let weight = base.edge_weights(&relation.name)?.map(|weight| weight.into_owned());
            let time = base.edge_times(&relation.name)?.map(|time| time.into_owned());
            let (forward, reverse) = (relation.forward.clone(), relation.reverse.clone());
            let types = [relation.src, relation.dst];
            self.statics.insert(at, Static { types, forward, reverse, weight, time });
            self.ends.extend(ends);
        }
        Ok(())
    }

    /// Figures of a node at one end, told anew.
    fn figures(&self, end: &End, node: u32, added: &[EdgeAt]) -> Figures {
        let Some(of) = self.statics.get(&end.relation) else { return Figures::NONE };
        let [src, dst] = of.types;
        let is_there = |other: u32| !self.forgotten.contains(&(if end.is_dst { src } else { dst }, other));
        let mut figures = Figures::NONE;
        let mut seen = HashSet::new();
        let mut add = |edge: &EdgeAt| {
            let other = end.other(edge);
            if is_there(other) {
                figures.add(edge.weight, edge.time, seen.insert(other));
            }
        };
        of.for_each_edge(end.is_dst, node, |edge| add(&edge));
        added.iter().for_each(add);
        figures
    }

    /// Whether no edge leads from the source of an edge to its destination yet.
    fn is_new(&self, edge: &EdgeAt) -> bool {
        // Edges without times are there once.
        let Some(of) = self.statics.get(&edge.relation).filter(|_| edge.time.is_some()) else { return true };
        let row = |of: &Adjacency, node: u32| (node as usize) < of.num_rows() && of.degree(node as usize) > 0;
        // Either end tells: the one with fewer edges is looked at.
        let in_base = || {
            if !row(&of.forward, edge.dst) || !row(&of.reverse, edge.src) {
                return false;
            }
            let (into, out) = (of.forward.row(edge.dst as usize), of.reverse.row(edge.src as usize));
            if into.len() <= out.len() { into.contains(&edge.src) } else { out.contains(&edge.dst) }
        };
        !self.joined.contains(&(edge.relation, edge.src, edge.dst)) && !in_base()
    }

    fn add_edge(&mut self, edge: &EdgeAt) {
        let is_new = self.is_new(edge);
        if edge.time.is_some() && self.statics.contains_key(&edge.relation) {
            self.joined.insert((edge.relation, edge.src, edge.dst));
        }
        for at in 0..self.ends.len() {
            let end = &self.ends[at];
            if end.relation != edge.relation {
                continue;
            }
            let node = end.own(edge);
            if !end.changed.contains_key(&node) {
                let changed = Changed { figures: self.figures(end, node, &[]), added: Vec::new() };
                self.ends[at].changed.insert(node, changed);
            }
            if let Some(changed) = self.ends[at].changed.get_mut(&node) {
                changed.figures.add(edge.weight, edge.time, is_new);
                changed.added.push(*edge);
            }
        }
    }

    /// Tells the figures of the neighbours of a node anew, which is left out from now on.
    fn forget_edges(&mut self, node_type: usize, node: u32) {
        for at in 0..self.ends.len() {
            // The neighbours have their figures at the other end.
            let end = &self.ends[at];
            let Some(of) = self.statics.get(&end.relation) else { continue };
            let [src, dst] = of.types;
            if node_type != if end.is_dst { src } else { dst } {
                continue;
            }
            let mut neighbours = HashSet::new();
            of.for_each_edge(!end.is_dst, node, |edge| {
                neighbours.insert(end.own(&edge));
            });
            for (&neighbour, Changed { added, .. }) in &end.changed {
                if added.iter().any(|edge| node == end.other(edge)) {
                    neighbours.insert(neighbour);
                }
            }
            for neighbour in neighbours {
                let added = self.ends[at].changed.remove(&neighbour).map(|changed| changed.added).unwrap_or_default();
                let figures = self.figures(&self.ends[at], neighbour, &added);
                self.ends[at].changed.insert(neighbour, Changed { figures, added });
            }
        }
    }
}

impl Derived for Columns {
    fn is_derived(&self, column: usize) -> bool {
        self.is_derived.get(column).is_some_and(|derived| *derived)
    }

    fn of_unnamed(&self, node_type: usize) -> Vec<f16> {
        self.unnamed[node_type].clone()
    }

    fn history(&self, relation: &str) -> usize {
        self.histories.get(relation).copied().unwrap_or(usize::MAX)
    }

    fn max_degree(&self, relation: &str) -> Option<usize> {
        self.tables.as_ref()?.max_degree(relation)
    }

    fn append(&mut self, events: &[EventAt], edges: &[EdgeAt]) -> Vec<(usize, u32)> {
        let (mut ids, mut changed) = (Vec::new(), Vec::new());
        for windows in &mut self.windows {
            let mut behind = Vec::new();
            for event in events.iter().filter(|event| event.node_type == windows.node_type) {
                windows.ids(event, None, &mut ids);
                if let (Some(numbers), Some(ends)) = (&mut windows.pairs, ends_of(&windows.relations, event)) {
                    ids[0] = pair(numbers, ends);
                }
                if event.local < windows.running.len() {
                    behind.extend(windows.running.forget(event.local));
                }
                let guest = Guest { event: event.local, fact: windows.fact(event), ids: &ids };
                behind.extend(windows.running.append(guest));
            }
            changed.extend(windows.appended(behind));
        }
        edges.iter().for_each(|edge| self.add_edge(edge));
        once(changed)
    }

    fn of_event(&self, event: &EventAt, features: &mut [f16]) {
        let (mut ids, mut row) = (Vec::new(), Vec::new());
        for windows in self.windows.iter().filter(|windows| windows.node_type == event.node_type) {
            windows.ids(event, Some(&mut HashMap::new()), &mut ids);
            windows.running.row(Guest { event: event.local, fact: windows.fact(event), ids: &ids }, &mut row);
            windows.columns.write(&row, features);
        }
    }

    fn of_events(&self, events: &[EventAt], features: &mut [Vec<f16>]) {
        if let ([event], [features]) = (events, &mut *features) {
            return self.of_event(event, features);
        }
        for windows in &self.windows {
            let own: Vec<usize> = (0..events.len()).filter(|&at| events[at].node_type == windows.node_type).collect();
            // Pairs that were never seen have numbers for this question.
            let mut more = HashMap::new();
            let of_event = |&at: &usize| {
                let mut ids = Vec::new();
                windows.ids(&events[at], Some(&mut more), &mut ids);
                ids
            };
            let ids: Vec<Vec<u32>> = own.iter().map(of_event).collect();
            let events_of = own.iter().map(|&at| (events[at].local, windows.fact(&events[at])));
            let guests: Vec<Guest> =
                events_of.zip(&ids).map(|((event, fact), ids)| Guest { event, fact, ids: &ids[..] }).collect();
            windows.running.rows(&guests, |at, row| windows.columns.write(row, &mut features[own[at]]));
        }
    }

    fn of_node(&self, node_type: usize, local: u32, overlay: &[EdgeAt], features: &mut [f16]) {
        for end in self.ends.iter().filter(|end| end.node_type == node_type) {
            let touches = |edge: &EdgeAt| edge.relation == end.relation && local == end.own(edge);
            let changed = end.changed.get(&local);
            let is_of_base = self.statics.get(&end.relation).is_some_and(|of| {
                (local as usize) < if end.is_dst { of.forward.num_rows() } else { of.reverse.num_rows() }
            });
            if changed.is_none() && is_of_base && !overlay.iter().any(touches) {
                continue;
            }
            let mut figures = changed.map_or_else(|| self.figures(end, local, &[]), |changed| changed.figures);
            let mut seen = HashSet::new();
            for edge in overlay.iter().filter(|edge| touches(edge)) {
                let is_first = seen.insert((edge.src, edge.dst)) || edge.time.is_none();
                figures.add(edge.weight, edge.time, is_first && self.is_new(edge));
            }
            end.columns.write(&figures, features);
        }
    }

    fn is_changed(&self, node_type: usize, local: u32) -> bool {
        self.ends.iter().any(|end| end.node_type == node_type && end.changed.contains_key(&local))
    }

    fn label(&mut self, event: &EventAt, label: u8, known: i64) -> Vec<(usize, u32)> {
        let mut changed = Vec::new();
        for windows in self.windows.iter_mut().filter(|windows| windows.node_type == event.node_type) {
            // What is not of the training is not counted, whenever it becomes known.
            if !windows.rules.of_training {
                let events = windows.running.label(event.local, Some(label), known);
                changed.extend(windows.appended(events));
            }
        }
        once(changed)
    }

    fn forget(&mut self, node_type: usize, local: u32) -> Vec<(usize, u32)> {
        let mut changed = Vec::new();
        for windows in &mut self.windows {
            let events = windows.forget(node_type, local);
            changed.extend(windows.appended(events));
        }
        self.forgotten.insert((node_type, local));
        self.forget_edges(node_type, local);
        once(changed)
    }

    /// Counts are those of the rows that there are: what leaves them leaves with the next base.
    fn drop_before(&mut self, _time: i64) {}

    fn rebaser(&self) -> Rebaser {
        let (tables, unnamed, width) = (self.tables.clone(), self.unnamed.clone(), self.is_derived.len());
        Box::new(move |base| Ok(Box::new(Self::of(tables, unnamed, width, base)?)))
    }

    fn bytes(&self) -> u64 {
        let of_windows = self.windows.iter().map(|windows| {
            windows.running.num_bytes() + windows.pairs.as_ref().map_or(0, |pairs| pairs.capacity() * 13)
        });
        let changed = self.ends.iter().flat_map(|end| end.changed.values());
        let of_ends = changed.map(|changed| size_of::<Changed>() + 8 + changed.added.capacity() * size_of::<EdgeAt>());
        (of_windows.sum::<usize>() + of_ends.sum::<usize>() + 17 * self.joined.capacity()) as u64
    }
}

impl Static {
    /// Calls `f` with every edge of the base at one end of a node.
    fn for_each_edge(&self, is_dst: bool, node: u32, mut f: impl FnMut(EdgeAt)) {
        let edge = |src: u32, dst: u32, entry: Option<usize>| EdgeAt {
            relation: 0,
            src,
            dst,
            weight: entry.and_then(|entry| Some(self.weight.as_ref()?[entry])),
            time: entry.and_then(|entry| Some(self.time.as_ref()?[entry])),
        };
        let entries = |dst: u32| self.forward.entries(dst as usize).zip(self.forward.row(dst as usize));
        if is_dst {
            if (node as usize) < self.forward.num_rows() {
                entries(node).for_each(|(entry, &src)| f(edge(src, node, Some(entry))));
            }
        } else if (node as usize) < self.reverse.num_rows() {
            let mut others = self.reverse.row(node as usize).to_vec();
            others.sort_unstable();
            others.dedup();
            for dst in others {
                match self.weight.is_some() || self.time.is_some() {
                    true => entries(dst)
                        .filter(|(_, src)| **src == node)
                        .for_each(|(entry, _)| f(edge(node, dst, Some(entry)))),
                    false => f(edge(node, dst, None)),
                }
            }
        }
    }
}

/// Each of some events once.
fn once(mut events: Vec<(usize, u32)>) -> Vec<(usize, u32)> {
    events.sort_unstable();
    events.dedup();
    events
}

impl Windows {
    fn new(tables: &RowTables, rules: WindowRules, base: &Dataset) -> Result<Self> {
        let graph = &base.graph;
        let missing = |what: &str| Error::Data {
            what: what.into(),
            expected: "what the description of the import says".into(),
            found: "nothing of it in the data".into(),
            help: "serve the directory that the import wrote, or one of the same description".into(),
        };
        let types = graph.node_types();
        let node_type = types.iter().position(|of| of.name == rules.node_type);
        let node_type = node_type.ok_or_else(|| missing("node type of the windows"))?;
        let events = base.events.as_ref().ok_or_else(|| missing("times of events"))?;
        let of_type = &types[node_type];
        let own = of_type.offset..of_type.offset + of_type.count;
        // In the order of the description, as an import names entities.
        let mut named = Vec::new();
        for name in tables.relations() {
            let turned = format!("{name}_T");
            let of = |wanted: &str| graph.relations().iter().position(|relation| relation.name == *wanted);
            let Some(at) = of(&name).or_else(|| of(&turned)) else { continue };
            let relation = &graph.relations()[at];
            let is_entity = |of: usize| events.time.get(types[of].offset).is_none_or(|&time| time == Events::NO_TIME);
            if relation.dst != node_type || !(types[relation.src].count == 0 || is_entity(relation.src)) {
                continue;
            }
            // A relation in which an event has several partners names no entity.
            let is_one = |row: usize| {
                let row = relation.forward.row(row);
                row.iter().all(|node| *node == row[0])
            };
            if (0..relation.forward.num_rows()).into_par_iter().all(is_one) {
                named.push((name, at));
            }
        }
        let called: Vec<(&str, &str)> =
            named.iter().map(|(name, at)| (name.as_str(), types[graph.relations()[*at].src].name.as_str())).collect();
        let mut names = RowTables::entity_names(&called, rules.ends.as_ref());
        let of_relation = |at: usize| -> Vec<u32> {
            let forward = &graph.relations()[at].forward;
            (0..of_type.count)
                .into_par_iter()
                .map(|row| forward.row(row).first().copied().unwrap_or(u32::MAX))
                .collect()
        };
        let mut relations: Vec<[usize; 2]> = named.iter().map(|&(_, at)| [at, graph.relations()[at].src]).collect();
        let mut of_event: Vec<Vec<u32>> = relations.iter().map(|&[at, _]| of_relation(at)).collect();
        let mut counts: Vec<usize> = relations.iter().map(|&[_, entity]| types[entity].count).collect();
        let mut pairs = None;
        if let Some(ends) = &rules.pairs {
            let place = |end: &String| named.iter().position(|(name, _)| name == end);
            let [src, dst] = ends.each_ref().map(place);
            let [src, dst] = [src, dst].map(|end| end.ok_or_else(|| missing("ends of the events")));
            let (src, dst) = (src?, dst?);
            let mut numbers = HashMap::new();
            let both = of_event[src].iter().zip(&of_event[dst]);
            let of_pairs: Vec<u32> = both.map(|(&src, &dst)| pair(&mut numbers, [src, dst])).collect();
            relations = vec![relations[src], relations[dst]];
            (of_event, counts, names) = (vec![of_pairs], vec![numbers.len()], vec!["pair"]);
            pairs = Some(numbers);
        }
        let mut label = vec![None; of_type.count];
        for &(node, class) in base.labels.iter().flat_map(|labels| &labels.entries) {
            let is_counted =
                !rules.of_training || base.split.as_ref().is_some_and(|split| split.parts()[node as usize] == TRAINING);
            if own.contains(&(node as usize)) && is_counted {
                label[node as usize - own.start] = Some(class);
            }
        }
        let values = events.values().filter(|_| rules.has_values).map(|values| &values[own.clone()]);
        let entities = names.iter().zip(&of_event).zip(&counts);
        let entities = entities.map(|((&name, of_event), &count)| Entity { name, of_event, count }).collect();
        let columns = EventColumns {
            times: &events.time[own.clone()],
            values,
            labels: Some(KnownLabels { label: &label, known: &events.known[own.clone()], delay: rules.delay }),
            entities,
        };
        let running = Running::new(&columns, &rules.config);
        let columns = tables.window_columns(&rules.node_type, running.names())?;
        Ok(Self { node_type, columns, relations, pairs, base: running.len(), running, rules })
    }

    /// The entities that an event names, by type; `more` gives pairs without a number one of their own.
    fn ids(&self, event: &EventAt, more: Option<&mut HashMap<[u32; 2], u32>>, ids: &mut Vec<u32>) {
        ids.clear();
        let Some(numbers) = &self.pairs else {
            ids.extend(self.relations.iter().map(|&[relation, _]| named_in(relation, event)));
            return;
        };
        let number = ends_of(&self.relations, event).and_then(|ends| {
            let known = numbers.get(&ends).copied();
            known.or_else(|| more.map(|more| numbers.len() as u32 + pair(more, ends)))
        });
        ids.push(number.unwrap_or(u32::MAX));
    }

    /// Those of some events that were appended, with their type: events of the base keep their columns.
    fn appended(&self, events: Vec<u32>) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (of, first) = (self.node_type, self.base);
        events.into_iter().filter(move |&event| event >= first).map(move |event| (of, event))
    }

    /// Leaves a node out. Returns the events whose columns may be others than before.
    fn forget(&mut self, node_type: usize, local: u32) -> Vec<u32> {
        if node_type == self.node_type {
            return self.running.forget(local);
        }
        let mut changed = Vec::new();
        for (at, _) in self.relations.iter().enumerate().filter(|(_, [_, entity])| *entity == node_type) {
            match &self.pairs {
                None => changed.extend(self.running.forget_entity(at, local)),
                Some(numbers) => {
                    let of_entity = numbers.iter().filter(|(ends, _)| ends[at] == local);
                    changed.extend(of_entity.flat_map(|(_, &number)| self.running.forget_entity(0, number)));
                }
            }
        }
        changed
    }

    fn fact(&self, event: &EventAt) -> Fact {
        let label = event.label.filter(|_| !self.rules.of_training || event.local < self.base);
        Fact {
            time: event.time,
            value: event.value.filter(|_| self.rules.has_values).unwrap_or(f32::NAN),
            label: label.map(|(label, _)| label),
            known: label.map_or(i64::MAX, |(_, known)| known),
        }
    }
}

/// The entity that an event names in a relation; `u32::MAX` for none.
fn named_in(relation: usize, event: &EventAt) -> u32 {
    event.entities.iter().find(|(of, _)| *of == relation).map_or(u32::MAX, |&(_, entity)| entity)
}

/// Both ends of an event, where it has both.
fn ends_of(relations: &[[usize; 2]], event: &EventAt) -> Option<[u32; 2]> {
    let &[[src, _], [dst, _]] = relations else { return None };
    Some([src, dst].map(|relation| named_in(relation, event))).filter(|ends| !ends.contains(&u32::MAX))
}

/// The number of a pair, a new one for a new pair; `u32::MAX` where an end is missing.
fn pair(numbers: &mut HashMap<[u32; 2], u32>, ends: [u32; 2]) -> u32 {
    if ends.contains(&u32::MAX) {
        return u32::MAX;
    }
    let next = numbers.len() as u32;
    *numbers.entry(ends).or_insert(next)
}

/// How many earlier events an event of the data is joined to at most, by relation.
fn longest_histories(base: &Dataset) -> HashMap<String, usize> {
    let of = |relation: &crate::graph::Relation| {
        let name = relation.name.strip_prefix("earlier_")?.to_owned();
        let rows = 0..relation.forward.num_rows();
        Some((name, rows.map(|row| relation.forward.degree(row)).max().unwrap_or(0)))
    };
    base.graph.relations().iter().filter_map(of).collect()
}
