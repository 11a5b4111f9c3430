use super::super::read::read;
use super::{files, flaws, folder, proved, reading, text};

#[test]
fn right_algorithms_are_proved() {
    let all: Vec<_> = ["own", "others"]
        .iter()
        .flat_map(|name| files(&folder().join(name)))
        .collect();
    assert!(all.len() >= 7, "{all:?}");
    for file in all {
        let text = std::fs::read_to_string(&file).unwrap();
        let verdict = proved(&reading(&text));
        assert_eq!(verdict.flaws.first, [], "{file:?}");
    }
}

#[test]
fn what_an_algorithm_takes_is_told() {
    let verdict = proved(&reading(&text("own/ring-allreduce-4.xml")));
    let cost = verdict.cost;
    assert_eq!((cost.messages, cost.chain), (24, 6));
    assert_eq!((cost.sent, cost.received, cost.passed), (6, 6, 12));
    // Each rank holds a message while it has none to pass it on to.
    assert_eq!((verdict.slots, verdict.cut), (2, None));
    let verdict = proved(&reading(&text("own/ring-reducescatter-4.xml")));
    let cut = verdict.cut.unwrap().to_string();
    assert!(
        cut.starts_with("5: rank 0, thread block 0, step 1: deadlock: "),
        "{cut}"
    );
}

/// The files of `own/broken` say in their first line what is wrong.
#[test]
fn mistakes_are_told_with_their_lines() {
    let wanted = [
        (
            "circle",
            "8: rank 0, thread block 1, step 0: deadlock: rank 0, thread block 1, step 0 (line 8) waits for a message from rank 1, \
             rank 1, thread block 1, step 0 (line 27) waits for a message from rank 0",
        ),
        (
            "lengths",
            "14: rank 1, thread block 0, step 1: takes a message of 1 chunks from rank 0, which sends one of 2 (line 5)",
        ),
        (
            "never-told",
            "68: rank 2, thread block 1, step 2: waits for step 4 of thread block 0, of which neither that step nor a later one has \
             hasdep=\"1\"",
        ),
        (
            "no-wait",
            "7: rank 0, thread block 0, step 2: conflicts with thread block 1, step 2 (line 14) in chunk 0 of the input: nothing \
             orders the two",
        ),
        (
            "not-reduced",
            "9: rank 0: chunk 0 of the output holds chunk 0 of the vector of ranks 0..=2 where chunk 0 of the vector of ranks 0..=3 is \
             wanted",
        ),
        (
            "outside",
            "24: rank 2, thread block 0, step 3: stores chunks 1 to 2 of the output, which has 2",
        ),
        (
            "one-place",
            "13: rank 0, thread block 2, step 1: conflicts with thread block 1, step 1 (line 9) in chunk 2 of the output: nothing orders \
             the two",
        ),
        (
            "wrong-chunk",
            "17: rank 1, thread block 0, step 1: reduces chunk 0 of the vector with chunk 2",
        ),
        (
            "wrong-peer",
            "29: rank 2, thread block 0, step 2: waits for room in its lane to rank 1, which never takes what is there",
        ),
    ];
    assert_eq!(files(&folder().join("own/broken")).len(), wanted.len());
    for (name, wanted) in wanted {
        let found = flaws(&text(&format!("own/broken/{name}.xml")));
        assert_eq!(
            found.first().map(String::as_str),
            Some(wanted),
            "{name}: {found:#?}"
        );
    }
}

/// A file of two ranks whose blocks are these lines.
fn pair(collective: &str, blocks: [&str; 2]) -> String {
    let gpu = |rank: usize| {
        let lines: String = blocks[rank]
            .lines()
            .map(|line| format!("{}\n", written(line.trim())))
            .collect();
        format!("<gpu id=\"{rank}\" i_chunks=\"2\" o_chunks=\"2\" s_chunks=\"2\">\n{lines}</tb></gpu>\n")
    };
    format!(
        "<algo name=\"pair\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" coll=\"{collective}\" inplace=\"0\" \
         outofplace=\"1\" minBytes=\"0\" maxBytes=\"0\">\n{}{}</algo>\n",
        gpu(0),
        gpu(1)
    )
}

