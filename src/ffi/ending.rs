//! What a thread keeps of ccl also in handlers of atexit and in destructors of its C++ objects, which run after those of Rust.

use super::{later, text};
use std::{cell::RefCell, mem::ManuallyDrop, thread::LocalKey};

/// Something of that kind: without a destructor, so that it is there as long as the thread.
pub(super) type OfThread<T> = LocalKey<ManuallyDrop<RefCell<T>>>;

/// One of these, at its beginning.
pub(super) const fn at_first<T>(value: T) -> ManuallyDrop<RefCell<T>> {
    ManuallyDrop::new(RefCell::new(value))
}

thread_local! {
    static ENDING: Ending = const { Ending };
}

/// Drops when the thread ends what it has kept by then; what it keeps later is lost with it.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        later::forget();
        text::forget();
    }
}

/// This thread keeps something that is to be dropped when it ends.
pub(super) fn heed() {
    let _ = ENDING.try_with(|_| ());
}
