//! The plugin interface: what is loaded, and that Rust and C mean the same by it. How links behave, the conformance test says.

use super::{
    Hub, Plugin, Wire, abi,
    frame::{Greeting, Places},
    inbound::Inbound,
    outbound::Outbound,
};
use crate::{
    mem::{Region, shared::SharedMemory},
    transport::{
        LANES, Link as _, Reach, Wires as _,
        conformance::{bytes_of, connect, sample},
        inproc,
        links::{Choice, Links},
        tcp,
    },
};
use std::{
    fs,
    mem::offset_of,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock},
};
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/net_plugin/loop.c");
const HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");

/// Compiles a plugin into a folder of its own.
fn compile(source: &Path, name: &str, arguments: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(format!("libccl_net_{name}.so"));
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", HEADERS, "-o",
    ]);
    let output = cc
        .arg(&library)
        .arg(source)
        .args(arguments)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (folder, library)
}

/// The plugin of the examples.
fn example() -> Plugin {
    static EXAMPLE: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| compile(Path::new(SOURCE), "loop", &[]));
    Plugin::load(EXAMPLE.1.to_str().unwrap()).unwrap()
}

/// That one, or the one that is to be tested instead.
fn tested() -> Plugin {
    std::env::var("CCL_TEST_NET_PLUGIN").map_or_else(|_| example(), |path| Plugin::load(&path).unwrap())
}

/// Links of threads by a plugin: that of the examples, if no other one is named.
pub(crate) fn links(ranks: usize, choice: Choice) -> Vec<Links> {
    links_by(tested(), ranks, choice)
}

fn links_by(plugin: Plugin, ranks: usize, choice: Choice) -> Vec<Links> {
    let links = inproc::links(ranks).unwrap().into_iter().enumerate();
    links
        .map(|(rank, links)| {
            let wire = Wire::open(plugin, rank, ranks, None).unwrap();
            links
                .with_transport(choice, tcp::Settings::default())
                .with_wire(Some(wire))
        })
        .collect()
}

#[test]
fn what_is_no_plugin_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = |text: &str| {
        let path = folder.path().join("plugin.c");
        fs::write(&path, text).unwrap();
        path
    };
    let refused = |path: &Path| Plugin::load(path.to_str().unwrap()).err().unwrap();
    let (_kept, library) = compile(&source("int nothing;"), "a", &[]);
    let error = refused(&library);
    let wanted = "it has no function ccl_net_plugin_v1: it is no plugin, or one for another version of ccl";
    assert_eq!(error, format!("{}: {wanted}", library.display()));
    let text = "#include \"ccl_net.h\"\nconst ccl_net_plugin *ccl_net_plugin_v1(void) { return NULL; }";
    let (_kept, library) = compile(&source(text), "b", &[]);
    assert!(refused(&library).ends_with("it gives no functions"));
    let text = "#include \"ccl_net.h\"\nstatic const ccl_net_plugin plugin = {sizeof(plugin), CCL_NET_VERSION, \"c\", \"1\"};\n\
                const ccl_net_plugin *ccl_net_plugin_v1(void) { return &plugin; }";
    let (_kept, library) = compile(&source(text), "c", &["-Wno-missing-field-initializers"]);
    assert!(refused(&library).ends_with("it lacks a function"));
    let (_kept, library) = compile(Path::new(SOURCE), "loop", &["-DLOOP_VERSION=2"]);
    let error = refused(&library);
    assert!(
        error.contains("it is for version 2 of the plugin interface"),
        "{error}"
    );
    let error = Plugin::load("nobody-has-it").err().unwrap();
    assert!(
        error.starts_with("libccl_net_nobody-has-it.so: it cannot be loaded: "),
        "{error}"
    );
    // One that was built before there were the later functions.
    let (_kept, library) = compile(
        Path::new(SOURCE),
        "loop",
        &["-DLOOP_SIZE=offsetof(ccl_net_plugin,connections)"],
    );
    let plugin = Plugin::load(library.to_str().unwrap()).unwrap();
    assert!(plugin.later().connections.is_none() && plugin.later().meet.is_none());
    assert!(example().later().connections.is_some() && example().later().register_dmabuf.is_none());
    for name in ["", "Loop", "a b", "../loop.so"] {
        assert!(Plugin::load(name).is_err(), "{name}");
    }
    assert_eq!(example().identity(), "loop 1");
}

