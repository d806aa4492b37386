//! graphsieve finds anomalous users, products and sellers in marketplace graphs, and nodes in any typed graph.
//!
//! Stage 1 ([`models::TripleStreamGae`]) learns embeddings without labels, Stage 2 ([`models::TripleStreamGat`]) turns
//! a few labels into a score for every node, Stage 3 ([`trees`]) stacks trees on both. Models are Burn modules on the
//! sparse operators of [`graphsieve_kernels`], which run on CPUs, CUDA and Vulkan devices with the same code for
//! training and inference.
//!
//! | module | what is in it |
//! |---|---|
//! | [`graph`] | typed graphs on the host and their files |
//! | [`data`] | raw tables to graphs, splits, the synthetic marketplace |
//! | [`features`] | neighbourhood features for models that see no graph |
//! | [`live`] | a graph that grows while it is read |
//! | [`loader`] | mini-batches on a device, of graphs that do not fit it |
//! | [`sampler`] | mini-batches by neighbour sampling |
//! | [`metrics`] | ranking metrics, thresholds, reports |
//! | [`config`] | typed TOML |
//! | [`nn`] | graph layers as Burn modules |
//! | [`models`] | the two models, graphs on the device, checkpoint files |
//! | [`run`] | run directories, progress, interruption, splits, evaluation |
//! | [`infer`] | a model over a graph: whole, or layer by layer |
//! | [`score`] | lists of the highest scores, explanations |
//! | `serve` | scores of a live graph over HTTP, with the feature of that name |
//! | [`report`] | the HTML report of a run |
//! | [`train`] | the trainer and its tasks |
//! | [`trees`] | histogram trees on plain arrays: booster and forest |
//! | [`mod@bench`] | measurements against the memory bandwidth and against f64 |
//! | [`plan`] | what a training takes on several devices, on paper |
//! | [`backend`] | the device, chosen at run time |
//! | [`cli`] | the commands |

pub mod backend;
pub mod bench;
mod chart;
pub mod cli;
pub mod config;
pub mod data;
pub mod error;
pub mod features;
pub mod graph;
pub mod infer;
pub mod live;
pub mod loader;
mod memory;
pub mod metrics;
pub mod models;
pub mod nn;
pub mod plan;
pub mod report;
pub mod run;
pub mod sampler;
pub mod score;
#[cfg(feature = "serve")]
pub mod serve;
mod splitmix;
mod timing;
pub mod train;
pub mod trees;

pub use error::{Error, Result};
