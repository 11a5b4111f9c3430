//! The header against the Rust types, and the way from errors and panics to numbers.

use super::*;
use crate::types::{Call, Collective, DType, Op};
use std::{collections::BTreeMap, ffi::CStr, io, time::Duration};
use types::{CCL_MAJOR, CCL_MINOR, CCL_PATCH, CONFIG_MAGIC, cclConfig_t};

const HEADER: &str = include_str!("../../include/ccl.h");

/// Every `name = number,` of the header.
fn enumerators() -> BTreeMap<&'static str, i32> {
    let lines = HEADER.lines().filter_map(|line| line.trim().split_once(" = "));
    lines
        .filter_map(|(name, rest)| Some((name, rest.split([',', ' ']).next()?.parse().ok()?)))
        .collect()
}

fn last_error(comm: cclComm_t) -> String {
    // SAFETY: a text of this thread's, copied before its next call.
    let text = unsafe { CStr::from_ptr(text::cclGetLastError(comm)) };
    text.to_str().unwrap().to_owned()
}

#[test]
fn the_header_s_numbers_are_those_of_the_rust_types() {
    let mut wanted = BTreeMap::new();
    for dtype in DType::ALL {
        let name = dtype.name();
        wanted.insert(
            format!("ccl{}{}", name[..1].to_uppercase(), &name[1..]),
            dtype as i32,
        );
    }
    for op in Op::ALL {
        let name = format!("{op:?}");
        wanted.insert(format!("ccl{name}"), op as i32);
    }
    let aliases = [
        ("cclChar", DType::Int8),
        ("cclInt", DType::Int32),
        ("cclHalf", DType::Float16),
        ("cclFloat", DType::Float32),
        ("cclDouble", DType::Float64),
    ];
    wanted.extend(aliases.map(|(name, dtype)| (name.to_owned(), dtype as i32)));
    let codes = [
        Code::Success,
        Code::UnhandledCudaError,
        Code::SystemError,
        Code::InternalError,
        Code::InvalidArgument,
        Code::InvalidUsage,
        Code::RemoteError,
        Code::InProgress,
        Code::Timeout,
    ];
    wanted.extend(codes.map(|code| (format!("ccl{code:?}"), code as i32)));
    wanted.insert("cclNumTypes".into(), DType::ALL.len() as i32);
    wanted.insert("cclNumOps".into(), Op::ALL.len() as i32);
    wanted.insert("cclNumResults".into(), codes.len() as i32);
    wanted.insert("cclScalarDevice".into(), reductions::DEVICE);
    wanted.insert("cclScalarHostImmediate".into(), reductions::HOST_IMMEDIATE);
    let found: BTreeMap<String, i32> = enumerators()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn the_header_s_version_and_magic_are_the_crate_s() {
    let package = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    assert_eq!(
        package.map(|part| part.parse::<i32>().unwrap()),
        [CCL_MAJOR, CCL_MINOR, CCL_PATCH]
    );
    let magic = format!("#define CCL_CONFIG_MAGIC {CONFIG_MAGIC:#010x}u");
    assert!(HEADER.contains(&magic), "{magic}");
}

/// The layout is part of the ABI: `tests/c/constants.c` asserts the same numbers.
#[test]
fn the_config_s_layout_is_fixed() {
    use std::mem::offset_of;
    let offsets = [
        offset_of!(cclConfig_t, size),
        offset_of!(cclConfig_t, magic),
        offset_of!(cclConfig_t, version),
        offset_of!(cclConfig_t, blocking),
        offset_of!(cclConfig_t, timeout),
        offset_of!(cclConfig_t, name),
        offset_of!(cclConfig_t, transport),
        offset_of!(cclConfig_t, algorithm),
        offset_of!(cclConfig_t, threads),
        offset_of!(cclConfig_t, reproducible),
        offset_of!(cclConfig_t, bufferBytes),
        size_of::<cclConfig_t>(),
    ];
    assert_eq!(offsets, [0, 8, 12, 16, 20, 24, 32, 40, 48, 52, 56, 64]);
}

#[test]
fn every_error_has_its_number() {
    let call = Call {
        seq: 0,
        collective: Collective::AllReduce,
        count: 1,
        dtype: DType::Int8,
        op: Op::Sum,
    };
    let lost = Cause::Lost {
        rank: 1,
        how: String::new(),
        seen_by: 0,
        during: None,
    };
    let left = Cause::Left {
        rank: 1,
        seen_by: 0,
        during: None,
    };
    let late = Cause::Late {
        ranks: vec![1],
        found: Vec::new(),
        seen_by: 0,
        during: Some(call.into()),
        after: Duration::ZERO,
    };
    let mismatch = Cause::Mismatch {
        here: (0, call.into()),
        there: (1, call.into()),
    };
    let broken = Cause::Broken {
        rank: 1,
        what: String::new(),
    };
    let numbers = [
        (Error::invalid(""), 4),
        (Error::usage(""), 5),
        (Error::system("", io::Error::other("")), 2),
        (Error::internal(""), 3),
        (Error::Init { what: String::new() }, 6),
        (Error::InitTimeout { what: String::new() }, 8),
        (Error::Failed(lost.clone()), 6),
        (Error::Closed(lost), 6),
        (Error::Failed(left), 6),
        (Error::Failed(Cause::Aborted { rank: 1 }), 6),
        (Error::Failed(broken), 6),
        (Error::Failed(late.clone()), 8),
        (Error::Closed(late), 8),
        (Error::Failed(mismatch), 5),
    ];
    for (error, number) in numbers {
        assert_eq!(code(&error) as i32, number, "{error:?}");
    }
}

#[test]
fn every_result_has_a_text() {
    let text = |result| {
        // SAFETY: a static text.
        unsafe { CStr::from_ptr(text::cclGetErrorString(result)) }
            .to_str()
            .unwrap()
    };
    let mut texts: Vec<&str> = (-1..=8).map(text).collect();
    assert_eq!(text(0), "no error");
    assert_eq!(text(9), text(i32::MIN));
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), 10);
}