/// `tb 0 1 1`: block, send and recv; `0 s i0 o0 1 -1 -1 0`: step, type, source, store, count, depid, deps and hasdep.
fn written(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["tb", id, send, recv] => {
            let end = if id == "0" { "" } else { "</tb>" };
            format!("{end}<tb id=\"{id}\" send=\"{send}\" recv=\"{recv}\" chan=\"0\">")
        }
        [s, kind, source, store, count, block, step, told] => format!(
            "<step s=\"{s}\" type=\"{kind}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" cnt=\"{count}\" depid=\"{block}\" \
             deps=\"{step}\" hasdep=\"{told}\"/>",
            &source[..1],
            &source[1..],
            &store[..1],
            &store[1..],
        ),
        _ => panic!("{line}"),
    }
}

const IDLE: &str = "tb 0 -1 -1";

#[test]
fn what_can_be_seen_without_running_is_told() {
    let told = |blocks| flaws(&pair("allreduce", blocks)).join("\n");
    let sends = "tb 0 -1 1\n0 s i0 o0 1 -1 -1 0";
    assert!(
        told([sends, IDLE]).contains(
            "4: rank 0, thread block 0, step 0: sends, but its thread block has no peer to send to"
        )
    );
    let receives = "tb 0 1 -1\n0 r i0 o0 1 -1 -1 0";
    assert!(told([receives, IDLE]).contains("receives, but its thread block has no peer to receive from"));
    assert!(told(["tb 0 0 -1", IDLE]).contains("3: rank 0, thread block 0: sends to itself"));
    let shared = "tb 0 1 -1\ntb 1 1 -1";
    let wanted = "4: rank 0, thread block 1: sends to rank 1 on channel 0, as thread block 0 does";
    assert!(told([shared, IDLE]).contains(wanted), "{}", told([shared, IDLE]));
    let numbers = "tb 0 -1 -1\n1 cpy i0 o0 1 -1 -1 0";
    assert!(told([numbers, IDLE]).contains("step 1: is step 0 of its thread block"));
    let nowhere = "tb 0 -1 -1\n0 cpy i0 o0 1 7 0 0";
    assert!(told([nowhere, IDLE]).contains("waits for thread block 7, which there is none of"));
    let outside = "tb 0 -1 -1\n0 cpy i1 o0 2 -1 -1 0";
    assert!(told([outside, IDLE]).contains("reads chunks 1 to 2 of the input, which has 2"));
    let overlap = "tb 0 -1 -1\n0 cpy s0 s1 2 -1 -1 0";
    assert!(told([overlap, IDLE]).contains("stores chunks 1 to 2 of the scratch, which has 2"));
    let input = "tb 0 -1 -1\n0 cpy o0 i0 1 -1 -1 0";
    assert!(told([input, IDLE]).contains("stores into the input, which belongs to the caller"));
}

/// What RCCL does otherwise than it is written.
#[test]
fn what_rccl_would_do_otherwise_is_told() {
    let told = |blocks| flaws(&pair("allreduce", blocks)).join("\n");
    let idle = "tb 0 -1 -1\n0 nop i-1 o-1 0 -1 -1 0";
    assert!(told([idle, IDLE]).contains("a nop that waits for nothing: RCCL does not count it"));
    let mixed = "tb 0 -1 -1\n0 cpy i0 o0 2 -1 -1 0\n1 re i0 o0 1 -1 -1 0\n2 re i1 o0 2 -1 -1 0";
    assert!(
        told([mixed, IDLE])
            .contains("step 2: is reduced in one with the step before by RCCL, which takes this count, 2")
    );
    let hidden = "tb 0 -1 -1\n0 cpy i0 o0 1 -1 -1 0\n1 re i0 o0 1 -1 -1 0\n2 nop i-1 o-1 0 1 0 0\n3 re i1 o0 1 -1 -1 0\n\
                  tb 1 -1 -1\n0 cpy i0 s0 1 -1 -1 1";
    assert!(
        told([hidden, IDLE]).contains("step 3: follows a nop, but RCCL reduces in one"),
        "{}",
        told([hidden, IDLE])
    );
}

