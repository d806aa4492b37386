//! Events by entity, in order of time.

use rayon::prelude::*;

use super::events::Entity;

/// The events of each entity of one type, those of an entity in order of time, then of their place in the table.
pub(super) struct Groups {
    /// Events of entity `e` are `events[starts[e]..starts[e + 1]]`.
    starts: Vec<usize>,
    events: Vec<u32>,
}

impl Groups {
    /// `order` is [`by_time`], or some of it in the same order.
    pub(super) fn new(order: &[u32], entity: &Entity) -> Self {
        let mut starts = vec![0; entity.count + 1];
        let ids = order.iter().map(|&event| entity.of_event[event as usize]);
        ids.filter(|&id| id != u32::MAX).for_each(|id| starts[id as usize + 1] += 1);
        for id in 0..entity.count {
            starts[id + 1] += starts[id];
        }
        let mut next = starts.clone();
        let mut events = vec![0; starts[entity.count]];
        for &event in order {
            let id = entity.of_event[event as usize];
            if id != u32::MAX {
                events[next[id as usize]] = event;
                next[id as usize] += 1;
            }
        }
        Self { starts, events }
    }

    /// The events of an entity.
    pub(super) fn of(&self, id: usize) -> &[u32] {
        &self.events[self.starts[id]..self.starts[id + 1]]
    }

    pub(super) fn num_events(&self) -> usize {
        self.events.len()
    }

    /// The events of each entity that has some, entities of about `size` events together.
    pub(super) fn parts(&self, size: usize) -> Vec<Vec<&[u32]>> {
        let (mut parts, mut part, mut held) = (Vec::new(), Vec::new(), 0);
        for bounds in self.starts.windows(2).filter(|bounds| bounds[0] < bounds[1]) {
            part.push(&self.events[bounds[0]..bounds[1]]);
            held += bounds[1] - bounds[0];
            if held >= size {
                parts.push(std::mem::take(&mut part));
                held = 0;
            }
        }
        if !part.is_empty() {
            parts.push(part);
        }
        parts
    }
}

/// All events in order of time, then of their place in the table.
pub(super) fn by_time(times: &[i64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..times.len() as u32).collect();
    if !times.is_sorted() {
        order.par_sort_unstable_by_key(|&event| (times[event as usize], event));
    }
    order
}
