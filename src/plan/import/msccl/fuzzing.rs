//! MSCCL's XML, for `fuzz/`.

use super::prove::prove;
use super::read::read;

/// Reads what may be a file, and proves what is read.
pub(crate) fn algorithm(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).ok();
    if let Some(reading) = text.and_then(|text| read(text, "file", 0).ok()) {
        let verdict = prove(&reading, reading.program.protocol.slots());
        assert!(
            reading
                .notes
                .iter()
                .all(|note| note.times > 0 && !note.text.is_empty())
        );
        assert!(verdict.flaws.first.len() <= verdict.flaws.count);
        for flaw in &verdict.flaws.first {
            assert!(!flaw.to_string().is_empty());
        }
    }
}