#[test]
fn what_is_wrong_when_it_runs_is_told() {
    let told = |collective, blocks| flaws(&pair(collective, blocks)).join("\n");
    let unwritten = told("allreduce", ["tb 0 -1 -1\n0 cpy s0 o0 1 -1 -1 0", IDLE]);
    assert!(
        unwritten.contains("reads a grain of Scratch that nothing has written"),
        "{unwritten}"
    );
    let twice = told(
        "allreduce",
        ["tb 0 -1 -1\n0 cpy i0 s0 1 -1 -1 0\n1 re i0 s0 1 -1 -1 0", IDLE],
    );
    assert!(
        twice.contains("step 1: reduces what rank 0 contributed to chunk 0 a second time"),
        "{twice}"
    );
    let left_over = told("alltoall", ["tb 0 1 -1\n0 s i1 o0 1 -1 -1 0", "tb 0 -1 0"]);
    assert!(
        left_over.contains("its message to rank 1 is never received"),
        "{left_over}"
    );
    let nothing = told("allgather", [IDLE, IDLE]);
    assert!(
        nothing
            .contains("2: rank 0: chunk 0 of the output holds nothing where chunk 0 of the vector of rank 0"),
        "{nothing}"
    );
    let itself = told("allreduce", ["tb 0 -1 -1\n0 cpy i0 o0 1 0 0 1", IDLE]);
    assert!(
        itself.contains("deadlock: rank 0, thread block 0, step 0 (line 4) waits for thread block 0"),
        "{itself}"
    );
}

/// A message that goes to another rank and comes back orders what two blocks do.
#[test]
fn messages_order_thread_blocks() {
    let there = "tb 0 1 -1\n0 cpy i0 s0 1 -1 -1 0\n1 s s0 o0 1 -1 -1 0\ntb 1 -1 1\n0 r i0 s0 1 -1 -1 0\n1 cpy s0 o1 1 -1 -1 0";
    let back = "tb 0 -1 0\n0 r i0 s0 1 -1 -1 1\ntb 1 0 -1\n0 s s0 o0 1 0 0 0";
    let ordered = flaws(&pair("allgather", [there, back])).join("\n");
    assert!(!ordered.contains("conflicts"), "{ordered}");
    let apart = there.replace("1 s s0 o0", "1 s i0 o0").replace(
        "0 cpy i0 s0 1 -1 -1 0\n1 s i0 o0 1 -1 -1 0",
        "0 s i0 o0 1 -1 -1 0\n1 cpy i0 s0 1 -1 -1 0",
    );
    let racing = flaws(&pair("allgather", [&apart, back])).join("\n");
    assert!(
        racing.contains("in chunk 0 of the scratch: nothing orders the two"),
        "{racing}"
    );
}

