//! What is generic in the backend: one body, one named test per backend of the build.

#[macro_use]
mod backends;
#[path = "../support/made.rs"]
mod made;
#[path = "../support/mod.rs"]
mod support;

mod classify;
mod golden_models;
mod loader;
mod nn;
mod reachable;
mod steady;
mod training;
mod trees;
