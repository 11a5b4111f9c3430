//! Memory that other processes of this host can be given to read: the table of this process's allocations.
//!
//! An allocation is a memfd that is mapped where its user sees it. Peers are handed its descriptor (`transport/shm`), and read
//! there what would else be copied for them. It has no name, so that nothing of it stays however a process ends; to free it
//! gives its pages back at once, whoever still has it mapped. A forked child has neither the memory nor the table.

use super::Region;
use crate::{
    sys::{
        area::{self, Area},
        fork::{self, ProcessFd},
        per_process::PerProcess,
    },
    types::{Element, Error, Result},
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, io,
    ops::{Deref, DerefMut, Range},
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// A piece of memory that peers may map.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Which of this process's; not 0.
    number: u32,
    /// Its addresses, to the end of the last page.
    addresses: Range<usize>,
    is_freed: AtomicBool,
    /// `None` once it was freed.
    memory: Mutex<Option<(Arc<Area>, ProcessFd)>>,
}

impl Allocation {
    /// Which of this process's allocations it is.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Bytes, a multiple of the page size.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Where `body` begins in it, if it lies in it and it was not freed.
    #[inline]
    pub(crate) fn place_of(&self, body: &Region<'_>) -> Option<usize> {
        let (all, body) = (&self.addresses, body.addresses());
        let is_inside = all.start <= body.start && body.end <= all.end && !self.is_freed();
        is_inside.then(|| body.start - all.start)
    }

    #[inline]
    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed.load(Acquire)
    }

    /// A descriptor for a peer; `None` when it was freed.
    pub(crate) fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let memory = self.memory();
        let fd = memory.as_ref().map(|(_, fd)| fd.as_fd().try_clone_to_owned());
        fd.transpose()
    }

    /// What keeps its addresses from being used by anything else, though it be freed; `None` when it was freed.
    pub(crate) fn mapping(&self) -> Option<Arc<Area>> {
        self.memory().as_ref().map(|(area, _)| area.clone())
    }

    fn memory(&self) -> MutexGuard<'_, Option<(Arc<Area>, ProcessFd)>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) {
        self.is_freed.store(true, Release); // before something else can lie there
        if let Some((area, fd)) = self.memory().take() {
            // Refused by no kernel that knows memfds; then the pages go when the last peer has.
            let _ = area::discard(fd.as_fd(), self.len());
            drop(area);
        }
    }
}

/// This process's allocations.
#[derive(Default)]
struct Table {
    /// By address.
    live: RwLock<BTreeMap<usize, Arc<Allocation>>>,
    /// Those made so far.
    made: AtomicU32,
}

static TABLE: PerProcess<Table> = PerProcess::new();

/// Makes an allocation of at least `len` bytes, all zero; `len` is not 0.
///
/// # Errors
/// [`Error::Invalid`] for more than any memory has; [`Error::System`] when the system has none.
fn make(len: usize) -> Result<Arc<Allocation>> {
    let too_much = || Error::invalid(format!("{len} bytes are more than any memory has"));
    let size = len.checked_next_multiple_of(rustix::param::page_size());
    let size = size.filter(|&size| isize::try_from(size).is_ok());
    let size = size.ok_or_else(too_much)?;
    let failed = |err| Error::system(format!("there is no shared memory of {len} bytes"), err);
    fork::watch().map_err(failed)?;
    let (area, fd) = Area::create("ccl-memory", size).map_err(failed)?;
    let table = TABLE.get_or_try_init(|| Ok::<_, Infallible>(Table::default()));
    let table = table.unwrap_or_else(|never| match never {});
    // After 2^32 allocations numbers come again, but not beside one of so long ago.
    let number = table.made.fetch_add(1, Relaxed).wrapping_add(1).max(1);
    let allocation = Arc::new(Allocation {
        number,
        addresses: area.region().addresses(),
        is_freed: AtomicBool::new(false),
        memory: Mutex::new(Some((Arc::new(area), ProcessFd::adopt(fd)))),
    });
    let mut live = table.live.write().unwrap_or_else(PoisonError::into_inner);
    live.insert(allocation.addresses.start, allocation.clone());
    Ok(allocation)
}

/// The allocation in which `memory` lies, all of it.
pub(crate) fn find(memory: &Region<'_>) -> Option<Arc<Allocation>> {
    let table = TABLE.get()?;
    let live = table.live.read().unwrap_or_else(PoisonError::into_inner);
    let (_, allocation) = live.range(..=memory.as_ptr().addr()).next_back()?;
    allocation.place_of(memory).map(|_| allocation.clone())
}