#[test]
fn what_is_no_algorithm_is_refused_with_its_place() {
    let refused = |text: &str| read(text, "f", 0).map(drop).unwrap_err().to_string();
    let ring = text("own/ring-allreduce-4.xml");
    assert!(refused("").starts_with("f:1:1: "));
    assert!(refused("<system version=\"1\"/>").starts_with("f:1:1: an element \"system\"; wanted an algo"));
    for (old, new, wanted) in [
        (
            "coll=\"allreduce\"",
            "coll=\"alltonext\"",
            "f:1:1: coll=\"alltonext\"; wanted allreduce, ",
        ),
        (
            "proto=\"Simple\"",
            "proto=\"x\"",
            "f:1:1: proto=\"x\"; wanted Simple, LL or LL128",
        ),
        (
            "ngpus=\"4\"",
            "ngpus=\"5\"",
            "f:1:1: no GPU 4; wanted 5, as ngpus says",
        ),
        (
            "ngpus=\"4\"",
            "ngpus=\"99999\"",
            "f:1:1: ngpus=\"99999\"; wanted a number from 0 to 1024",
        ),
        (
            "inplace=\"1\"",
            "inplace=\"0\"",
            "f:1:1: neither for calls in place nor for others",
        ),
        (
            "type=\"s\"",
            "type=\"put\"",
            "f:4:7: type=\"put\"; wanted s, r, rcs, rrs, rrc, rrcs, cpy, re or nop",
        ),
        (
            "cnt=\"1\"",
            "cnt=\"-1\"",
            "f:4:7: cnt=\"-1\"; wanted a number from 0 to 65536",
        ),
        (
            "tb id=\"0\"",
            "tb id=\"1\"",
            "f:3:5: id=\"1\"; wanted a number from 0 to 0",
        ),
        (
            "<gpu id=\"1\"",
            "<gpu id=\"0\"",
            "f:13:3: a second GPU 0; wanted each once",
        ),
        (
            "hasdep=\"0\"",
            "",
            "f:4:7: a step without hasdep; wanted hasdep=\"...\"",
        ),
        (
            "nchunksperloop=\"4\"",
            "nchunksperloop=\"0\"",
            "f:1:1: no GPUs or no chunks",
        ),
    ] {
        let told = refused(&ring.replacen(old, new, 1));
        assert!(told.starts_with(wanted), "{new}: {told}");
    }
}

/// Small files that ask for much.
#[test]
fn what_would_take_long_is_refused() {
    let refused = |text: &str| read(text, "f", 0).map(drop).unwrap_err().to_string();
    let algo = |ranks: usize, chunks: usize, scratch: usize, steps: &str| {
        let gpus: String = (0..ranks)
            .map(|rank| {
                format!(
                    "<gpu id=\"{rank}\" i_chunks=\"0\" o_chunks=\"0\" s_chunks=\"{scratch}\"><tb id=\"0\" send=\"-1\" recv=\"-1\" \
                     chan=\"0\">{steps}</tb></gpu>"
                )
            })
            .collect();
        format!(
            "<algo name=\"much\" proto=\"LL\" nchunksperloop=\"{chunks}\" ngpus=\"{ranks}\" coll=\"allreduce\" inplace=\"1\">{gpus}</algo>"
        )
    };
    assert!(
        refused(&algo(1000, 65_536, 0, ""))
            .contains("131072000 chunks in the buffers of all ranks; wanted at most 2097152")
    );
    assert!(refused(&algo(2, 1, 2_000_000, "")).contains("chunks in the buffers"));
    let copy = "<step s=\"0\" type=\"cpy\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"65536\" depid=\"-1\" deps=\"-1\" \
                hasdep=\"0\"/>";
    assert!(
        refused(&algo(1, 65_536, 0, &copy.repeat(9)))
            .contains("589824 chunks that steps move; wanted at most 524288")
    );
    let two = "<tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"0\"></tb></gpu>";
    let races = algo(1000, 1000, 0, &copy.replace("65536", "500")).replace("</gpu>", two);
    assert!(
        refused(&races).contains("500000000 chunks that steps move times ranks; wanted at most 134217728")
    );
    let long = format!("<!--{}-->", " ".repeat(super::super::read::BYTES));
    assert!(refused(&long).contains("wanted an algorithm of at most 16 MiB"));
    assert!(refused(&"<a>".repeat(200)).contains("wanted an algorithm in MSCCL's XML"));
}

/// msccl-tools leaves out what RCCL wants.
#[test]
fn what_is_missing_for_rccl_is_noted() {
    let ring = text("own/ring-allreduce-4.xml");
    assert_eq!(reading(&ring).notes, []);
    let shorter = ring.replace("outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\"", "");
    let notes: Vec<_> = reading(&shorter)
        .notes
        .into_iter()
        .map(|note| note.text)
        .collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes.iter().all(|note| note.starts_with("RCCL wants ")));
    assert_eq!(proved(&reading(&shorter)).flaws.first, []);
}

