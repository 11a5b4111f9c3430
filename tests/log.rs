//! What the library tells a program in Rust that has a `tracing` subscriber of its own.
#![allow(missing_docs)]

use ccl::{Communicator, Config, Op, UniqueId};
use std::{
    env,
    fmt::{Debug, Write},
    process::Command,
    sync::Mutex,
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what it is told as `name=value` after `name=value`.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        struct Fields(String);
        impl Visit for Fields {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                write!(self.0, "{}={value:?} ", field.name()).unwrap();
            }
        }
        let mut fields = Fields(format!("{} ", event.metadata().target()));
        event.record(&mut fields);
        TOLD.lock().unwrap().push(fields.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// It is told, and nothing goes to standard error, whatever the environment asks for.
#[test]
fn a_program_s_own_subscriber_is_kept() {
    if env::var_os("CCL_DEBUG").is_none() {
        let again = Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_program_s_own_subscriber_is_kept"])
            .env("CCL_DEBUG", "trace")
            .output()
            .unwrap();
        assert!(again.status.success(), "{again:?}");
        assert_eq!(String::from_utf8_lossy(&again.stderr), "");
    }
    tracing::subscriber::set_global_default(Listener).unwrap();
    let id = UniqueId::new().unwrap();
    let comm = Communicator::init(1, &id, 0, &Config::default()).unwrap();
    comm.all_reduce_in_place(&mut [1.0f32], Op::Sum).unwrap();
    comm.abort();
    comm.all_reduce_in_place(&mut [1.0f32], Op::Sum).unwrap_err();
    drop(comm);
    let told = TOLD.lock().unwrap();
    for wanted in [
        "init: joined 1 ranks",
        "schedule: allreduce by",
        "failure: rank 0 aborted",
        "after 1 calls",
    ] {
        let line = told.iter().find(|line| line.contains(wanted));
        let line = line.unwrap_or_else(|| panic!("nothing says {wanted:?}: {told:#?}"));
        assert!(
            line.starts_with("ccl::") && line.contains("rank=0 ranks=1"),
            "{line}"
        );
    }
    // No form in which bytes are printed has the secret, the 32 bytes before the zeros at the id's end.
    let bytes = id.to_bytes();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let secret = &bytes[end - 16..end];
    let forms = [
        secret
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>(),
        format!("{secret:?}").trim_matches(['[', ']']).to_owned(),
    ];
    assert!(
        told.iter()
            .all(|line| forms.iter().all(|form| !line.contains(form.as_str())))
    );
}
