//! Whether a training has the memory that it takes, said before it begins.

use graphsieve_kernels::MemoryBackend;

use super::Console;
use crate::backend::{Device, with_backend};
use crate::config::{LoaderMode, Precision, RunConfig};
use crate::error::{Error, Result};
use crate::memory;
use crate::plan::training_bytes;

/// A training that takes up to so many times the memory that is there goes on with a warning: paper is no measurement.
const PAPER: f64 = 1.25;

/// Memory that ranks of a training share, or that each of them has.
pub(super) struct Room {
    device: Device,
    ranks: usize,
    /// Bytes that are there: of the processor all that this process may take, of a CUDA device what is free on it.
    /// Vulkan tells of one buffer at most, not of all.
    bytes: Option<u64>,
}

impl Room {
    /// That of `ranks` from `device` on: each has a CUDA device of its own, others share the one that there is.
    pub fn of(device: Device, ranks: usize) -> Self {
        let bytes = if device == Device::Cpu {
            memory::of_machine()
        } else {
            with_backend!(device, |B, d| <B as MemoryBackend>::available_memory(&d))
        };
        Self { device, ranks, bytes }
    }

    /// Says what the training of a network takes, and refuses one that is far beyond what is there. Where data or
    /// settings have no such plan, the training itself says what is wrong with them.
    ///
    /// # Errors
    /// [`Error::Data`].
    pub fn check(&self, config: &RunConfig, console: Console) -> Result<()> {
        let Ok(bytes) = self.needed(config, self.ranks) else { return Ok(()) };
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let (wanted, place) = (gigabytes(bytes), self.place());
        let each = if self.shares() { "" } else { " on each device" };
        let Some(there) = self.bytes.map(|bytes| bytes as f64) else {
            console
                .note(format_args!("memory: the training takes {wanted} on paper; {place} does not tell what it has"));
            return Ok(());
        };
        let found = gigabytes(there) + if self.device == Device::Cpu { "" } else { " free" };
        let said = format!("memory: the training takes {wanted}{each} on paper, {place} has {found}");
        if bytes <= there {
            console.note(said);
            return Ok(());
        }
        let help = self.smaller(config, bytes);
        if bytes <= PAPER * there {
            log::warn!("warning: {said} and may end it; {help}");
            return Ok(());
        }
        let expected = format!("{wanted}, what the training takes{each} on paper");
        Err(Error::Data { what: format!("memory of {place}"), expected, found, help })
    }

    /// Whether all ranks take their memory from one place.
    fn shares(&self) -> bool {
        self.ranks == 1 || self.device == Device::Cpu || self.bytes.is_none()
    }

    fn place(&self) -> String {
        if self.device == Device::Cpu { "this machine".into() } else { self.device.to_string() }
    }

    /// Bytes that so many ranks take of one place.
    fn needed(&self, config: &RunConfig, ranks: usize) -> Result<f64> {
        let of_rank = training_bytes(config, ranks, self.bytes, self.device == Device::Cpu)?;
        Ok(of_rank * if self.shares() { self.ranks as f64 } else { 1.0 })
    }

    /// What makes the training of a network smaller that takes so many bytes.
    fn smaller(&self, config: &RunConfig, bytes: f64) -> String {
        let (channels, loader, precision) = match config {
            RunConfig::Classify(of) => ("model.hidden", Some(&of.loader), of.train.precision),
            RunConfig::Stage1(of) => ("model.hidden, model.out", Some(&of.loader), of.train.precision),
            RunConfig::Stage2(of) => ("model.hidden, model.out", Some(&of.loader), of.train.precision),
            RunConfig::Stage3(_) | RunConfig::Pipeline(_) | RunConfig::Auto(_) => {
                ("model.hidden", None, Precision::F32)
            }
        };
        let rows = match loader.map(|loader| loader.mode) {
            Some(LoaderMode::Sampled) => "a smaller loader.batch_size",
            Some(LoaderMode::Full) if !matches!(config, RunConfig::Classify(_)) => {
                "loader.mode = \"sampled\" or train.chunk_size"
            }
            _ => "loader.mode = \"sampled\"",
        };
        let on_host = self.device == Device::Cpu;
        let half = if on_host || precision != Precision::F32 { "" } else { " or train.precision = \"f16\"" };
        let divides = || self.needed(config, 2 * self.ranks).is_ok_and(|of_more| of_more < 0.75 * bytes);
        let more = if on_host || self.bytes.is_none() || !divides() { "" } else { " or more --devices" };
        format!("set fewer channels ({channels}) or {rows}{half}{more}; graphsieve plan says what takes how much")
    }
}
