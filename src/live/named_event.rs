//! Events with what they name.

use super::derived::EventAt;
use super::view::{Place, View};

/// An event with what it names.
pub(super) struct NamedEvent {
    node_type: usize,
    local: u32,
    time: i64,
    value: Option<f32>,
    label: Option<(u8, i64)>,
    entities: Vec<(usize, u32)>,
}

impl NamedEvent {
    pub fn of(view: View, node_type: usize, local: u32) -> Self {
        let value = match view.place(node_type, local) {
            Place::Appended(nodes, at) => nodes.value[at],
            Place::Base(global) => {
                let events = view.base().dataset.events.as_ref();
                events.and_then(|events| events.values()).map_or(f32::NAN, |values| values[global])
            }
        };
        let entity = |relation: usize| Some((relation, view.entity(relation, local)?));
        Self {
            node_type,
            local,
            time: view.time(node_type, local),
            value: Some(value).filter(|value| !value.is_nan()),
            label: view.label(node_type, local),
            entities: view.base().entity_relations(node_type).filter_map(entity).collect(),
        }
    }

    pub fn at(&self) -> EventAt<'_> {
        let Self { node_type, local, time, value, label, .. } = *self;
        EventAt { node_type, local, time, value, label, entities: &self.entities }
    }
}
