//! The report of a run: one HTML file that needs no network, no server and no script.
//!
//! [`of_run`] computes everything that a report says ([`ReportData`], plain data), [`render`] arranges it. Every text
//! goes through the escaping of `maud`; only charts and drawings, which escape their texts themselves, are put in as
//! they are. The page forbids itself every request (a content security policy), and no script but its own, known by its
//! hash, may run.

mod anomalies;
mod class_facts;
mod classes;
mod data;
mod evaluation;
mod explained;
mod figures;
mod gather;
mod held_out;
mod listed;
mod numbers;
mod page;
mod parts;
mod provenance;
mod question;
mod run;
mod tournament;
mod warnings;

pub use data::*;
pub use explained::explained;
pub use gather::gather;
pub use page::render;
pub use parts::{BaselineScores, Parts};
pub use run::of_run;

#[cfg(test)]
mod tests;
