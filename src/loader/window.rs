//! One buffer of feature rows that follows the nodes of the batches.
//!
//! A batch keeps the rows of nodes that the batch before had, too, and only the others are fetched. What is here
//! decides which row goes where; moving the bytes is somebody else's work.

use crate::error::{Error, Result};

/// Where the rows of a batch come from and go to.
///
/// The buffer holds the row of `slot_to_node[s]` at slot `s` for every slot below the number of nodes, once the moves
/// and then the copies and fetches have been carried out. No slot is read by one move and written by another, and none
/// is written twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Rows inside the buffer, from slot to slot: nodes of both batches that stand where the shorter buffer ends.
    pub moves: Vec<(u32, u32)>,
    /// Rows of the hot cache and the slots that they are copied to.
    pub copies: Vec<(u32, u32)>,
    /// Nodes and the slots that their rows are fetched to.
    pub fetches: Vec<(u32, u32)>,
    /// Nodes that were there before and stay.
    pub shared: usize,
    /// Slots that the buffer must have.
    pub capacity: usize,
}

/// Which node each slot of the buffer holds.
///
/// # Example
/// ```
/// use graphsieve::loader::Window;
/// let mut window = Window::new(10);
/// assert_eq!(window.advance(&[4, 5, 6])?.fetches.len(), 3);
/// // Node 6 stands in slot 2, which a buffer of one row does not have: it moves.
/// let update = window.advance(&[6])?;
/// assert_eq!((update.moves, update.fetches.len()), (vec![(2, 0)], 0));
/// assert_eq!(window.slot_to_node(), [6]);
/// # Ok::<(), graphsieve::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    /// `[node]`: the number of the batch that the node was last in, above its slot there.
    places: Vec<u64>,
    /// `[node]`: its row in the hot cache, or [`COLD`]; empty without a cache.
    hot: Vec<u32>,
    batch: u32,
    slot_to_node: Vec<u32>,
    slots: Vec<u32>,
    capacity: usize,
    /// Batches in a row that would have fitted in a quarter of the buffer, and the largest of them.
    small: (usize, usize),
}

/// So many loads are under way before the first is waited for.
const AHEAD: usize = 32;

/// In place of a row of the hot cache.
const COLD: u32 = u32::MAX;

/// The buffer gives memory back after so many batches that fill less than a quarter of it.
const PATIENCE: usize = 16;

impl Window {
    /// A buffer without a row, for nodes below `num_nodes`.
    pub fn new(num_nodes: usize) -> Self {
        Window {
            places: vec![0; num_nodes],
            hot: Vec::new(),
            batch: 0,
            slot_to_node: Vec::new(),
            slots: Vec::new(),
            capacity: 0,
            small: (0, 0),
        }
    }

    /// With a cache that holds the rows of the nodes `hot` for good, in that order.
    ///
    /// # Errors
    /// [`Error::Data`] for a node that does not exist or is there twice.
    pub fn with_hot(mut self, hot: &[u32]) -> Result<Self> {
        let mut rows = vec![COLD; self.places.len()];
        for (&node, row) in hot.iter().zip(0..) {
            let found = || node.to_string();
            match rows.get_mut(node as usize) {
                None => return Err(refuse("hot nodes", format!("nodes below {}", self.places.len()), found())),
                Some(known) if *known != COLD => {
                    return Err(refuse("hot nodes", "distinct nodes".into(), format!("{node} twice")));
                }
                Some(known) => *known = row,
            }
        }
        self.hot = rows;
        Ok(self)
    }

    /// The node of every slot of the batch.
    pub fn slot_to_node(&self) -> &[u32] {
        &self.slot_to_node
    }

    /// The slot of a node of the batch.
    pub fn slot_of(&self, node: u32) -> Option<u32> {
        let place = *self.places.get(node as usize)?;
        (self.batch > 0 && (place >> 32) as u32 == self.batch).then_some(place as u32)
    }

