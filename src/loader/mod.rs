//! Features of mini-batches, of which each row is moved once.

mod window;

pub use window::{Update, Window};

#[cfg(test)]
mod tests;
