//! Panics of other crates' readers on damaged files, as errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread becomes an error: then a hook has nothing to say of it.
pub fn is_caught() -> bool {
    CAUGHT.get()
}

/// What `read` makes of a file; where it panics, the message. Some crates end so on a damaged one. What `read` changes
/// must not be used after that.
pub(crate) fn caught<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    let before = CAUGHT.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(read));
    CAUGHT.set(before);
    outcome.map_err(|panic| panic_text(&*panic).unwrap_or("its reader failed").to_owned())
}

/// The message of a panic, where it has one.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_message_and_the_next_one_is_not_caught_in_silence() {
        assert_eq!(caught(|| (is_caught(), 7)), Ok((true, 7)));
        assert_eq!(caught(|| panic!("a damaged page")), Err::<(), _>("a damaged page".into()));
        assert_eq!(caught(|| panic!("page {}", 7)), Err::<(), _>("page 7".into()));
        assert!(!is_caught());
    }
}
