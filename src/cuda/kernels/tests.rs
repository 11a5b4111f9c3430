//! The images, and the kernels compiled for the processor beside src/reduce.

mod host;

use super::args::{CopyArgs, Lie, Range, ReduceArgs, Reducing, Row, SwapArgs};
use super::image::{CUBINS, Image, PTX};
use super::*;
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, fs, num::NonZero, path::Path};

/// The names that the library may ask for.
fn asked() -> BTreeSet<String> {
    Kernel::all().into_iter().map(Kernel::name).collect()
}

/// The functions that an ELF file defines for all to see.
fn functions(elf: &[u8]) -> BTreeSet<String> {
    const SYMBOLS: u32 = 2;
    let number = |at: usize, bytes: usize| {
        elf[at..at + bytes]
            .iter()
            .rev()
            .fold(0usize, |number, byte| number << 8 | usize::from(*byte))
    };
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01", "64 bits, little end first");
    let (sections, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let section = |i: usize| sections + i * size;
    let table = (0..count)
        .map(section)
        .find(|&at| number(at + 4, 4) == SYMBOLS as usize);
    let table = table.expect("a table of symbols");
    let (begin, bytes) = (number(table + 0x18, 8), number(table + 0x20, 8));
    let strings = number(section(number(table + 0x28, 4)) + 0x18, 8);
    (begin..begin + bytes)
        .step_by(24)
        // Global, and a function.
        .filter(|&symbol| elf[symbol + 4] == 0x12)
        .map(|symbol| {
            let name = &elf[strings + number(symbol, 4)..];
            let end = name.iter().position(|&byte| byte == 0).unwrap();
            String::from_utf8(name[..end].to_vec()).unwrap()
        })
        .collect()
}

#[test]
fn every_image_has_every_kernel_and_no_other() {
    for image in CUBINS {
        assert_eq!(functions(&image.unpacked().unwrap()), asked(), "{}", image.name);
    }
    let ptx = String::from_utf8(PTX.unpacked().unwrap()).unwrap();
    let entries = ptx.split(".visible .entry ").skip(1);
    let names: BTreeSet<String> = entries
        .map(|text| text[..text.find('(').unwrap()].to_owned())
        .collect();
    assert_eq!(names, asked());
    assert!(ptx.trim_start().starts_with(".version 7.0\n") && ptx.ends_with('\0'));
}

/// Whoever changes a source must make the images anew.
#[test]
fn images_are_of_these_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/kernels");
    let sums = fs::read_to_string(folder.join("images/SHA256SUMS")).unwrap();
    let mut summed = BTreeSet::new();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let image = CUBINS.iter().chain([&PTX]).find(|image| image.name == name);
        let content = match image {
            Some(image) => image
                .unpacked()
                .map(|mut content| content.drain(..content.len() - 1).collect())
                .unwrap(),
            None => fs::read(folder.join(name)).unwrap(),
        };
        let found: String = Sha256::digest(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(found, sum, "{name}: run scripts/kernels build");
        summed.insert(name.to_owned());
    }
    for file in fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            !name.ends_with(".cu") && !name.ends_with(".h") || summed.contains(&name),
            "{name}"
        );
    }
    assert!(
        CUBINS
            .iter()
            .chain([&PTX])
            .all(|image| summed.contains(image.name))
    );
}

#[test]
fn a_gpu_gets_the_image_that_runs_on_it() {
    for (major, minor, name) in [
        (8, 0, "sm_80.cubin"),
        (8, 9, "sm_80.cubin"),
        (9, 0, "sm_90.cubin"),
        (10, 0, "sm_100.cubin"),
        (10, 3, "sm_100.cubin"),
        (11, 0, "compute_80.ptx"),
        (12, 0, "sm_120.cubin"),
        (12, 1, "sm_120.cubin"),
        (13, 0, "compute_80.ptx"),
    ] {
        assert_eq!(
            Image::for_capability(major, minor).unwrap().name,
            name,
            "{major}.{minor}"
        );
    }
    let error = Image::for_capability(7, 5).unwrap_err().to_string();
    assert!(error.contains("7.5"), "{error}");
}