/// The plugin of the examples, which ends the process where memory goes before connections, an end is joined twice, or its
/// context is closed and something is left; and which has one fault.
const STRICT: &str = r#"
#define ccl_net_plugin_v1 lenient
#include "loop.c"
#undef ccl_net_plugin_v1
#define NONE 0
#define REGISTERS 1
#define JOINS 2
#define CREATES 3
#define WRITES 4 /* it never tells that a write is done */
static int strict_register(ccl_net_context *context, uint32_t device, void *address, size_t len,
                           ccl_net_memory **memory, uint64_t *key, ccl_net_error *error) {
    if (FAULT == REGISTERS && context->memory && context->memory->next)
        return fail(error, "no room", 0);
    return loop_register(context, device, address, len, memory, key, error);
}
static void strict_deregister(ccl_net_context *context, ccl_net_memory *memory) {
    if (context->connections)
        abort();
    loop_deregister(context, memory);
}
static int strict_create(ccl_net_context *context, const ccl_net_setup *setup, ccl_net_connection **made,
                         unsigned char *bytes, size_t *len, ccl_net_error *error) {
    int done = loop_create(context, setup, made, bytes, len, error);
    *len = FAULT == CREATES ? 300 : *len;
    return done;
}
static int strict_join(ccl_net_connection *at, const unsigned char *bytes, size_t len, ccl_net_error *error) {
    if (at->fd >= 0)
        abort();
    return FAULT == JOINS ? fail(error, "no way", 0) : loop_join(at, bytes, len, error);
}
static int strict_poll(ccl_net_context *context, ccl_net_event *events, uint32_t most, uint32_t *count, ccl_net_error *error) {
    int done = loop_poll(context, events, most, count, error);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *count; i++)
        if (FAULT != WRITES || events[i].kind != CCL_NET_WRITTEN)
            events[kept++] = events[i];
    *count = kept;
    return done;
}
static void strict_close(ccl_net_context *context) {
    if (context->connections || context->memory)
        abort();
    loop_close(context);
}
const ccl_net_plugin *ccl_net_plugin_v1(void) {
    static ccl_net_plugin strict;
    strict = plugin;
    strict.register_memory = strict_register;
    strict.deregister_memory = strict_deregister;
    strict.create = strict_create;
    strict.join = strict_join;
    strict.poll = strict_poll;
    strict.close = strict_close;
    return &strict;
}
"#;

fn strict(fault: &str) -> (TempDir, Plugin) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("strict.c");
    fs::write(&source, STRICT).unwrap();
    let examples = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/examples/net_plugin");
    let (kept, library) = compile(&source, "loop", &[examples, &format!("-DFAULT={fault}")]);
    (kept, Plugin::load(library.to_str().unwrap()).unwrap())
}

/// What rank 1 makes of a greeting of rank 0.
fn accept(greeting: Greeting, hub: &Hub) -> Result<(Inbound, Greeting), crate::types::Error> {
    let Places::Desk(desk) = greeting.places else {
        panic!("a question has a desk");
    };
    Inbound::accept(1, 0, &greeting.bytes, desk, hub)
}

