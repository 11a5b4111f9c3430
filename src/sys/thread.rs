//! Threads of the library's own, and the end of the process.

use super::{fork, host, per_process::PerProcess};
use rustix::thread::gettid;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    ffi::{CStr, c_void},
    fs, io,
    mem::{self, MaybeUninit},
    panic::{AssertUnwindSafe, catch_unwind},
    process, ptr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr,
            Ordering::{Acquire, Relaxed, Release},
        },
        mpsc,
    },
    thread,
};

/// Has `work` done on a thread of its own, for who will not wait for it longer than it likes: what comes of it is received, unless
/// nobody listens any more.
///
/// # Errors
/// When the system has no room for a thread.
pub(crate) fn aside<S: Send + 'static, R: Send + 'static>(
    name: &'static CStr,
    state: S,
    work: fn(S) -> R,
) -> io::Result<mpsc::Receiver<R>> {
    let (done, outcome) = mpsc::channel();
    spawn_quiet(name, Some((state, work, done)), |it| {
        if let Some((state, work, done)) = it.take() {
            let _ = done.send(work(state));
        }
    })?;
    Ok(outcome)
}

/// Starts a detached thread that works on `state` and takes no signals but those that it causes itself, so that the
/// program's handlers run on the program's threads.
///
/// `state` is kept, and not dropped, where leak checkers find it: a forked child has a copy of it but not the thread whose
/// stack would own it, and each rank of a program that forks its ranks would be said to leak. Its memory is given back
/// after the thread has ended, when another one is started: pieces left for ever would keep the heap from closing its
/// gaps.
///
/// # Errors
/// When the system has no room for a thread.
pub(crate) fn spawn_quiet<T: Send + 'static>(
    name: &'static CStr,
    state: T,
    body: fn(&mut T),
) -> io::Result<()> {
    let work = Box::into_raw(Box::new(Work {
        kept: Kept {
            running: AtomicBool::new(false),
            over: AtomicBool::new(false),
            earlier: ptr::null_mut(),
            free: free::<T>,
        },
        state,
        body,
        name,
    }));
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut id = MaybeUninit::uninit();
    // SAFETY: all four are live and of the right type, and filled before they are read; these calls cannot fail with
    // these arguments. A new thread starts with its maker's mask; ours is put back. `work` belongs to the thread
    // from here on, if there is one; `start::<T>` takes just such a pointer.
    let code = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack());
        libc::sigfillset(all.as_mut_ptr());
        // Those that a thread causes itself: blocked, they would end the process whatever handlers it has.
        CAUSED
            .iter()
            .for_each(|&signal| _ = libc::sigdelset(all.as_mut_ptr(), signal));
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let code = libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), start::<T>, work.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        code
    };
    if code != 0 {
        // SAFETY: made of a box above, and no thread came to know of it.
        drop(unsafe { Box::from_raw(work) });
        return Err(io::Error::from_raw_os_error(code));
    }
    // The beginnings of a thread are no place for a fork: see `fork::gated`.
    // SAFETY: not freed before `keep` knows it; the flag is atomic, and nothing else of it is touched.
    while !unsafe { &(*work).kept.running }.load(Relaxed) {
        thread::yield_now();
    }
    // SAFETY: a work begins with its `Kept`, and nobody else gives this one to `keep`.
    unsafe { keep(work.cast()) };
    Ok(())
}

/// Signals of what a thread itself does, as where it touches memory that the program protects, or calls what its sandbox answers.
const CAUSED: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// The signals that a thread does not take.
pub(crate) struct Blocked(libc::sigset_t);

impl Blocked {
    /// Those of this thread.
    pub(crate) fn here() -> Blocked {
        let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: only asks, for a live set, which it fills; all zeros are a set, too.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), blocked.as_mut_ptr());
            Blocked(blocked.assume_init())
        }
    }

    fn set(&self) {
        // SAFETY: reads a live set. No code of the library's relies on which signals a thread takes.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }

    /// Has the program's `work` done on one of [`spawn_quiet`]'s threads, which does not take these signals meanwhile, but takes all
    /// others: threads and programs that it starts inherit that. `work` does not panic.
    pub(crate) fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        let quiet = Blocked::here();
        self.set();
        let done = work();
        quiet.set();
        done
    }
}

/// What a thread is made for.
#[repr(C)]
struct Work<T> {
    kept: Kept,
    state: T,
    body: fn(&mut T),
    name: &'static CStr,
}

/// What a [`Work`] begins with.
struct Kept {
    running: AtomicBool,
    /// The thread looks at its work no more.
    over: AtomicBool,
    /// That of the thread before, perhaps in the process that forked this one.
    earlier: *mut Kept,
    free: unsafe fn(*mut Kept),
}

/// Puts `work` before the others that are kept, of which those that are over are freed. Where two threads do
/// this at once, the works of one may stay for ever.
///
/// # Safety
/// `work` is that of a [`Work`], and was not given to this function before.
unsafe fn keep(work: *mut Kept) {
    let mut first = KEPT.swap(ptr::null_mut(), Acquire);
    // SAFETY: whoever has taken the list has it alone, and what is on it was not freed. A thread that has said `over`
    // does not look at its work again; the thread of `work` does not look at `earlier`.
    unsafe {
        let mut place = &raw mut first;
        while let one = *place
            && !one.is_null()
        {
            if (*one).over.load(Acquire) {
                *place = (*one).earlier;
                ((*one).free)(one);
            } else {
                place = &raw mut (*one).earlier;
            }
        }
        (*work).earlier = first;
    }
    KEPT.store(work, Release);
}