#[test]
fn a_failed_call_leaves_its_text_with_its_thread() {
    assert_eq!(guard(|| Err(Error::invalid("first\0half"))), 4);
    assert_eq!(last_error(std::ptr::null_mut()), "first\u{fffd}half");
    assert_eq!(guard(|| Ok(())), 0);
    assert_eq!(last_error(std::ptr::null_mut()), "first\u{fffd}half");
    std::thread::spawn(|| assert_eq!(last_error(std::ptr::null_mut()), ""))
        .join()
        .unwrap();
}

#[test]
fn a_panic_is_an_internal_error() {
    assert_eq!(guard(|| panic!("two and {}", "two")), 3);
    assert_eq!(
        last_error(std::ptr::null_mut()),
        "internal error (please report it): a panic: two and two"
    );
    assert_eq!(guard(|| std::panic::panic_any(7)), 3);
    assert!(last_error(std::ptr::null_mut()).ends_with("without a message"));
}

#[test]
fn a_panic_closes_its_communicator() {
    closed_by_a_panic(|comm, body| on(comm, |_| body()));
}

#[test]
fn so_does_one_in_a_call_that_is_tried() {
    closed_by_a_panic(|comm, body| {
        assert_eq!(at_once(comm, |_| None), None);
        assert_eq!(at_once(comm, |_| Some(Ok(()))), Some(0));
        at_once(comm, |_| Some(body().map_err(Box::new))).unwrap()
    });
    assert_eq!(at_once(std::ptr::null_mut(), |_| Some(Ok(()))), None);
}

fn closed_by_a_panic(call: impl Fn(cclComm_t, &dyn Fn() -> Result<()>) -> cclResult_t) {
    let id = crate::UniqueId::new().unwrap();
    let entry = Entry::new(Communicator::init(1, &id, 0, &crate::Config::default()).unwrap());
    let comm: cclComm_t = COMMUNICATORS.insert(entry).unwrap();
    assert_eq!(call(comm, &|| Err(Error::invalid("not so"))), 4);
    assert_eq!(last_error(comm), "not so");
    assert_eq!(call(comm, &|| panic!("in a call")), 3);
    assert!(last_error(std::ptr::null_mut()).ends_with("a panic: in a call"));
    // The news may take its time.
    let mut state = 0;
    for _ in 0..10_000 {
        // SAFETY: `state` may be written.
        assert_eq!(unsafe { communicator::cclCommGetAsyncError(comm, &mut state) }, 0);
        if state != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(state, 6);
    assert!(
        last_error(comm).contains("rank 0 aborted"),
        "{}",
        last_error(comm)
    );
    assert_eq!(communicator::cclCommDestroy(comm), 0);
    assert_eq!(communicator::cclCommDestroy(comm), 4);
}
