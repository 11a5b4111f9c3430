//! Offered messages that their receivers take by system calls.

use super::*;

/// Whether this process may read its own memory, without which there are no offers.
fn attaches(out: &super::Link) -> bool {
    let offers = out.reach(&Region::of(&[0u8])) == Reach::Taking;
    if !offers {
        println!("skipped: memory cannot be read here");
    }
    offers
}

#[test]
fn offers_go_on_when_numbers_wrap() {
    for start in [u32::MAX - 9, (1 << 31) - 7, u32::MAX, 1 << 31] {
        let (out, into) = pair(start);
        if !attaches(&out) {
            return;
        }
        for number in 0..20 {
            let (header, mut body) = sample(0, number, 5000);
            let body = Region::of_mut(&mut body);
            let offer = || out.offer(0, header, body).unwrap();
            let tickets: Vec<_> = (0..SHALLOW.messages()).map(|_| offer().unwrap()).collect();
            assert!(offer().is_none(), "a credit too many");
            for &ticket in &tickets {
                assert!(!out.taken(0, ticket));
                assert_eq!(recv(&into, 0), (header, bytes_of(&body)));
                assert!(out.taken(0, ticket));
            }
        }
    }
}

#[test]
fn what_was_withdrawn_is_not_taken() {
    let (out, into) = pair(0);
    if !attaches(&out) {
        return;
    }
    let mut data = [1u8, 2, 3];
    let offered = Region::of_mut(&mut data);
    out.offer(0, [7; 4], offered).unwrap().unwrap();
    send(&out, 1, [8; 4], &[9]);
    assert_eq!(take(&into, 3), Some(vec![1, 2, 3]));
    out.withdraw();
    offered.copy_from(&Region::of(&[4u8, 5, 6]));
    assert_eq!(take(&into, 3), None);
    assert_eq!(recv(&into, 1), ([8; 4], vec![9]), "what was copied is there");
}

#[test]
fn memory_whose_owner_has_gone_is_not_taken() {
    let (out, into) = pair(0);
    if !attaches(&out) {
        return;
    }
    let data = [1u8, 2, 3];
    out.offer(0, [7; 4], Region::of(&data)).unwrap().unwrap();
    assert_eq!(take(&into, 3), Some(vec![1, 2, 3]));
    drop(out);
    assert_eq!(take(&into, 3), None);
}

#[test]
fn memory_that_cannot_be_read_is_not_offered() {
    let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
    let connected = |lends: bool, may: bool, spoil: bool| {
        let ways = |attach| Ways { attach, ..NO_WAY };
        let (opening, mut parcel) = Opening::new(&bells[0], ways(lends), SHALLOW).unwrap();
        if spoil {
            *parcel.bytes.last_mut().unwrap() ^= 1;
        }
        let half = Inbound::attach(0, &parcel, &bells[1], ways(may)).unwrap();
        let how = half.long_messages();
        let (out, into) = (super::Link::default(), super::Link::default());
        into.set_inbound(half);
        let welcome = bells[1].welcome().unwrap();
        out.set_outbound(
            opening
                .connected(1, &welcome, &bells[0], &Arc::default())
                .unwrap(),
        );
        (out, into, how)
    };
    for (lends, may, spoil) in [(false, true, false), (true, false, false), (true, true, true)] {
        let (out, into, how) = connected(lends, may, spoil);
        assert!(how.starts_with("copied twice: "), "{how}");
        assert_eq!(how.contains("CCL_CMA=off"), !spoil, "{how}");
        assert_eq!(out.reach(&Region::of(&[1u8])), Reach::No);
        assert!(out.offer(0, [0; 4], Region::of(&[1u8])).is_err());
        send(&out, 0, [1; 4], &[2; 5000]);
        assert_eq!(recv(&into, 0), ([1; 4], vec![2; 5000]));
        // A peer that offers all the same.
        send(&out, 0, [1; 4], &[3; 50]);
        let entry = out.outbound().segment.entry(0, 1, SHALLOW);
        entry.len.store(ELSEWHERE | 50, SeqCst);
        let (rank, what) = blamed(into.take(0, &Region::of_mut(&mut [0u8; 50])));
        assert!(rank == 0 && what.contains("cannot be read"), "{what}");
    }
    // An address at which nothing is.
    let (out, into, _) = connected(true, true, false);
    if attaches(&out) {
        send(&out, 0, [1; 4], &[0; 50]);
        out.outbound()
            .segment
            .entry(0, 0, SHALLOW)
            .len
            .store(ELSEWHERE | 50, SeqCst);
        let (rank, what) = blamed(into.take(0, &Region::of_mut(&mut [0u8; 50])));
        assert!(rank == 0 && what.contains("could not be read"), "{what}");
    }
}

/// The handler of a program that has protected memory, as collectors do, is asked where something is to be stored there.
#[test]
fn what_is_taken_into_protected_memory_is_a_matter_of_the_program() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::{ffi, ptr, sync::atomic::AtomicUsize};
    const LEN: usize = 50_000;
    static CLOSED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn open(_: ffi::c_int, info: *mut libc::siginfo_t, _: *mut ffi::c_void) {
        let closed = CLOSED.load(SeqCst);
        // SAFETY: the system tells what was used. What is opened is this test's memory.
        unsafe {
            if !(closed..closed + LEN).contains(&(*info).si_addr().addr()) {
                libc::abort();
            }
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mprotect(ptr::with_exposed_provenance_mut(closed), LEN, rights);
        }
    }
    let (out, into) = pair(0);
    if !attaches(&out) {
        return;
    }
    let data = [1u8; LEN];
    out.offer(0, [7; 4], Region::of(&data)).unwrap().unwrap();
    // SAFETY: fresh memory, which nobody else knows; the handler is there for as long as it may be asked, and does what handlers may.
    unsafe {
        let closed = mmap_anonymous(ptr::null_mut(), LEN, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
        CLOSED.store(closed.expose_provenance(), SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        action.sa_sigaction = open as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut before), 0);
        let target = Region::from_raw(closed.cast(), LEN);
        let taken = into.take(0, &target);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &before, ptr::null_mut()), 0);
        assert!(taken.unwrap() && bytes_of(&target) == data);
        munmap(closed, LEN).unwrap();
    }
}