#[test]
fn there_are_as_many_blocks_as_run_at_once() {
    assert_eq!(
        [0, 1, 512, 513, 1 << 40].map(|items| blocks(items, 1, 132)),
        [1, 1, 1, 2, 264]
    );
    assert_eq!(blocks(1 << 40, 1, 0), 2);
    // Rows share what runs at once.
    assert_eq!(
        [0, 512, 513, 1 << 40].map(|items| blocks(items, 16, 132)),
        [1, 1, 2, 16]
    );
    assert_eq!(blocks(1 << 40, 16, 4), 1);
    let how = Reducing {
        op: Op::Sum,
        dtype: DType::Float16,
        finish: None,
        tree: false,
        scaled: &[],
    };
    let items = |count| {
        ReduceArgs::new(&how, count, Lie::default(), &[32, 4096], &[16])
            .unwrap()
            .items
    };
    assert_eq!([items(8192), items(5), items(0)], [1024, 1, 0]);
    let range = |bytes| Range {
        from: 0,
        to: 0,
        bytes,
    };
    assert_eq!(
        CopyArgs::new(&[range(16 * 513), range(3)]).unwrap().items,
        2 * 1024
    );
    assert_eq!(CopyArgs::new(&[]).unwrap().items, 0);
}

#[test]
fn what_no_kernel_does_is_refused() {
    let how = Reducing {
        op: Op::Sum,
        dtype: DType::Float32,
        finish: None,
        tree: false,
        scaled: &[],
    };
    let of = |how: &Reducing<'_>, n: usize, m: usize| {
        ReduceArgs::new(how, 1, Lie::default(), &vec![16; n], &vec![16; m]).is_some()
    };
    assert!(of(&how, 1, 1) && of(&how, 16, 16));
    assert!(!of(&how, 0, 1) && !of(&how, 1, 0) && !of(&how, 17, 1) && !of(&how, 1, 17));
    assert!(!of(
        &Reducing {
            op: Op::BitAnd,
            ..how
        },
        2,
        1
    ));
    assert!(!of(
        &Reducing {
            op: Op::PreMulSum,
            scaled: &[(2, 0)],
            ..how
        },
        2,
        1
    ));
    let in_rows = |rows: usize, n: usize, is_one: bool| {
        let [addresses, all] = [vec![16; n], vec![16; 2]];
        let side = |addresses, is_one| Row {
            addresses,
            is_one,
            step: 0,
        };
        let (one, all) = (side(&addresses[..], is_one), side(&all[..], false));
        let made =
            [[&one, &all], [&all, &one]].map(|[from, to]| ReduceArgs::in_rows(&how, 1, rows, from, to));
        assert_eq!(made[0].is_some(), made[1].is_some());
        made[0].is_some()
    };
    assert!(in_rows(1, 1, true) && in_rows(16, 16, true) && in_rows(16, 1, false) && in_rows(1, 16, false));
    assert!(
        !in_rows(0, 0, true) && !in_rows(0, 1, false) && !in_rows(17, 17, true) && !in_rows(17, 1, false)
    );
    assert!(!in_rows(2, 1, true) && !in_rows(2, 3, true) && !in_rows(2, 0, false) && !in_rows(2, 17, false));
    let range = Range {
        from: 0,
        to: 0,
        bytes: 0,
    };
    assert!(CopyArgs::new(&[range; 64]).is_some() && CopyArgs::new(&[range; 65]).is_none());
    let in_call = |ranks: u64| {
        let (number, meeting) = (NonZero::<u64>::MIN, args::Meeting::default());
        args::InCall::new(number, 0, (1..=ranks).map(|rank| rank * 64), 16, meeting)
    };
    assert!(in_call(0).is_none() && in_call(1).is_some() && in_call(16).is_some() && in_call(17).is_none());
    let swaps = |n| SwapArgs::new(in_call(3).unwrap(), 0, &vec![SWAP; n]).is_some();
    assert!(swaps(3) && !swaps(2) && !swaps(4));
    let between = |me, ranks| SwapArgs::between(me, &vec![[16; 2]; ranks], 8).is_some();
    assert!(between(0, 1) && between(15, 16) && !between(0, 0) && !between(3, 3) && !between(0, 17));
}

const SWAP: args::Swap = args::Swap {
    block: 0,
    begin: 0,
    bytes: 0,
};
