//! Ways that small graphs and most devices do not take, taken on request.

use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    static WIDE_POSITIONS: Cell<bool> = const { Cell::new(false) };
    static NARROW_ADDITIONS: Cell<bool> = const { Cell::new(false) };
    static TILED_PRODUCTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`. Positions of entries that it uploads from its own thread (row pointers, edges of entries) take 64 bits,
/// as those of 2^31 entries do, which no test has the memory for.
pub fn with_wide_positions<T>(body: impl FnOnce() -> T) -> T {
    with(&WIDE_POSITIONS, body)
}

/// Runs `body`. Histograms that its own thread asks for are added up in words of 32 bits, as on devices that do not add
/// to 64-bit integers in memory. Kernels only: the CPU has one way.
pub fn with_narrow_additions<T>(body: impl FnOnce() -> T) -> T {
    with(&NARROW_ADDITIONS, body)
}

/// Runs `body`. Products without tensor cores that its own thread asks for are made of tiles in registers, as on
/// devices with planes of 32 lanes and more. Kernels only: the CPU has one way.
pub fn with_tiled_products<T>(body: impl FnOnce() -> T) -> T {
    with(&TILED_PRODUCTS, body)
}

/// Whether [`with_wide_positions`] is on the stack.
pub(crate) fn wants_wide_positions() -> bool {
    WIDE_POSITIONS.get()
}

/// Whether [`with_narrow_additions`] is on the stack.
#[cfg(feature = "cube")]
pub(crate) fn wants_narrow_additions() -> bool {
    NARROW_ADDITIONS.get()
}

/// Whether [`with_tiled_products`] is on the stack.
#[cfg(feature = "cube")]
pub(crate) fn wants_tiled_products() -> bool {
    TILED_PRODUCTS.get()
}

fn with<T>(switch: &'static LocalKey<Cell<bool>>, body: impl FnOnce() -> T) -> T {
    /// Puts the switch back, also where `body` panics.
    struct Reset(&'static LocalKey<Cell<bool>>, bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _reset = Reset(switch, switch.replace(true));
    body()
}