    /// The slot of every node of the batch, in its order.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Goes on to a batch of distinct `nodes`.
    ///
    /// # Errors
    /// [`Error::Data`] for a node that does not exist or is there twice; the window is as it was.
    pub fn advance(&mut self, nodes: &[u32]) -> Result<Update> {
        const WHAT: &str = "nodes of a batch";
        if let Some(&node) = nodes.iter().find(|&&node| node as usize >= self.places.len()) {
            return Err(refuse(WHAT, format!("nodes below {}", self.places.len()), node.to_string()));
        }
        if self.batch == u32::MAX {
            self.forget();
        }
        let (before, now) = (self.batch, self.batch + 1);
        let (old, new) = (self.slot_to_node.len(), nodes.len());
        // The nodes of both batches, and the others, each with its place in this one.
        let mut taken = vec![false; old.max(new)];
        let (mut shared_tail, mut fetched) = (Vec::new(), Vec::new());
        let mut slot_at = vec![0u32; new];
        for (start, chunk) in (0..).step_by(AHEAD).zip(nodes.chunks(AHEAD)) {
            // The table is far larger than a cache, and the loop below may stop at every node.
            let touched = chunk.iter().fold(0, |touched, &node| touched ^ self.places[node as usize]);
            std::hint::black_box(touched);
            for (at, &node) in (start..).zip(chunk) {
                let place = self.places[node as usize];
                let batch = (place >> 32) as u32;
                if batch == now {
                    // Back to what the places were: those of the batch before, and none for the rest.
                    nodes[..at].iter().for_each(|&node| self.places[node as usize] = 0);
                    self.slot_to_node.iter().zip(0u64..).for_each(|(&node, slot)| {
                        self.places[node as usize] = u64::from(before) << 32 | slot;
                    });
                    return Err(refuse(WHAT, "distinct nodes".into(), format!("{node} twice")));
                }
                let slot = place as u32;
                if before == 0 || batch != before {
                    fetched.push(at);
                } else if (slot as usize) < new {
                    taken[slot as usize] = true;
                    slot_at[at] = slot;
                } else {
                    shared_tail.push((slot, at));
                }
                // The slot of a node that stays is known already; the others get theirs below.
                self.places[node as usize] = u64::from(now) << 32 | u64::from(slot);
            }
        }
        // There are as many free slots below `new` as nodes that need one.
        let mut free = (0..new as u32).filter(|&slot| !taken[slot as usize]);
        let mut update = Update { shared: new - fetched.len(), ..Update::default() };
        // Slots in ascending order, so that neighbouring rows are written one after the other.
        shared_tail.sort_unstable();
        for ((from, at), to) in shared_tail.into_iter().zip(free.by_ref()) {
            update.moves.push((from, to));
            slot_at[at] = to;
            self.places[nodes[at] as usize] = u64::from(now) << 32 | u64::from(to);
        }
        for (at, to) in fetched.into_iter().zip(free) {
            let node = nodes[at];
            match self.hot.get(node as usize) {
                Some(&row) if row != COLD => update.copies.push((row, to)),
                _ => update.fetches.push((node, to)),
            }
            slot_at[at] = to;
            self.places[node as usize] = u64::from(now) << 32 | u64::from(to);
        }
        let mut slots = vec![0; new];
        slot_at.iter().zip(nodes).for_each(|(&slot, &node)| slots[slot as usize] = node);
        self.slots = slot_at;
        (self.batch, self.slot_to_node) = (now, slots);
        self.capacity = self.resized(new);
        update.capacity = self.capacity;
        Ok(update)
    }

    /// Forgets all rows: the next batch is fetched as a whole.
    pub fn forget(&mut self) {
        self.slot_to_node.clear();
        self.slots.clear();
        if self.batch < u32::MAX - 1 {
            // No node was in a batch of that number.
            self.batch += 1;
        } else {
            self.places.fill(0);
            self.batch = 0;
        }
    }

    /// Grows by doubling; shrinks only after a while, so that a buffer between two sizes is not made anew all the time.
    fn resized(&mut self, rows: usize) -> usize {
        if rows > self.capacity {
            self.small = (0, 0);
            return rows.max(2 * self.capacity);
        }
        if rows * 4 >= self.capacity {
            self.small = (0, 0);
            return self.capacity;
        }
        self.small = (self.small.0 + 1, self.small.1.max(rows));
        if self.small.0 < PATIENCE {
            return self.capacity;
        }
        let most = std::mem::take(&mut self.small).1;
        most.max(1)
    }
}

fn refuse(what: &str, expected: String, found: String) -> Error {
    let help = "list every node once, by its number".into();
    Error::Data { what: what.into(), expected, found, help }
}