/// Memory for C: `size` bytes, all zero, that begin with a page. NULL for none.
///
/// # Errors
/// As [`SharedMemory::new`].
pub(crate) fn allocate(size: usize) -> Result<*mut u8> {
    match size {
        0 => Ok(std::ptr::null_mut()),
        _ => Ok(std::ptr::with_exposed_provenance_mut(make(size)?.addresses.start)),
    }
}

/// Gives back what [`allocate`] gave.
///
/// # Errors
/// [`Error::Invalid`] for anything else.
pub(crate) fn free(at: usize) -> Result<()> {
    let taken = TABLE.get().map(|table| {
        let mut live = table.live.write().unwrap_or_else(PoisonError::into_inner);
        let inside = || {
            let before = live.range(..at).next_back();
            before.filter(|(_, allocation)| allocation.addresses.contains(&at))
        };
        let inside = inside().map(|(&base, _)| base);
        (live.remove(&at), inside)
    });
    match taken {
        Some((Some(allocation), _)) => {
            allocation.free();
            Ok(())
        }
        Some((None, Some(base))) => Err(Error::invalid(format!(
            "{at:#x} lies inside of what was allocated at {base:#x}: give back that address"
        ))),
        _ => Err(Error::invalid(format!(
            "{at:#x} is none of this process's live allocations: it was given back before, or is another kind of memory"
        ))),
    }
}

/// Numbers in memory that the ranks of this host can read where it lies.
///
/// Calls whose buffers lie in it take the shortest way between the processes of one host: a rank reads what another one sends
/// from there, where else it is copied into memory that both share and out of it again. Slices of it are passed to the calls
/// as any others are. (Ranks that are threads of one process read each other's memory whatever its kind.) Peers get the memory to
/// be read; that none of them writes there is a rule that they keep, as with all that they map.
///
/// Its length stays as it is, and all numbers are zero at first. Dropping it gives its pages back at once, whoever has them
/// mapped; or, where network cards know them, with the next long message of each communicator by which they do (32 KiB are always enough), or its
/// end. It is meant to be kept: each communicator makes it known to the peers once, which takes about a millisecond each,
/// in the first call that uses it, or in [`Communicator::register`](crate::Communicator::register). A child made by `fork` has
/// no such memory.
///
/// ```
/// let mut gradient = ccl::SharedMemory::<f32>::new(1_000_000)?;
/// gradient[0] = 1.0;
/// # let comm = &ccl::Communicator::init_all(1)?[0];
/// comm.all_reduce_in_place(&mut gradient, ccl::Op::Sum)?;
/// # Ok::<(), ccl::Error>(())
/// ```
pub struct SharedMemory<T: Element> {
    base: NonNull<T>,
    len: usize,
    /// The process that it belongs to.
    generation: u32,
}

// SAFETY: it owns its elements as a `Vec<T>` does, whichever thread uses it; the library in peers' processes only reads them, by raw
// pointers.
unsafe impl<T: Element> Send for SharedMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for SharedMemory<T> {}

impl<T: Element> SharedMemory<T> {
    /// Memory for `len` numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than any memory has; [`Error::System`] when the system has none.
    pub fn new(len: usize) -> Result<SharedMemory<T>> {
        // More than any memory has is refused below.
        let at = allocate(len.saturating_mul(size_of::<T>()))?;
        Ok(SharedMemory {
            // It begins with a page: more than any element's alignment.
            base: NonNull::new(at.cast()).unwrap_or(NonNull::dangling()),
            len,
            generation: fork::generation(),
        })
    }

    fn check(&self) {
        assert!(
            self.len == 0 || self.generation == fork::generation(),
            "shared memory of the parent process is used in a child made by fork, which has none of it"
        );
    }
}

impl<T: Element> Deref for SharedMemory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.check();
        // SAFETY: so many elements of this process's, just checked, which stay until `drop`; any bytes are elements. Peers
        // only read, and the calls that write borrow `self` exclusively, as do those who get a mutable slice.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T: Element> DerefMut for SharedMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.check();
        // SAFETY: as in `deref`.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T: Element> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        // A forked child has nothing to give back; what lies there now is another's.
        if self.len > 0 && self.generation == fork::generation() {
            let _ = free(self.base.as_ptr().addr());
        }
    }
}