/// Frees a work's memory; its state is not dropped.
///
/// # Safety
/// `work` is that of a [`Work<T>`] in a box, which nobody uses any more.
unsafe fn free<T>(work: *mut Kept) {
    // SAFETY: see above; the layout is the same.
    drop(unsafe { Box::from_raw(work.cast::<MaybeUninit<Work<T>>>()) });
}

extern "C" fn start<T>(work: *mut c_void) -> *mut c_void {
    let work: *mut Work<T> = work.cast();
    // SAFETY: `spawn_quiet` made it of a box that is not freed before this thread says `over`, and gave `state` to it
    // alone; others look only at what is `kept`.
    let (state, body, name, running) = unsafe {
        (
            &mut (*work).state,
            (*work).body,
            (*work).name,
            &(*work).kept.running,
        )
    };
    // SAFETY: names this thread; the text ends with NUL.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    fork::gated(|| {
        at_work(|ids| ids.insert(own_id()));
        running.store(true, Relaxed);
    }); // which makes what the gate keeps for this thread
    // Whoever has to say something about a panic says it within `body`.
    let _ = catch_unwind(AssertUnwindSafe(|| body(state)));
    fork::gated(|| at_work(|ids| ids.remove(&own_id())));
    // SAFETY: as above; nothing of it is used after this.
    unsafe { &(*work).kept.over }.store(true, Release);
    ptr::null_mut()
}

/// Whether all threads that the process has left are the library's: the program's have ended, `main`'s by `pthread_exit`. Only within
/// [`fork::gated`].
pub(crate) fn are_alone() -> bool {
    if !host::has_main_ended() {
        return false;
    }
    if PROMISES.get().is_some_and(|all| Arc::strong_count(all) > 1) {
        return false;
    }
    let main = process::id();
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return false;
    };
    let ids: Option<Vec<i32>> = threads
        .map(|thread| thread.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let librarys = |at_work: &mut BTreeSet<i32>| {
        ids.map(|ids| {
            ids.iter()
                .all(|&id| id.cast_unsigned() == main || at_work.contains(&id))
        })
    };
    at_work(librarys) == Some(true)
}

/// This thread stays as long as the process does: [`lasting`] names it from here on.
pub(crate) fn stays() {
    fork::gated(|| {
        let _ = LASTING.get_or_try_init(|| Ok::<_, Infallible>(own_id()));
    });
}

/// A thread that is there as long as the process is, for others to name the process by: `main`'s may end before, and then has none of
/// the process's memory. `main`'s where none [`stays`].
pub(crate) fn lasting() -> u32 {
    LASTING.get().map_or_else(process::id, |id| id.cast_unsigned())
}

/// Does `what`, which is the program's code and does not unwind, in one of [`spawn_quiet`]'s threads. That counts as the program's meanwhile.
pub(crate) fn as_the_programs<T>(what: impl FnOnce() -> T) -> T {
    fork::gated(|| at_work(|ids| ids.remove(&own_id())));
    let done = what();
    fork::gated(|| at_work(|ids| ids.insert(own_id())));
    done
}

/// That one of the library's threads will run the program's code: until it is dropped the process does not end with the program's threads.
pub(crate) struct Promise(#[expect(dead_code, reason = "counted")] Arc<()>);

impl Promise {
    pub(crate) fn new() -> Promise {
        let Ok(all) = PROMISES.get_or_try_init(|| Ok::<_, Infallible>(Arc::default()));
        Promise(Arc::clone(all))
    }
}

/// Ends the process as the C library does when the last thread of a program ends.
///
/// # Errors
/// When the system has no room for the thread that does so.
pub(crate) fn end_process() -> io::Result<()> {
    spawn_quiet(c"ccl-exit", (), |()| process::exit(0))
}

/// This thread.
pub(super) fn own_id() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// Looks at the ids of the library's threads, each of which is there while it works. Only within [`fork::gated`].
fn at_work<T>(look: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
    static THREADS: PerProcess<Mutex<BTreeSet<i32>>> = PerProcess::new();
    let Ok(threads) = THREADS.get_or_try_init(|| Ok::<_, Infallible>(Mutex::default()));
    look(&mut threads.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What all [`Promise`]s have.
static PROMISES: PerProcess<Arc<()>> = PerProcess::new();
/// The thread that [`stays`].
static LASTING: PerProcess<i32> = PerProcess::new();
/// The last [`Work`]'s.
static KEPT: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());
/// Bytes, as the standard library's threads have.
const STACK: usize = 2 << 20;

/// Bytes of a thread's stack, of which the library has as many as the standard library's threads.
pub(crate) fn stack() -> usize {
    STACK + of_program()
}

/// Bytes of a thread's stack that the C library takes for the program's thread-local variables, where it tells.
fn of_program() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // SAFETY: the name ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        if found.is_null() {
            return 0;
        }
        // SAFETY: glibc's function of that name is this, since 2.15; it reads the attributes, which are initialised.
        unsafe {
            let least: unsafe extern "C" fn(*const libc::pthread_attr_t) -> libc::size_t =
                mem::transmute(found);
            let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
            libc::pthread_attr_init(attributes.as_mut_ptr());
            let least = least(attributes.as_ptr());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            least
        }
    })
}

/// Has `handler` called when the process ends in order, by `exit` or a return from `main`.
///
/// # Errors
/// When the C library has no memory left for the handler.
pub(crate) fn at_exit(handler: extern "C" fn()) -> io::Result<()> {
    // SAFETY: `handler` lives as long as this code is loaded; if it is unloaded before, the C library calls the
    // handler then.
    match unsafe { libc::atexit(handler) } {
        0 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    }
}
