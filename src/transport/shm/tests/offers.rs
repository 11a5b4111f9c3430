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

#[test]
fn who_cannot_store_what_it_takes_says_so_of_itself() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    const LEN: usize = 50_000;
    let (out, into) = pair(0);
    if !attaches(&out) {
        return;
    }
    let data = [1u8; LEN];
    out.offer(0, [7; 4], Region::of(&data)).unwrap().unwrap();
    // SAFETY: fresh memory, which nobody else knows. It is written by the system alone, which refuses to.
    let taken = unsafe {
        let closed = mmap_anonymous(std::ptr::null_mut(), LEN, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
        let taken = into.take(0, &Region::from_raw(closed.cast(), LEN));
        munmap(closed, LEN).unwrap();
        taken
    };
    let said = taken.unwrap_err();
    assert!(matches!(said, Error::System { .. }), "{said}");
    assert!(said.to_string().contains("where it belongs"), "{said}");
    // It is there still.
    assert_eq!(take(&into, LEN), Some(data.to_vec()));
}
