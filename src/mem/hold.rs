//! [`Hold`]: memory that an operation keeps usable for as long as it needs it.
//!
//! A call that blocks borrows its buffers. One that goes on after it has returned cannot: it holds memory that its caller
//! promised to leave alone ([`Hold::raw`], from C), that was moved into it ([`Owned`]), or that was lent by somebody who
//! stays until all is given back ([`scope`]).

use super::Region;
use crate::types::Element;
use std::{
    any::Any,
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process,
    sync::Arc,
};

/// A region, and what keeps it usable.
#[derive(Clone)]
pub(crate) struct Hold {
    region: Region<'static>,
    keeper: Option<Arc<dyn Any + Send + Sync>>,
}

impl Hold {
    /// No memory at all.
    pub(crate) fn empty() -> Self {
        Hold::raw(Region::empty())
    }

    /// Memory for which whoever made the region answers.
    pub(crate) fn raw(region: Region<'static>) -> Self {
        Hold { region, keeper: None }
    }

    /// Memory that stays as long as `keeper`, for whose use while it is held whoever made the keeper answers.
    #[cfg(feature = "cuda")]
    pub(crate) fn kept(region: Region<'_>, keeper: Arc<dyn Any + Send + Sync>) -> Self {
        // SAFETY: the same bytes, which stay as long as the hold keeps the keeper.
        let region = unsafe { Region::from_raw(region.as_ptr(), region.len()) };
        Hold {
            region,
            keeper: Some(keeper),
        }
    }

    /// The region, for as long as the hold is there.
    pub(crate) fn region(&self) -> Region<'_> {
        self.region
    }

    /// A hold of the `len` bytes from `at` on.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub(crate) fn part(&self, at: usize, len: usize) -> Hold {
        Hold {
            region: self.region.part(at, len),
            keeper: self.keeper.clone(),
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)
    }
}

/// A vector that operations hold: it is given back when the last hold is gone.
pub(crate) struct Owned<T> {
    base: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns the elements as a `Vec<T>` does, and gives no reference to them while it is shared.
unsafe impl<T: Element> Send for Owned<T> {}
// SAFETY: as above; holds reach the elements through raw pointers only, and the executor orders their accesses.
unsafe impl<T: Element> Sync for Owned<T> {}

impl<T: Element> Owned<T> {
    pub(crate) fn new(vector: Vec<T>) -> Arc<Self> {
        let mut vector = ManuallyDrop::new(vector);
        Arc::new(Owned {
            base: vector.as_mut_ptr(),
            len: vector.len(),
            capacity: vector.capacity(),
        })
    }

    /// A hold of all its elements.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        let bytes = self.len * size_of::<T>();
        // SAFETY: the vector's memory stays where it is for as long as the keeper lives, which the hold has a share in; no
        // reference to the elements is made meanwhile. Elements are plain bytes.
        let region = unsafe { Region::from_raw(self.base.cast(), bytes) };
        Hold {
            region,
            keeper: Some(self.clone()),
        }
    }

    /// The vector again, if nobody else holds it.
    pub(crate) fn into_vec(self: Arc<Self>) -> Option<Vec<T>> {
        let owned = ManuallyDrop::new(Arc::into_inner(self)?);
        // SAFETY: these are the parts of the vector that `new` took apart; nobody else has them any more.
        Some(unsafe { Vec::from_raw_parts(owned.base, owned.len, owned.capacity) })
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: as in `into_vec`, which does not drop what it took apart.
        drop(unsafe { Vec::from_raw_parts(self.base, self.len, self.capacity) });
    }
}

/// Lends memory that lives for `'env` to operations.
pub(crate) struct Lender<'env> {
    token: Arc<()>,
    /// Invariant: what is lent must live for all of `'env`, not for some shorter time.
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Lender<'env> {
    /// A hold of `region`. It must be gone when the scope of the lender ends.
    pub(crate) fn lend(&self, region: Region<'env>) -> Hold {
        // SAFETY: the same bytes; `scope` does not return, and so `'env` does not end, before all holds are gone.
        let region = unsafe { Region::from_raw(region.as_ptr(), region.len()) };
        Hold {
            region,
            keeper: Some(self.token.clone()),
        }
    }
}

/// Runs `body` with a lender and then, even if it panics, `settle`, by which all holds must be given back: memory that is
/// still held would be used after its borrow, so that then the process ends.
pub(crate) fn scope<'env, R>(body: impl FnOnce(&Lender<'env>) -> R, settle: impl FnOnce()) -> R {
    let lender = Lender {
        token: Arc::new(()),
        env: PhantomData,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&lender)));
    let settled = catch_unwind(AssertUnwindSafe(settle));
    if settled.is_err() || Arc::strong_count(&lender.token) != 1 {
        process::abort();
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_when_it_is_no_longer_held() {
        let owned = Owned::new(vec![1u32, 2, 3]);
        let hold = owned.hold();
        hold.part(4, 4).region().copy_from(&Region::of(&[7u32]));
        drop(hold);
        assert_eq!(owned.into_vec().unwrap(), [1, 7, 3]);
        let owned = Owned::new(vec![1u8]);
        let hold = owned.hold();
        assert!(owned.into_vec().is_none());
        assert_eq!(hold.region().len(), 1);
    }

    #[test]
    fn what_is_lent_is_back_before_the_scope_ends_even_after_a_panic() {
        let mut data = [1u8, 2];
        let held = std::cell::RefCell::new(Vec::new());
        let region = Region::of_mut(&mut data);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            scope(
                |lender| {
                    held.borrow_mut().push(lender.lend(region));
                    panic!("of the body's");
                },
                || held.borrow_mut().clear(),
            )
        }));
        assert!(outcome.is_err());
        assert!(held.borrow().is_empty());
    }
}
