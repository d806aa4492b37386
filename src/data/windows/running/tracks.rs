//! The events of entities, and what is computed of them.

use super::super::columns::Layout;
use super::track::{Kind, Track};

/// The events of entities, by type and number.
pub(super) trait Tracks {
    /// `None` for an entity without events.
    fn track(&self, entity: usize, id: u32) -> Option<&Track>;

    /// An empty one where there is none yet.
    fn track_mut(&mut self, entity: usize, id: u32) -> &mut Track;
}

/// What is computed.
pub(super) struct Rules {
    pub(super) layout: Layout,
    /// Seconds after its event at which a label has its place.
    pub(super) delay: Option<i64>,
    /// Whether different counterparts are counted.
    pub(super) distinct: bool,
    /// The longest span, where it is asked how unusual events were.
    pub(super) unusual_over: Option<i64>,
}

impl Rules {
    pub(super) fn kind(&self, entity: usize) -> Kind<'_> {
        let Self { layout, distinct, .. } = self;
        let has_others = layout.entities.len() > 1;
        Kind { layout, entity, distinct: *distinct && has_others, one_hop: !layout.one_hop.is_empty() }
    }
}

/// By entity type.
pub(super) struct AllTracks(pub(super) Vec<Vec<Track>>);

impl Tracks for AllTracks {
    fn track(&self, entity: usize, id: u32) -> Option<&Track> {
        self.0[entity].get(id as usize)
    }

    fn track_mut(&mut self, entity: usize, id: u32) -> &mut Track {
        let tracks = &mut self.0[entity];
        if tracks.len() <= id as usize {
            tracks.resize_with(id as usize + 1, Track::default);
        }
        &mut tracks[id as usize]
    }
}