#[test]
fn whatever_fails_connections_go_first_and_nothing_stays() {
    for (fault, wanted) in [
        ("REGISTERS", "cannot be registered: no room"),
        ("JOINS", "no way"),
        ("CREATES", "create gave 300 bytes where 256 fit"),
    ] {
        let (_kept, faulty) = strict(fault);
        let hub = |rank, plugin| Hub::new(rank, &Wire::open(plugin, rank, 2, None).unwrap()).unwrap();
        let (sends, receives) = (hub(0, example()), hub(1, faulty));
        let (_half, greeting) = Outbound::open(0, 1, &sends).unwrap();
        let error = accept(greeting, &receives).err().unwrap();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_second_answer_joins_nothing() {
    let (_kept, plugin) = strict("NONE");
    let hub = |rank| Hub::new(rank, &Wire::open(plugin, rank, 2, None).unwrap()).unwrap();
    let (sends, receives) = (hub(0), hub(1));
    let (sender, greeting) = Outbound::open(0, 1, &sends).unwrap();
    let (_receiver, answer) = accept(greeting, &receives).unwrap();
    let Places::Rings(rings) = answer.places else {
        panic!("a desk is no answer");
    };
    sender.joined(0, &answer.bytes, rings.clone()).unwrap();
    let error = sender.joined(0, &answer.bytes, rings).unwrap_err();
    assert!(error.to_string().contains("it answered twice"), "{error}");
}

#[test]
fn what_cards_know_goes_from_where_it_lies_to_where_it_is_wanted() {
    let ranks = links(2, Choice::Plugin);
    let progress = || ranks.iter().for_each(|rank| rank.progress().unwrap());
    let (out, into) = connect(&ranks[0], &ranks[1]);
    let len = 100_000;
    let mut memory = [(); 2].map(|()| SharedMemory::<u8>::new(len).unwrap());
    let [from, to] = &mut memory;
    let (header, body) = sample(3, 0, len);
    from.copy_from_slice(&body);
    let (from, to) = (Region::of_mut(from), Region::of_mut(to));
    assert_eq!(out.reach(&from), Reach::Sending);
    assert_eq!(
        out.reach(&Region::of(&body)),
        Reach::No,
        "nobody knows when it is given back"
    );
    for lane in 0..LANES {
        for round in 0..20 {
            // Each by another connection than the last.
            to.copy_from(&Region::of(&vec![0u8; len]));
            into.land(lane, &header, &to);
            (0..1000).for_each(|_| progress());
            let ticket = out.offer(lane, header, from).unwrap().unwrap();
            let looks = (0..100_000).find_map(|_| (progress(), into.peek(lane).unwrap()).1);
            let message = looks.expect("a message");
            let here = message.body.here().unwrap();
            assert!(here.is(&to), "message {round} of lane {lane} was copied");
            assert!(bytes_of(&here) == body);
            into.release(lane);
            assert!((0..100_000).any(|_| (progress(), out.taken(lane, ticket)).1));
        }
    }
    // Nobody hears of a wish that was given up.
    into.land(0, &header, &to);
    ranks[1].withdraw();
    assert!(into.peek(0).unwrap().is_none() && ranks[1].trouble(0).is_some());
    let lost = out.offer(0, header, from).unwrap();
    (0..1000).for_each(|_| progress());
    assert!(into.peek(0).unwrap().is_none() && to.addresses() != from.addresses());
    ranks[0].withdraw();
    assert!(lost.is_none() || ranks[0].trouble(1).is_some());
}

#[test]
fn nobody_waits_for_word_of_what_one_who_left_was_sent() {
    let (_kept, plugin) = strict("WRITES");
    let ranks = links_by(plugin, 2, Choice::Plugin);
    let progress = || ranks.iter().for_each(|rank| rank.progress().unwrap());
    let (out, into) = connect(&ranks[0], &ranks[1]);
    let len = 100_000;
    let mut memory = SharedMemory::<u8>::new(len).unwrap();
    let (header, body) = sample(3, 0, len);
    memory.copy_from_slice(&body);
    let ticket = out
        .offer(0, header, Region::of_mut(&mut memory))
        .unwrap()
        .unwrap();
    let came = (0..100_000).any(|_| (progress(), into.peek(0).unwrap().is_some()).1);
    assert!(came && ranks[0].unsent() && !out.taken(0, ticket));
    into.release(0);
    assert!(ranks[0].let_go(1) && !ranks[0].let_go(1));
    assert!(!ranks[0].unsent() && ranks[0].unsent_to().is_empty() && out.taken(0, ticket));
    assert!(!ranks[1].let_go(0), "it has sent nothing");
}

#[test]
fn memory_that_was_given_back_is_forgotten_and_its_addresses_stay_taken() {
    let hub = Hub::new(0, &Wire::open(example(), 0, 2, None).unwrap()).unwrap();
    let known = |memory: &SharedMemory<u8>| hub.known(&Region::of(memory)).map(|part| part.memory);
    let first = SharedMemory::<u8>::new(1 << 20).unwrap();
    let (place, part) = (Region::of(&first).addresses(), known(&first).unwrap());
    assert!(
        Arc::ptr_eq(&part, &known(&first).unwrap()),
        "it is registered once"
    );
    drop(first);
    let second = SharedMemory::<u8>::new(1 << 20).unwrap();
    let others = Region::of(&second).addresses();
    assert!(others.end <= place.start || place.end <= others.start);
    let other = known(&second).unwrap();
    assert!(!Arc::ptr_eq(&part, &other));
    assert_eq!(Arc::strong_count(&part), 1, "the hub has it no more");
    assert!(hub.known(&Region::of(&[0u8; 100])).is_none());
}

#[test]
fn memory_of_callers_makes_room_unless_it_is_in_use() {
    let hub = Hub::new(0, &Wire::open(example(), 0, 2, None).unwrap()).unwrap();
    let memory = SharedMemory::<u8>::new(1 << 20).unwrap();
    let part = hub.known(&Region::of(&memory)).unwrap();
    assert!(!hub.forget("no room"), "a message may come there");
    drop(part);
    assert!(hub.forget("no room") && hub.known(&Region::of(&memory)).is_none());
    assert!(!hub.forget("no room"));
}

#[test]
fn rust_and_c_mean_the_same() {
    let mut text = String::from("#include \"ccl_net.h\"\n");
    let mut same = |what: &str, number: usize| {
        text += &format!("_Static_assert({what} == {number}, \"{what}\");\n");
    };
    same("CCL_NET_VERSION", abi::VERSION as usize);
    same("CCL_NET_MAX_BYTES", abi::MAX_BYTES);
    same("CCL_NET_OK", abi::OK as usize);
    same("CCL_NET_AGAIN", abi::AGAIN as usize);
    same("CCL_NET_WRITTEN", abi::WRITTEN as usize);
    same("CCL_NET_ARRIVED", abi::ARRIVED as usize);
    same("CCL_NET_UNTOLD + 1", abi::UNTOLD.wrapping_add(1) as usize);
    same("CCL_NET_FAILED", abi::FAILED as usize);
    macro_rules! fields {
        ($($c:ident $rust:ident { $($field:ident)* })*) => {$(
            same(concat!("sizeof(", stringify!($c), ")"), size_of::<abi::$rust>());
            $(same(concat!("offsetof(", stringify!($c), ", ", stringify!($field), ")"), offset_of!(abi::$rust, $field));)*
        )*};
    }
    fields! {
        ccl_net_error ErrorText { text size }
        ccl_net_host Host { size rank ranks log gpu }
        ccl_net_device Device { name port megabits numa_node max_segments max_write }
        ccl_net_setup Setup { number device peer first writes arrivals }
        ccl_net_segment Segment { address len memory }
        ccl_net_event Event { connection id kind immediate }
    }
    macro_rules! heads {
        ($($field:ident)*) => {$(same(concat!("offsetof(ccl_net_plugin, ", stringify!($field), ")"), offset_of!(abi::Plugin, $field));)*};
    }
    heads! { size version name about }
    macro_rules! functions {
        ($($c:ident $rust:ident)*) => {$(
            same(
                concat!("offsetof(ccl_net_plugin, ", stringify!($c), ")"),
                offset_of!(abi::Plugin, functions) + offset_of!(abi::Functions, $rust),
            );
        )*};
    }
    functions! {
        open open close close devices devices device device register_memory register deregister_memory deregister
        create create join join destroy destroy write write poll poll describe describe descriptor descriptor arm arm
    }
    macro_rules! later {
        ($($name:ident)*) => {$(
            same(
                concat!("offsetof(ccl_net_plugin, ", stringify!($name), ")"),
                size_of::<abi::Plugin>() + offset_of!(abi::Later, $name),
            );
        )*};
    }
    later! { connections meet register_dmabuf }
    same(
        "sizeof(ccl_net_plugin)",
        size_of::<abi::Plugin>() + size_of::<abi::Later>(),
    );
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("same.c");
    fs::write(&source, text).unwrap();
    compile(&source, "same", &[]);
}
