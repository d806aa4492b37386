//! What can be trained: one file or folder per model.

pub mod attention;
mod attention_batches;
mod attention_divided;
pub mod attention_loss;
pub mod auto_encoder;
mod auto_encoder_batches;
pub mod class_loss;
pub mod classifier;
