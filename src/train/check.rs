//! What is found out while the data of a training are read.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;

/// What a command wants to know of the device beside the reading of data, such as whether it has the memory.
#[derive(Clone, Default)]
pub struct Check(Option<Arc<dyn Fn() -> Result<()> + Send + Sync>>);

impl Check {
    /// Done by a training that reads its data itself, when it reads them.
    pub fn new(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// Does it, where there is one.
    ///
    /// # Errors
    /// Its own.
    pub fn run(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |check| check())
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Check" } else { "no check" })
    }
}
