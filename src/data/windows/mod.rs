//! Windowed features of events: what was known of the entities of an event when it happened.
//!
//! An event (a payment) has a time, may have a value (its amount) and names entities (its customer, its terminal). For
//! every entity that it names, [`compute`] looks at the earlier events of that entity:
//!
//! | column | what |
//! |---|---|
//! | `customer_7d_count` | events within the window |
//! | `customer_7d_sum`, `_mean`, `_deviation`, `_largest` | of their values; the deviation is that of a sample |
//! | `customer_7d_distinct_terminal` | different terminals among them |
//! | `customer_7d_over_mean` | this value over their mean |
//! | `customer_7d_z` | this value less their mean, over their deviation |
//! | `customer_7d_known_frauds`, `_fraud_share` | of events whose label was known: how many are 1, their share |
//! | `customer_last_5_fraud_share` | share of the last 5 labels that became known a delay or more after their event |
//! | `customer_last_fraud_days` | days since the last known fraud |
//! | `customer_30d_first_fraud_days` | days since the first known fraud in the longest window |
//! | `customer_last_known_days` | days since the last event whose label was known |
//! | `customer_last_5_mean` | mean of the last 5 values, or as many as there were; likewise other measures |
//! | `customer_last_5_days` | days since the 5th last event |
//! | `customer_so_far_count`, `_over_mean` | events so far, this value over their mean |
//! | `customer_difference` | this value less the last one |
//! | `customer_same_value` | how often this very value occurred before |
//! | `terminal_3d_other_customer_z` | mean of `customer_30d_z` over events of other customers at this terminal |
//! | `terminal_3d_other_customer_over_mean` | the same of `customer_30d_over_mean` |
//! | `terminal_3d_other_customer_count` | how many such events |
//! | `terminal_3d_other_customer_sum`, `_mean`, `_deviation`, `_largest` | of their values |
//! | `terminal_3d_other_customer_distinct` | different other customers |
//! | `terminal_3d_other_customer_fraud_share` | share of frauds among their labels that were known |
//!
//! [`WindowConfig`] says which of them there are; by default not the measures of the last events beside the mean, and
//! of others those of the first line alone, and not the last known label.
//!
//! # What an event sees
//! - Events of strictly smaller time alone. Those of the same second do not see each other.
//! - A window of span `s` at time `t` holds the times in `[t - s, t)`.
//! - Labels with a delay: events with a time in `[t - delay - s, t - delay)` whose label was known before `t`. The
//!   window ends a delay before the event, in training as in use, so that a column means the same in both.
//! - Labels without one: those that became known in `[t - s, t)`, each exactly then, no label before its event. Where
//!   each becomes known a delay after its event, that is the same. A label that becomes known later changes no row of
//!   before, and a training row sees as much of its past as a test row.
//! - Others' events: those that name another counterpart than this event. One that names none is nobody's.
//!
//! So a row never changes with anything that is later, unless it looks ahead: not a bit of it. Sums are exact to about
//! 32 digits, and windows in which all values are equal have a deviation of exactly 0.
//!
//! [`WindowConfig::ahead`] turns time round: `customer_ahead_7d_count` is of later events, in `(t, t + s]`. Labels that
//! are ever known count whenever that was. Days are those until an event. Of events of one second the one that comes
//! last in the table counts as the nearest, as without it.
//!
//! # What is not known
//! is NaN: everything about an entity that the event does not name, a mean without values, a deviation of fewer than
//! two values, a ratio to a mean of 0, a z-score where the deviation is 0, a share where no label was known. Counts of
//! what did not happen are 0. A value that is not finite is missing: its event counts, its value does not.
//!
//! # Example
//! ```
//! use graphsieve::data::windows::{Entity, EventColumns, WindowConfig, compute};
//! let day = 86_400;
//! let events = EventColumns {
//!     times: &[0, day, 2 * day],
//!     values: Some(&[10.0, 30.0, 60.0]),
//!     labels: None,
//!     entities: vec![Entity { name: "customer", of_event: &[0, 0, 0], count: 1 }],
//! };
//! let table = compute(&events, &WindowConfig { spans: vec![7 * day], ..Default::default() }, &|_, _| {});
//! let column = table.names.iter().position(|name| name == "customer_7d_over_mean").unwrap();
//! let over_mean: Vec<f32> = table.values.chunks(table.width).map(|row| row[column]).collect();
//! assert!(over_mean[0].is_nan());
//! assert_eq!(over_mean[1..], [3.0, 3.0]);
//! ```

mod columns;
mod compute;
mod events;
mod groups;
mod history;
mod known;
mod others;
mod own;
mod running;
mod sliding;
mod suited;
mod sums;
#[cfg(test)]
mod tests;

pub use columns::column_names;
pub use compute::{WindowTable, compute};
pub use events::{Entity, EventColumns, KnownLabels, Measure, OtherMeasure, WindowConfig};
pub(crate) use running::{Fact, Guest, Running};
