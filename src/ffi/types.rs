//! C's types and numbers.
//!
//! The enumerators stand in `cbindgen.toml`, because C's types are plain integers: C may pass any number, which a Rust
//! enum must not hold. A test compares them with the numbers of the Rust types.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of this header: major, which cclGetVersion tells of the library.
pub const CCL_MAJOR: c_int = 0;
/// The version of this header: minor.
pub const CCL_MINOR: c_int = 1;
/// The version of this header: patch.
pub const CCL_PATCH: c_int = 0;

/// Bytes of a unique id.
pub const CCL_UNIQUE_ID_BYTES: usize = 128;

/// The color of a rank that gets no communicator from cclCommSplit.
pub const CCL_SPLIT_NOCOLOR: c_int = -1;

/// For cclCommShrink: operations that run on the parent go on.
pub const CCL_SHRINK_DEFAULT: c_int = 0;

/// For cclCommShrink: the parent is revoked first, so that operations that run on it end with an error.
pub const CCL_SHRINK_ABORT: c_int = 1;

/// What a `cclConfig_t` that CCL_CONFIG_INITIALIZER filled in holds in `magic`.
pub(super) const CONFIG_MAGIC: c_uint = 0x0cc1_c0f6;

/// What a number in a `cclConfig_t` holds where the default is wanted.
pub(super) const CONFIG_UNDEF_INT: c_int = c_int::MIN;

/// How a call ended: cclSuccess or one of the other results.
pub type cclResult_t = c_int;

/// The type of an element: cclInt8 and so on.
pub type cclDataType_t = c_int;

/// A reduction: cclSum and so on, or what cclRedOpCreatePreMulSum made.
pub type cclRedOp_t = c_int;

/// Where the scalar of a reduction lies: cclScalarDevice or cclScalarHostImmediate.
pub type cclScalarResidence_t = c_int;

/// What a communicator's handle seems to point at. There is no such thing: handles are numbers.
pub struct cclComm {
    _nothing: (),
}

/// A rank's handle of a communicator.
///
/// Any thread may use it. Calls on one communicator are carried out one after the other, in an order that the program
/// makes the same on all ranks.
pub type cclComm_t = *mut cclComm;

/// A stream: an order in which operations are carried out, made by cclStreamCreate.
///
/// NULL: the call returns when the operation is over. The type is a plain pointer, so that a CUDA stream passes as it is, which
/// buffers in the memory of a CUDA device take, managed memory among it; NULL is CUDA's default stream there: see cclAllReduce.
pub type cclStream_t = *mut c_void;

/// What the ranks of a communicator must share before they make it.
///
/// It holds a secret: whoever knows it can join. Send it to the other ranks by a way that others cannot read, as plain
/// bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cclUniqueId {
    /// Opaque.
    pub internal: [c_char; CCL_UNIQUE_ID_BYTES],
}

/// For cclRecvTag: from any rank.
pub const CCL_ANY_SOURCE: c_int = -1;

/// For cclRecvTag: with any tag.
pub const CCL_ANY_TAG: c_int = -1;

/// What a receive got.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cclRecvInfo_t {
    /// The rank that sent it.
    pub source: c_int,
    /// The tag it was sent with.
    pub tag: c_int,
    /// Elements, not bytes.
    pub count: usize,
}

/// How a communicator shall be. Begin with CCL_CONFIG_INITIALIZER and change what you need.
///
/// Later versions add fields at the end; a program that was built with this version goes on working.
// No padding anywhere, at the end above all: a field that was added there would not change the size that tells the
// versions apart.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cclConfig_t {
    /// Filled in by CCL_CONFIG_INITIALIZER: the bytes of this struct.
    pub size: usize,
    /// Filled in by CCL_CONFIG_INITIALIZER.
    pub magic: c_uint,
    /// Filled in by CCL_CONFIG_INITIALIZER: the version of the header.
    pub version: c_uint,
    /// 1: calls return when they are over. With 0 cclCommInitRankConfig, cclCommInitEnv and a new rank's cclCommGrow, outside a
    /// group, return cclInProgress with a handle, which can be used once cclCommGetAsyncError gives cclSuccess for it; until
    /// then no thread may change environment variables, and who aborts it is awaited by the others until their deadlines. Who destroys it
    /// before leaves it once it is made: the making goes on until its deadline, environment variables included.
    pub blocking: c_int,
    /// Milliseconds that the making of the communicator, and each operation, may wait for other ranks; at least 1.
    /// The environment variable CCL_TIMEOUT (seconds) is the default; else it is 2 minutes for the making and 10 for operations. Where ranks wait in a circle, or the process of one is stopped, an
    /// operation's error comes a second or two after that, as it is first found out whom to name.
    pub timeout: c_int,
    /// A name for people, or NULL: logs, `ccl-perf status`, the trace and what is kept when a communicator fails tell it beside the
    /// communicator's own, its first 64 characters.
    pub name: *const c_char,
    /// The transport to use, for example "shm"; NULL leaves the choice to the library.
    pub transport: *const c_char,
    /// The algorithm to use, for example "ring", or what CCL_ALGO may say; NULL leaves the choice to the library.
    pub algorithm: *const c_char,
    /// The most threads, the caller included, by which this rank copies and reduces in long calls; 1 for none but the caller.
    /// There are 64 at most, whatever is given. The environment variable CCL_THREADS (1 to 64) is the default, else as many as there are
    /// cores for each rank of the host, 4 at most.
    pub threads: c_int,
    /// 1: the bits of a reduction depend on the inputs and the number of ranks alone, not on count or transport. Then
    /// "direct", "oneshot" and, where the ranks are a power of two and elements are integers or have 4 bytes or more, "doubling" are the only
    /// algorithms of reductions: others that were forced are refused, at the latest by the first call.
    pub reproducible: c_int,
    /// The most bytes of buffers that the library may hold; 0 leaves it to the library, the rest is not supported yet.
    pub bufferBytes: usize,
}

impl cclConfig_t {
    /// What CCL_CONFIG_INITIALIZER makes.
    pub(super) const INITIALIZER: cclConfig_t = cclConfig_t {
        size: size_of::<cclConfig_t>(),
        magic: CONFIG_MAGIC,
        version: version() as c_uint,
        blocking: CONFIG_UNDEF_INT,
        timeout: CONFIG_UNDEF_INT,
        name: std::ptr::null(),
        transport: std::ptr::null(),
        algorithm: std::ptr::null(),
        threads: CONFIG_UNDEF_INT,
        reproducible: CONFIG_UNDEF_INT,
        bufferBytes: 0,
    };
}

/// The version as one number: CCL_VERSION of its three parts.
pub(super) const fn version() -> c_int {
    CCL_MAJOR * 10_000 + CCL_MINOR * 100 + CCL_PATCH
}

/// The results, as [`cclResult_t`] numbers them. A number is never used for another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Code {
    Success = 0,
    UnhandledCudaError = 1,
    SystemError = 2,
    InternalError = 3,
    InvalidArgument = 4,
    InvalidUsage = 5,
    RemoteError = 6,
    InProgress = 7,
    Timeout = 8,
}