impl<T: Element> fmt::Debug for SharedMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} elements)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{env, process::Command};

    fn region(at: usize, len: usize) -> Region<'static> {
        // SAFETY: it is not read or written.
        unsafe { Region::from_raw(std::ptr::without_provenance_mut(at), len) }
    }

    /// Runs a test in a process of its own: elsewhere other tests' memory may lie beside its own, or come where that was. Whether
    /// this is that process.
    fn is_alone(name: &str) -> bool {
        const ALONE: &str = "CCL_TEST_ALONE";
        if env::var_os(ALONE).is_some() {
            return true;
        }
        let name = format!("mem::shared::tests::{name}");
        let mut again = Command::new(env::current_exe().unwrap());
        let output = again.args(["--exact", &name]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("1 passed"), "{told}");
        false
    }

    #[test]
    fn what_lies_inside_is_found_and_nothing_else() {
        if !is_alone("what_lies_inside_is_found_and_nothing_else") {
            return;
        }
        let memory = SharedMemory::<u8>::new(10_000).unwrap();
        let base = memory.as_ptr().addr();
        let size = 10_000usize.next_multiple_of(rustix::param::page_size());
        let number = find(&Region::of(&memory)).unwrap().number();
        for (at, len) in [(base, 1), (base + 9_999, 1), (base, size), (base + 7, size - 7)] {
            assert_eq!(find(&region(at, len)).unwrap().number(), number);
        }
        for (at, len) in [(base - 1, 1), (base - 1, 3), (base, size + 1), (base + size, 1)] {
            assert!(
                find(&region(at, len)).is_none(),
                "{len} bytes at base + {}",
                at as isize - base as isize
            );
        }
        assert!(find(&Region::of(&[1u8, 2])).is_none());
        drop(memory);
        assert!(find(&region(base, 1)).is_none());
    }

    #[test]
    fn what_is_not_live_is_not_given_back() {
        if !is_alone("what_is_not_live_is_not_given_back") {
            return;
        }
        assert!(allocate(0).unwrap().is_null());
        let at = allocate(5000).unwrap().addr();
        let refused = |at| free(at).unwrap_err().to_string();
        assert!(refused(at + 1).contains("give back that address"));
        assert!(refused(at - 1).contains("none of this process's live allocations"));
        free(at).unwrap();
        for at in [at, at + 1, 0, 8, usize::MAX] {
            assert!(refused(at).contains("none of this process's live allocations"));
        }
        let local = 7u64;
        assert!(free((&raw const local).addr()).is_err());
        let refused = allocate(usize::MAX).unwrap_err().to_string();
        assert!(refused.contains("more than any memory has"), "{refused}");
        assert!(SharedMemory::<u64>::new(usize::MAX / 4).is_err());
    }

    #[test]
    fn it_holds_numbers() {
        let mut memory = SharedMemory::<f64>::new(1000).unwrap();
        assert!(memory.len() == 1000 && memory.iter().all(|&x| x == 0.0));
        memory[999] = 7.0;
        memory[..10].copy_from_slice(&[3.0; 10]);
        assert_eq!(memory.iter().sum::<f64>(), 37.0);
        assert!(SharedMemory::<i8>::new(0).unwrap().is_empty());
    }

    #[test]
    fn pages_go_back_though_a_peer_has_them_mapped() {
        let mut memory = SharedMemory::<u8>::new(1 << 20).unwrap();
        memory.fill(7);
        let allocation = find(&Region::of(&memory)).unwrap();
        let fd = allocation.descriptor().unwrap().unwrap();
        let seen = Area::open(&fd, allocation.len()).unwrap();
        let blocks = || rustix::fs::fstat(&fd).unwrap().st_blocks;
        assert!(blocks() * 512 >= 1 << 20);
        drop(memory);
        assert_eq!(blocks(), 0);
        assert!(allocation.is_freed() && allocation.descriptor().unwrap().is_none());
        drop(seen);
    }

    #[test]
    fn a_forked_child_has_none_of_it() {
        let mut memory = SharedMemory::<u8>::new(5000).unwrap();
        memory[0] = 1;
        let base = memory.as_ptr().addr();
        let child = fork::child(|| {
            let is_gone = find(&region(base, 1)).is_none() && free(base).is_err();
            // Dropping it does nothing, and the child's own memory is its own.
            drop(memory);
            let own = SharedMemory::<u8>::new(5000).unwrap();
            is_gone && own.iter().all(|&byte| byte == 0)
        });
        let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
            .unwrap()
            .unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }

    proptest! {
        /// However they come and go, an address belongs to the one that has it.
        #[test]
        fn allocations_lie_apart(turns in prop::collection::vec((1usize..100_000, any::<prop::sample::Index>()), 1..40)) {
            let mut live: Vec<SharedMemory<u8>> = Vec::new();
            for (len, which) in turns {
                if len % 3 == 0 && !live.is_empty() {
                    live.swap_remove(which.index(live.len()));
                    continue;
                }
                live.push(SharedMemory::new(len).unwrap());
                let mut numbers: Vec<u32> =
                    live.iter().map(|memory| find(&Region::of(memory)).unwrap().number()).collect();
                numbers.sort_unstable();
                numbers.dedup();
                prop_assert_eq!(numbers.len(), live.len());
            }
        }
    }
}