#[test]
fn collectives_with_a_root_are_known() {
    let to_root = "tb 0 1 -1\n0 s i0 o0 2 -1 -1 0";
    let reduces = "tb 0 -1 0\n0 rrc i0 o0 2 -1 -1 0";
    let at_one = |collective, blocks| {
        let text = pair(collective, blocks);
        let reading = read(&text, "file", 1).unwrap();
        proved(&reading)
            .flaws
            .first
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(at_one("reduce", [to_root, reduces]), [""; 0]);
    let gathers = "tb 0 -1 0\n0 cpy i0 o1 1 -1 -1 0\n1 r i0 o0 1 -1 -1 0";
    assert_eq!(
        at_one("gather", ["tb 0 1 -1\n0 s i0 o0 1 -1 -1 0", gathers]),
        [""; 0]
    );
    let scatters = "tb 0 0 -1\n0 s i0 o0 1 -1 -1 0\n1 cpy i1 o0 1 -1 -1 0";
    assert_eq!(
        at_one("scatter", ["tb 0 -1 1\n0 r i0 o0 1 -1 -1 0", scatters]),
        [""; 0]
    );
    let sends = "tb 0 0 -1\n0 s i0 o0 2 -1 -1 0\n1 cpy i0 o0 2 -1 -1 0";
    assert_eq!(
        at_one("broadcast", ["tb 0 -1 1\n0 r i0 o0 2 -1 -1 0", sends]),
        [""; 0]
    );
    let other = at_one(
        "broadcast",
        ["tb 0 -1 1\n0 r i0 o0 2 -1 -1 0", "tb 0 0 -1\n0 s i0 o0 2 -1 -1 0"],
    );
    assert!(
        other[0].contains("rank 1: chunk 0 of the output holds nothing"),
        "{other:?}"
    );
    let nowhere = read(&pair("reduce", [IDLE, IDLE]), "f", 2)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(nowhere.contains("root 2 among 2 ranks"), "{nowhere}");
}

/// A ring's reduce-scatter among 80, whose last step is of this type; rank r ends with chunk r + `shift`.
fn long_ring(last: &str, shift: usize) -> String {
    const RANKS: usize = 80;
    let gpu = |rank: usize| {
        let step = |s: usize| {
            let kind = match s {
                0 => "s",
                _ if s == RANKS - 1 => last,
                _ => "rrs",
            };
            let at = (rank + 2 * RANKS - 1 + shift - s) % RANKS;
            format!(
                "<step s=\"{s}\" type=\"{kind}\" srcbuf=\"i\" srcoff=\"{at}\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\" \
                 depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>"
            )
        };
        let steps: String = (0..RANKS).map(step).collect();
        let (next, previous) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
        format!(
            "<gpu id=\"{rank}\" i_chunks=\"80\" o_chunks=\"1\" s_chunks=\"0\"><tb id=\"0\" send=\"{next}\" \
             recv=\"{previous}\" chan=\"0\">{steps}</tb></gpu>\n"
        )
    };
    let gpus: String = (0..RANKS).map(gpu).collect();
    format!(
        "<algo name=\"ring\" proto=\"LL\" nchunksperloop=\"80\" ngpus=\"80\" coll=\"reducescatter\" \
         inplace=\"0\">{gpus}</algo>"
    )
}

/// Among very many ranks a sum stands for those that contributed.
#[test]
fn many_ranks_are_proved_too() {
    assert_eq!(flaws(&long_ring("rrc", 0)), [""; 0]);
    let less = flaws(&long_ring("r", 0));
    let holds = "rank 0: chunk 0 of the output holds chunk 0 of the vector, a sum of 79 (label ";
    assert!(less[0].contains(holds), "{less:?}");
    let other = flaws(&long_ring("rrc", 1));
    let holds = "rank 0: chunk 0 of the output holds chunk 1 of the vector, a sum of 80 (label ";
    assert!(other[0].contains(holds), "{other:?}");
}
