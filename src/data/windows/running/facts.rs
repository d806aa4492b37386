//! Events by number.

/// What windows know of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fact {
    pub time: i64,
    /// NaN where it is missing.
    pub value: f32,
    /// 1 for fraud, 0 for none.
    pub label: Option<u8>,
    /// When the label became known; `i64::MAX` for never.
    pub known: i64,
}

impl Fact {
    /// Of an event that there is not.
    pub(super) const NONE: Self = Self { time: i64::MIN, value: f32::NAN, label: None, known: i64::MAX };

    /// With a value that is finite and no negative zero, or missing.
    pub(super) fn checked(self) -> Self {
        Self { value: if self.value.is_finite() { self.value + 0.0 } else { f32::NAN }, ..self }
    }
}

/// Events by number.
pub(super) trait Facts: Sync {
    fn fact(&self, event: u32) -> Fact;

    /// The entity of a type that an event names; `u32::MAX` for none.
    fn id(&self, entity: usize, event: u32) -> u32;

    /// How unusual an event was for its entity of a type: z-score and ratio.
    fn unusual(&self, entity: usize, event: u32) -> [f32; 2];

    fn set_unusual(&mut self, entity: usize, event: u32, unusual: [f32; 2]);
}

/// An event that one question knows of: its number, which no other has, what is known of it, and the entities that it
/// names, by type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest<'a> {
    pub event: u32,
    pub fact: Fact,
    pub ids: &'a [u32],
}

/// All events.
#[derive(Default)]
pub(super) struct AllFacts {
    pub(super) facts: Vec<Fact>,
    pub(super) entities: usize,
    /// Event by event, by entity type.
    pub(super) ids: Vec<u32>,
    /// Likewise; empty where nobody asks.
    pub(super) unusual: Vec<[f32; 2]>,
}

impl Facts for AllFacts {
    fn fact(&self, event: u32) -> Fact {
        self.facts[event as usize]
    }

    fn id(&self, entity: usize, event: u32) -> u32 {
        self.ids[event as usize * self.entities + entity]
    }

    fn unusual(&self, entity: usize, event: u32) -> [f32; 2] {
        self.unusual.get(event as usize * self.entities + entity).copied().unwrap_or([f32::NAN; 2])
    }

    fn set_unusual(&mut self, entity: usize, event: u32, unusual: [f32; 2]) {
        if let Some(place) = self.unusual.get_mut(event as usize * self.entities + entity) {
            *place = unusual;
        }
    }
}
