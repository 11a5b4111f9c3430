//! The buffers of a rank, chunk by chunk.

use super::Program;
use crate::plan::schedule::Buffer;
use crate::plan::verify::value::{Domain, Value};

/// What a chunk holds; nothing where a flaw that was told has spoilt it.
pub(super) type Content<S> = Option<Value<S>>;

/// A chunk's contents, if it was written, and the line of the step that did.
#[derive(Clone)]
pub(super) struct Cell<S> {
    pub(super) content: Option<Content<S>>,
    pub(super) line: Option<u32>,
}

impl Program {
    /// Where a chunk of a buffer lies: in place the input's and the output's at the same place of the vector are one.
    #[inline]
    pub(super) fn cell(&self, rank: usize, buffer: Buffer, index: usize, in_place: bool) -> usize {
        let base = match (buffer, in_place) {
            (Buffer::Input, _) | (Buffer::Output, true) => 0,
            (Buffer::Output, false) => self.chunks,
            (Buffer::Scratch, _) => 2 * self.chunks,
        };
        base + self.extent(rank, buffer).start + index
    }

    /// A rank's memory before the first step.
    pub(super) fn memory<D: Domain>(&self, domain: &D, rank: usize) -> Vec<Cell<D::Sum>> {
        let nothing = Cell {
            content: None,
            line: None,
        };
        let mut cells = vec![nothing; 2 * self.chunks + self.gpus[rank].scratch];
        for chunk in self.extent(rank, Buffer::Input) {
            cells[chunk].content = Some(Some(Value {
                grain: chunk as u32,
                finished: false,
                ranks: domain.one(rank),
            }));
        }
        cells
    }
}
