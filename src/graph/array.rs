//! Values in memory or in a mapped file.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// Values of a piece.
const PIECE: usize = 1 << 24;

/// Values in memory, or in a file that is read where they are asked for; copies share the file.
#[derive(Clone)]
pub struct Array<T: Pod>(Storage<T>);

#[derive(Clone)]
enum Storage<T> {
    Owned(Vec<T>),
    Mapped(Arc<Mmap>),
}

impl<T: Pod> Array<T> {
    /// The values of a file of raw ones.
    ///
    /// # Panics
    /// Unless the file holds whole values.
    pub(crate) fn mapped(map: Mmap) -> Self {
        assert!(map.len().is_multiple_of(size_of::<T>()), "Array: expected whole values, got {} bytes", map.len());
        Self(Storage::Mapped(Arc::new(map)))
    }

    /// Whether the values lie in a file.
    #[cfg(test)]
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.0, Storage::Mapped(_))
    }

    /// One piece after another. What lies in a file takes the memory of one piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[T]> {
        self.chunks(PIECE).inspect(|_| self.let_go())
    }

    /// Gives back the memory of what was read of a file; it is read again when it is asked for.
    pub(crate) fn let_go(&self) {
        if let Storage::Mapped(map) = &self.0 {
            let_go(map);
        }
    }
}

/// Gives back the memory of what was read of a file that is mapped read-only; it is read again when it is asked for.
pub(super) fn let_go(map: &Mmap) {
    #[cfg(unix)]
    {
        // SAFETY: the map is read-only and of a file, from which its parts are read again.
        let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }
    #[cfg(not(unix))]
    let _ = map;
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Owned(values) => values,
            // A map starts at a page, so that its values are aligned.
            Storage::Mapped(map) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Pod> From<Vec<T>> for Array<T> {
    fn from(values: Vec<T>) -> Self {
        Self(Storage::Owned(values))
    }
}

impl<T: Pod> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Vec::from_iter(values).into()
    }
}

impl<T: Pod + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + Eq> Eq for Array<T> {}

impl<T: Pod + fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
