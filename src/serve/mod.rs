//! `graphsieve serve`: scores of a live graph over HTTP.
//!
//! | file | holds |
//! |---|---|
//! | `server.rs` | a server from its start to its end |
//! | `options.rs` | what it is told |
//! | `http/` | routes, bodies, connections |
//! | `refusal.rs` | the one form of errors, and their statuses |
//! | `auth.rs`, `tls.rs` | who may ask |
//! | `batcher.rs` | requests that wait, and threads that take several of them at a time |
//! | `engine.rs` | what HTTP asks for and gets |
//! | `background.rs` | work that goes on beside requests |
//! | `log/`, `state.rs` | what was accepted, on the disk, and the base that it follows |
//! | `drift.rs`, `labels.rs`, `recent.rs` | what is served beside the training, late labels, ranks |
//! | `notify.rs`, `deploy/` | systemd, containers |
//! | `metrics.rs`, `openapi.rs`, `page.rs` | what the server says of itself, and a page to look a node up |

mod auth;
mod background;
mod batcher;
pub mod drift;
pub mod engine;
mod http;
pub mod labels;
pub mod log;
mod metrics;
pub mod notify;
mod openapi;
mod options;
mod page;
pub mod recent;
mod refusal;
mod server;
mod service;
#[cfg(test)]
mod stand_in;
pub mod state;
#[cfg(test)]
mod tests;
mod tls;

pub use options::{Limits, Options};
pub use refusal::Refusal;
pub use server::Server;
pub use service::open;
pub use tls::TlsFiles;
