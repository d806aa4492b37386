//! What the program says and does, and the public interface on the CPU.

#[path = "../support/mod.rs"]
mod support;

mod ages;
mod auto;
mod auto_bench;
mod bench;
mod bundle;
mod causal;
mod classes;
mod commands;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod crash;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod damaged;
mod deploy;
mod edge_values;
mod edge_weights;
mod events;
mod explain;
mod explain_classes;
mod figures;
mod first_contact;
#[cfg(target_os = "linux")]
mod full_disk;
mod fuzz;
mod golden;
mod harness;
mod hosts;
mod import;
mod import_files;
mod import_parts;
mod known_labels;
mod layers;
mod leaks;
mod log;
mod metamorphic;
mod missing_values;
mod models_in_turn;
mod overflow;
mod own_columns;
mod plan;
mod ranks;
mod rare_classes;
mod refit;
mod restarts;
mod score;
mod scored_edges;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod served_log;
#[cfg(feature = "serve")]
mod served_parts;
mod stage3;
mod tables;
mod training;
mod trees;
mod trees_on_graphs;
mod trust;
mod walkthrough;
mod windows;
mod windows_at_random;
