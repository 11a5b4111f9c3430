//! What happened when, for timelines.

/// Something that a rank did: a message of its, from the moment it wants to send until it has come.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub(crate) rank: usize,
    pub(crate) channel: usize,
    pub(crate) label: String,
    /// Femtoseconds since the call began.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}
