//! The part of a data set on some of its nodes, and what of it was known at a time.

use super::dataset::Dataset;
use super::events::Events;
use super::features::Features;
use super::ids::IdMaps;
use super::labels::Labels;
use super::stored_split::StoredSplit;

/// Some nodes of a [`Dataset`] with a numbering of their own.
#[derive(Debug)]
pub struct Subset {
    /// Node types, relations with what the graph has of their edges, features, labels, events, split and original ids
    /// of these nodes. Files of weights, times and values of edges, and classes are left out.
    pub dataset: Dataset,
    /// By new global id: the global id in the whole.
    pub nodes: Vec<u32>,
}

impl Subset {
    /// By global id in the whole: the new one, where the node is kept.
    pub fn places(&self, num_nodes: usize) -> Vec<Option<u32>> {
        places(&self.nodes, num_nodes)
    }

    /// The rows of the kept nodes, of features that all nodes have.
    pub fn rows_of(&self, features: &Features) -> Features {
        features.select(&self.nodes)
    }
}

fn places(nodes: &[u32], num_nodes: usize) -> Vec<Option<u32>> {
    let mut places = vec![None; num_nodes];
    nodes.iter().zip(0..).for_each(|(&node, place)| places[node as usize] = Some(place));
    places
}

impl Dataset {
    /// The nodes with `keep`, by global id, in their order, and the edges between them.
    ///
    /// # Panics
    /// Unless there is a flag for every node.
    pub fn subset(&self, keep: &[bool]) -> Subset {
        let nodes: Vec<u32> = (0..keep.len()).filter(|&node| keep[node]).map(|node| node as u32).collect();
        let places = places(&nodes, keep.len());
        let features = self.features.as_ref().map(|features| features.select(&nodes));
        let labels = self.labels.as_ref().map(|labels| {
            let kept = labels.entries.iter().filter_map(|&(node, label)| Some((places[node as usize]?, label)));
            Labels { entries: kept.collect() }
        });
        let ids = self.ids.as_ref().map(|ids| {
            let mut flags = keep.iter();
            let kept = |names: &Vec<String>| {
                let kept = names.iter().zip(flags.by_ref()).filter(|(_, keep)| **keep).map(|(name, _)| name.clone());
                kept.collect()
            };
            IdMaps(ids.0.iter().map(kept).collect())
        });
        fn of<T: Copy>(nodes: &[u32], values: &[T]) -> Vec<T> {
            nodes.iter().map(|&node| values[node as usize]).collect()
        }
        let events = self.events.as_ref().map(|events| Events {
            time: of(&nodes, &events.time),
            known: of(&nodes, &events.known),
            amount: events.amount.as_ref().map(|amount| of(&nodes, amount)),
            value: events.value.as_ref().map(|value| of(&nodes, value)),
            alert: events.alert.as_ref().map(|alert| {
                let entity = |entity: u32| places.get(entity as usize).copied().flatten().unwrap_or(Events::NO_NODE);
                of(&nodes, alert).into_iter().map(entity).collect()
            }),
        });
        let split = self.split.as_ref().map(|split| StoredSplit {
            rule: split.rule.clone(),
            windows: split.windows.iter().map(|parts| of(&nodes, parts)).collect(),
            window: split.window,
        });
        let parts = Dataset::new(self.graph.induced(keep), features, labels, ids);
        let (feature_names, ends) = (self.feature_names.clone(), self.ends.clone());
        Subset { dataset: Dataset { feature_names, ends, events, split, ..parts }, nodes }
    }

    /// What was known up to `time`, and not including it: the events before it, the entities that they lead to over
    /// edges (what they name, and what such an entity is joined to), and no others, so that nothing here depends on
    /// what comes later. Labels that were not known by then are left out. Without events that is everything.
    ///
    /// # Example
    /// ```
    /// use graphsieve::graph::{Adjacency, Dataset, Events, HeteroGraph, RelationSpec};
    /// // Two cards, three payments: the second card is used at time 30 alone.
    /// let used = Adjacency::from_edges(3, 2, &[(0, 0), (1, 0), (2, 1)]);
    /// let used = RelationSpec::new("used", 0, 1, used);
    /// let graph = HeteroGraph::new(vec![("card".into(), 2), ("payment".into(), 3)], vec![used])?;
    /// let no_time = Events::NO_TIME;
    /// let time = vec![no_time, no_time, 10, 20, 30];
    /// let events = Some(Events { known: vec![Events::NEVER; 5], time, amount: None, value: None, alert: None });
    /// let data = Dataset { events, ..Dataset::new(graph, None, None, None) };
    /// assert_eq!(data.known_until(30).nodes, [0, 2, 3]);
    /// # Ok::<(), graphsieve::error::Error>(())
    /// ```
    pub fn known_until(&self, time: i64) -> Subset {
        let mut subset = self.subset(&self.seen_until(time));
        if let (Some(events), Some(labels)) = (&self.events, &mut subset.dataset.labels) {
            labels.entries.retain(|&(node, _)| events.known[subset.nodes[node as usize] as usize] < time);
        }
        subset
    }

    /// By global id: whether a node is in [`known_until`](Self::known_until).
    pub(super) fn seen_until(&self, time: i64) -> Vec<bool> {
        let nodes = self.graph.num_nodes();
        let Some(events) = &self.events else { return vec![true; nodes] };
        let is_entity = |node: usize| events.time[node] == Events::NO_TIME;
        let mut keep: Vec<bool> = (0..nodes).map(|node| !is_entity(node) && events.time[node] < time).collect();
        let types = self.graph.node_types();
        let has_entities: Vec<bool> = types.iter().map(|t| (t.offset..t.offset + t.count).any(is_entity)).collect();
        let mut reached: Vec<usize> = (0..nodes).filter(|&node| keep[node]).collect();
        while let Some(node) = reached.pop() {
            let t = self.graph.type_of(node);
            for relation in self.graph.relations() {
                let ends =
                    [(relation.dst, relation.src, &relation.forward), (relation.src, relation.dst, &relation.reverse)];
                // Rows of events among events are long and lead to no entity.
                for (_, other, adjacency) in ends.into_iter().filter(|&(own, other, _)| own == t && has_entities[other])
                {
                    let first = types[other].offset;
                    for &neighbour in adjacency.row(node - types[t].offset) {
                        let neighbour = first + neighbour as usize;
                        if is_entity(neighbour) && !keep[neighbour] {
                            keep[neighbour] = true;
                            reached.push(neighbour);
                        }
                    }
                }
            }
        }
        keep
    }

    /// What a training may see of data that are split by time: [`known_until`](Self::known_until) the end of
    /// validation. `None` for data that are divided otherwise.
    pub fn training_part(&self) -> Option<Subset> {
        let times = self.split.as_ref()?.times()?;
        self.events.as_ref()?;
        Some(self.known_until(times.known_until()))
    }
}
