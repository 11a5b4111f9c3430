//! The plugin interface: what is loaded, and that Rust and C mean the same by it. How links behave, the conformance test says.

use super::{Hub, Plugin, Wire, abi, inbound::Inbound, outbound::Outbound};
use crate::transport::{
    inproc,
    links::{Choice, Links},
    tcp,
};
use std::{
    fs,
    mem::offset_of,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
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

/// Links of threads by the plugin of the examples.
pub(crate) fn links(ranks: usize, choice: Choice) -> Vec<Links> {
    let links = inproc::links(ranks).unwrap().into_iter().enumerate();
    links
        .map(|(rank, links)| {
            let wire = Wire::open(example(), rank, ranks).unwrap();
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

#[test]
fn whatever_fails_connections_go_first_and_nothing_stays() {
    for (fault, wanted) in [
        ("REGISTERS", "cannot be registered: no room"),
        ("JOINS", "no way"),
        ("CREATES", "create gave 300 bytes where 256 fit"),
    ] {
        let (_kept, faulty) = strict(fault);
        let hub = |rank, plugin| Hub::new(rank, &Wire::open(plugin, rank, 2).unwrap()).unwrap();
        let (sends, receives) = (hub(0, example()), hub(1, faulty));
        let (_half, greeting) = Outbound::open(0, 1, &sends).unwrap();
        let error = Inbound::accept(1, 0, greeting, &receives).err().unwrap();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_second_answer_joins_nothing() {
    let (_kept, plugin) = strict("NONE");
    let hub = |rank| Hub::new(rank, &Wire::open(plugin, rank, 2).unwrap()).unwrap();
    let (sends, receives) = (hub(0), hub(1));
    let (sender, greeting) = Outbound::open(0, 1, &sends).unwrap();
    let (_receiver, answer) = Inbound::accept(1, 0, greeting, &receives).unwrap();
    sender.joined(0, answer.clone()).unwrap();
    let error = sender.joined(0, answer).unwrap_err();
    assert!(error.to_string().contains("it answered twice"), "{error}");
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
    same("CCL_NET_FAILED", abi::FAILED as usize);
    macro_rules! fields {
        ($($c:ident $rust:ident { $($field:ident)* })*) => {$(
            same(concat!("sizeof(", stringify!($c), ")"), size_of::<abi::$rust>());
            $(same(concat!("offsetof(", stringify!($c), ", ", stringify!($field), ")"), offset_of!(abi::$rust, $field));)*
        )*};
    }
    fields! {
        ccl_net_error ErrorText { text size }
        ccl_net_host Host { size rank ranks log }
        ccl_net_device Device { name port megabits numa_node max_segments max_write }
        ccl_net_setup Setup { number device peer first writes arrivals }
        ccl_net_segment Segment { address len memory }
        ccl_net_event Event { connection id kind immediate }
        ccl_net_plugin Plugin { size version name about }
    }
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
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("same.c");
    fs::write(&source, text).unwrap();
    compile(&source, "same", &[]);
}
