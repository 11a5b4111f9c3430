/*
 * ccl: collective communication between processes.
 *
 * Names and arguments follow NCCL's. Every function may be called from any thread; those that return cclResult_t tell
 * by cclGetLastError what went wrong. Handles that were destroyed, or that never were handles, are refused, never
 * dereferenced. A thread must not be cancelled (pthread_cancel) amid a call, as the process may be aborted then, nor leave one by siglongjmp. A
 * handler of signals that may come amid a call must call nothing of ccl, nor fork, which would wait there for ever; _Fork, vfork and
 * posix_spawn do not. Calls need 64 KiB of their thread's stack.
 *
 * A process that ends (exit, return from main) leaves its communicators: handlers of atexit that were registered before it first had to
 * do with one (or with an id), and global objects' destructors, come after that, and can give handles back but not communicate.
 *
 * Written by `cargo xtask header`; changes belong into src/ffi/ and cbindgen.toml.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */


#ifndef CCL_H
#define CCL_H

#include <limits.h>
#include <stddef.h>

/** A version as one number, to compare: CCL_VERSION(1, 2, 3) is 10203. */
#define CCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))

/** The version of this header. */
#define CCL_VERSION_CODE CCL_VERSION(CCL_MAJOR, CCL_MINOR, CCL_PATCH)

/** Results (cclResult_t). Numbers are never used for another meaning. */
enum {
    cclSuccess = 0,
    /** A CUDA call failed. */
    cclUnhandledCudaError = 1,
    /**
     * The operating system refused something. An operation was not begun then, and the communicator is as good as before, unless
     * cclCommGetAsyncError says otherwise; the other ranks wait for this one's call.
     */
    cclSystemError = 2,
    /** The library is at fault. */
    cclInternalError = 3,
    /** An argument was wrong. Nothing was sent, and the communicator is as good as before. */
    cclInvalidArgument = 4,
    /** Something that is not there, is used as it is not meant, or differs between the ranks. */
    cclInvalidUsage = 5,
    /** A rank was lost, left or aborted, or the ranks cannot make a communicator together: the text names them. */
    cclRemoteError = 6,
    /** Not over yet. */
    cclInProgress = 7,
    /** Ranks stayed silent past the deadline: the text names them. */
    cclTimeout = 8,
    /** How many there are. */
    cclNumResults = 9
};

/** Types of elements (cclDataType_t). */
enum {
    cclInt8 = 0,
    cclChar = 0,
    cclUint8 = 1,
    cclInt32 = 2,
    cclInt = 2,
    cclUint32 = 3,
    cclInt64 = 4,
    cclUint64 = 5,
    cclFloat16 = 6,
    cclHalf = 6,
    cclFloat32 = 7,
    cclFloat = 7,
    cclFloat64 = 8,
    cclDouble = 8,
    cclBfloat16 = 9,
    /** What is beyond the greatest number, 448, becomes that number. Products are of float32 first: NaN where that overflows and is
     * multiplied by 0. */
    cclFloat8e4m3 = 10,
    /** Finite results beyond the greatest number, 57344, become that number. Products are of float32 first: where that overflows,
     * infinite. */
    cclFloat8e5m2 = 11,
    cclInt16 = 12,
    cclUint16 = 13,
    /** How many there are. */
    cclNumTypes = 14
};

/** Reductions (cclRedOp_t). */
enum {
    /** Integers wrap. */
    cclSum = 0,
    /** Integers wrap. */
    cclProd = 1,
    /** NaN wins. */
    cclMax = 2,
    /** NaN wins. */
    cclMin = 3,
    /**
     * The sum, divided once by the number of ranks; integers toward zero. The sum of integers wraps, and sums on their way from rank to
     * rank are of the data type: those of 16- and 8-bit floats may be too large where their average is not. cclRedOpCreatePreMulSum with 1/n
     * divides first.
     */
    cclAvg = 4,
    /** Integers only, as the next two. */
    cclBitAnd = 5,
    cclBitOr = 6,
    cclBitXor = 7,
    /** How many there are, but for those that cclRedOpCreatePreMulSum makes. */
    cclNumOps = 8
};

/** Where the scalar of a reduction lies (cclScalarResidence_t). */
enum {
    /** In a device's memory. Not supported yet. */
    cclScalarDevice = 0,
    /** In host memory; it is read during the call. */
    cclScalarHostImmediate = 1
};

/** What CCL_CONFIG_INITIALIZER puts into `magic`. */
#define CCL_CONFIG_MAGIC 0x0cc1c0f6u

/** A number of cclConfig_t that was not set: the default is used. */
#define CCL_CONFIG_UNDEF_INT INT_MIN

/** A text of cclConfig_t that was not set. */
#define CCL_CONFIG_UNDEF_PTR NULL

/** The first value of every cclConfig_t: all defaults. */
#define CCL_CONFIG_INITIALIZER                                                                                         \
    {                                                                                                                  \
        sizeof(cclConfig_t),      /* size */                                                                           \
            CCL_CONFIG_MAGIC,     /* magic */                                                                          \
            CCL_VERSION_CODE,     /* version */                                                                        \
            CCL_CONFIG_UNDEF_INT, /* blocking */                                                                       \
            CCL_CONFIG_UNDEF_INT, /* timeout */                                                                        \
            CCL_CONFIG_UNDEF_PTR, /* name */                                                                           \
            CCL_CONFIG_UNDEF_PTR, /* transport */                                                                      \
            CCL_CONFIG_UNDEF_PTR, /* algorithm */                                                                      \
            CCL_CONFIG_UNDEF_INT, /* threads */                                                                        \
            CCL_CONFIG_UNDEF_INT, /* reproducible */                                                                   \
            0                     /* bufferBytes */                                                                    \
    }


/**
 * The version of this header: major, which cclGetVersion tells of the library.
 */
#define CCL_MAJOR 0

/**
 * The version of this header: minor.
 */
#define CCL_MINOR 1

/**
 * The version of this header: patch.
 */
#define CCL_PATCH 0

/**
 * Bytes of a unique id.
 */
#define CCL_UNIQUE_ID_BYTES 128

/**
 * The color of a rank that gets no communicator from cclCommSplit.
 */
#define CCL_SPLIT_NOCOLOR -1

/**
 * For cclCommShrink: operations that run on the parent go on.
 */
#define CCL_SHRINK_DEFAULT 0

/**
 * For cclCommShrink: the parent is revoked first, so that operations that run on it end with an error.
 */
#define CCL_SHRINK_ABORT 1

/**
 * For cclRecvTag: from any rank.
 */
#define CCL_ANY_SOURCE -1

/**
 * For cclRecvTag: with any tag.
 */
#define CCL_ANY_TAG -1

/**
 * What a communicator's handle seems to point at. There is no such thing: handles are numbers.
 */
typedef struct cclComm cclComm;

/**
 * How a call ended: cclSuccess or one of the other results.
 */
typedef int cclResult_t;

/**
 * A rank's handle of a communicator.
 *
 * Any thread may use it. Calls on one communicator are carried out one after the other, in an order that the program
 * makes the same on all ranks.
 */
typedef struct cclComm *cclComm_t;

/**
 * What the ranks of a communicator must share before they make it.
 *
 * It holds a secret: whoever knows it can join. Send it to the other ranks by a way that others cannot read, as plain
 * bytes.
 */
typedef struct cclUniqueId {
    /**
     * Opaque.
     */
    char internal[CCL_UNIQUE_ID_BYTES];
} cclUniqueId;

/**
 * How a communicator shall be. Begin with CCL_CONFIG_INITIALIZER and change what you need.
 *
 * Later versions add fields at the end; a program that was built with this version goes on working.
 */
typedef struct cclConfig_t {
    /**
     * Filled in by CCL_CONFIG_INITIALIZER: the bytes of this struct.
     */
    size_t size;
    /**
     * Filled in by CCL_CONFIG_INITIALIZER.
     */
    unsigned int magic;
    /**
     * Filled in by CCL_CONFIG_INITIALIZER: the version of the header.
     */
    unsigned int version;
    /**
     * 1: calls return when they are over. With 0 cclCommInitRankConfig, cclCommInitEnv and a new rank's cclCommGrow, outside a
     * group, return cclInProgress with a handle, which can be used once cclCommGetAsyncError gives cclSuccess for it; until
     * then no thread may change environment variables, and who aborts it is awaited by the others until their deadlines. Who destroys it
     * before leaves it once it is made: the making goes on until its deadline, environment variables included.
     */
    int blocking;
    /**
     * Milliseconds that the making of the communicator, and each operation, may wait for other ranks; at least 1.
     * The environment variable CCL_TIMEOUT (seconds) is the default; else it is 2 minutes for the making and 10 for operations. Where ranks wait in a circle, or the process of one is stopped, an
     * operation's error comes a second or two after that, as it is first found out whom to name.
     */
    int timeout;
    /**
     * A name for people, or NULL: logs, `ccl-perf status`, the trace and what is kept when a communicator fails tell it beside the
     * communicator's own, its first 64 characters.
     */
    const char *name;
    /**
     * The transport to use, for example "shm"; NULL leaves the choice to the library.
     */
    const char *transport;
    /**
     * The algorithm to use, for example "ring", or what CCL_ALGO may say; NULL leaves the choice to the library.
     */
    const char *algorithm;
    /**
     * The most threads, the caller included, by which this rank copies and reduces in long calls; 1 for none but the caller.
     * There are 64 at most, whatever is given. The environment variable CCL_THREADS (1 to 64) is the default, else as many as there are
     * cores for each rank of the host, 4 at most.
     */
    int threads;
    /**
     * 1: the bits of a reduction depend on the inputs and the number of ranks alone, not on count or transport. Then
     * "direct", "oneshot" and, where the ranks are a power of two and elements are integers or have 4 bytes or more, "doubling" are the only
     * algorithms of reductions: others that were forced are refused, at the latest by the first call.
     */
    int reproducible;
    /**
     * The most bytes of buffers that the library may hold; 0 leaves it to the library, the rest is not supported yet.
     */
    size_t bufferBytes;
} cclConfig_t;

/**
 * The type of an element: cclInt8 and so on.
 */
typedef int cclDataType_t;

/**
 * A reduction: cclSum and so on, or what cclRedOpCreatePreMulSum made.
 */
typedef int cclRedOp_t;

/**
 * A stream: an order in which operations are carried out, made by cclStreamCreate.
 *
 * NULL: the call returns when the operation is over. The type is a plain pointer, so that a CUDA stream passes as it is, which
 * buffers in the memory of a CUDA device take, managed memory among it; NULL is CUDA's default stream there: see cclAllReduce.
 */
typedef void *cclStream_t;

/**
 * Where the scalar of a reduction lies: cclScalarDevice or cclScalarHostImmediate.
 */
typedef int cclScalarResidence_t;

/**
 * What a receive got.
 */
typedef struct cclRecvInfo_t {
    /**
     * The rank that sent it.
     */
    int source;
    /**
     * The tag it was sent with.
     */
    int tag;
    /**
     * Elements, not bytes.
     */
    size_t count;
} cclRecvInfo_t;

/**
 * A function of C's that a stream calls.
 */
typedef void (*cclStreamCallback_t)(void*, cclResult_t);

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Names a result in a few words.
 *
 * @return A text that is never freed and stays valid for ever; also for numbers that are no result.
 */
const char *cclGetErrorString(cclResult_t result);

/**
 * Tells what went wrong: what was found, what was wanted and what to do.
 *
 * With a communicator: why it stopped working if it did, on whichever rank that began; otherwise the last call on it
 * that failed, on any thread. With NULL: the last call of this thread that failed, the making of a communicator
 * included. Never waits for a running call.
 *
 * @return A text that stays valid until the same thread's next call of ccl; not to be freed. Empty when nothing went
 * wrong.
 */
const char *cclGetLastError(cclComm_t comm);

/**
 * Tells the library's version, as CCL_VERSION makes it of major, minor and patch.
 *
 * # Safety
 * `version` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclGetVersion(int *version);

/**
 * Makes the id by which the ranks of one communicator find each other.
 *
 * One process calls it and passes the 128 bytes to the others, which may be its own forked children; it listens for
 * them and so must live until all have made the communicator. One communicator can be made of each id. Of ids to which nobody has come
 * a process keeps the latest 10,000.
 *
 * # Safety
 * `uniqueId` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclGetUniqueId(struct cclUniqueId *uniqueId);

/**
 * Makes a communicator of `nranks` ranks, of which the caller is `rank` (0 to nranks - 1).
 *
 * All ranks call it, each with its own number and the same id; it returns when all have, or with an error that names
 * the ranks that did not come in time. `*comm` is then a handle, to be given back with cclCommDestroy or cclCommAbort;
 * after an error it is NULL, and cclGetLastError(NULL) tells why. In a group it is NULL until cclGroupEnd, which makes all
 * of the group's communicators side by side, or none if one fails (others that wait at ids of this process then end at once, those
 * at ids of other processes by their deadline).
 *
 * # Safety
 * `comm` is NULL, which is an invalid argument, or may be written, in a group until that ends.
 */
cclResult_t cclCommInitRank(cclComm_t *comm,
                            int nranks,
                            struct cclUniqueId commId,
                            int rank);

/**
 * The same with a configuration; NULL is the default one.
 *
 * The configuration is only read, and needed only during the call.
 *
 * # Safety
 * `comm` as for cclCommInitRank. `config` is NULL or begins with its size, as CCL_CONFIG_INITIALIZER makes it; its
 * texts end with NUL.
 */
cclResult_t cclCommInitRankConfig(cclComm_t *comm,
                                  int nranks,
                                  struct cclUniqueId commId,
                                  int rank,
                                  struct cclConfig_t *config);

/**
 * Makes the communicator of all ranks that a launcher started (torchrun, mpirun of Open MPI or MPICH, srun,
 * Kubernetes), with the rank that it gave to this process. NULL is the default configuration.
 *
 * All ranks call it; each further call makes another communicator of the same ranks, and a call counts also where it
 * fails. The first of these pairs that is set says rank and ranks: RANK and WORLD_SIZE; OMPI_COMM_WORLD_RANK and
 * OMPI_COMM_WORLD_SIZE; PMI_RANK and PMI_SIZE; in a Slurm step SLURM_PROCID and SLURM_STEP_NUM_TASKS; in a pod of an
 * indexed Job JOB_COMPLETION_INDEX and WORLD_SIZE; of launchers that run in each other the nearest counts. On one
 * host the ranks then find each other without more; jobs that are started by hand at the same time need each a MASTER_PORT of its own. Between hosts a launcher that offers PMIx
 * or PMI-1 carries what they need, PMI-1 only in a program that has loaded no MPI. Otherwise they need MASTER_ADDR,
 * MASTER_PORT (they meet at the port after it; or CCL_MASTER_PORT, which is taken as it is) and a secret: a file of mode 0600 that CCL_SECRET_FILE names, or CCL_SECRET, which the first call
 * takes out of the environment.
 *
 * `*comm` is as for cclCommInitRank.
 *
 * # Safety
 * `comm` and `config` as for cclCommInitRankConfig. While CCL_SECRET is set, no other thread changes environment
 * variables.
 */
cclResult_t cclCommInitEnv(cclComm_t *comm,
                           struct cclConfig_t *config);

/**
 * Ends the work on a communicator in order. The handle stays, for questions and for cclCommDestroy.
 *
 * All ranks call it once they have no more operations on the communicator; calls that run on it end first. Ranks whose last
 * calls differ are told so; for that it waits a second at most for a rank that has made fewer calls, and two for one whose process
 * does not answer.
 */
cclResult_t cclCommFinalize(cclComm_t comm);

/**
 * Leaves the communicator and gives the handle back, also after an error. NULL is fine.
 *
 * Does what cclCommFinalize does if that was not called, but compares no calls. Calls that other threads have running on the
 * communicator go on; it is left when the last of them has ended. Waits a second at most until the others have heard that it is left; for
 * further communicators a tenth of that, as long as they do not hear in time, as where a process is stopped. Where device memory was used it
 * may give pinned memory back, for which the driver waits for all streams of the current context, as it does when device memory is freed.
 */
cclResult_t cclCommDestroy(cclComm_t comm);

/**
 * Stops the communicator on all ranks: calls that run on it, here and on the other ranks, end soon with an error that names
 * this rank, and later ones are refused. Never waits for them. Unlike cclCommAbort it leaves the handle, for
 * cclCommShrink and cclCommDestroy.
 *
 * @param revokeFlags 0.
 */
cclResult_t cclCommRevoke(cclComm_t comm,
                          int revokeFlags);

/**
 * Stops the communicator on all ranks and gives the handle back.
 *
 * Calls that run on it, here and on the other ranks, end soon with an error that names this rank; so does what is made of it here. Never
 * waits for them, but as cclCommDestroy does until the others have heard: some 1.3 s at most, for further communicators 0.4 s. Where a
 * process is stopped by which the others would hear of it, calls of few ranks end within some 10 s, of thousands within minutes.
 */
cclResult_t cclCommAbort(cclComm_t comm);

/**
 * Tells whether the communicator works: cclSuccess in `*asyncError`, cclInProgress while it is still being made in the
 * background, or why it stopped or could not be made; cclGetLastError has the text. Never waits for a running call.
 *
 * # Safety
 * `asyncError` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclCommGetAsyncError(cclComm_t comm,
                                 cclResult_t *asyncError);

/**
 * Tells the number of ranks. Never waits for a running call.
 *
 * # Safety
 * `count` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclCommCount(cclComm_t comm, int *count);

/**
 * Tells the caller's rank. Never waits for a running call.
 *
 * # Safety
 * `rank` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclCommUserRank(cclComm_t comm, int *rank);

/**
 * Tells the number of the CUDA device that the rank works with: that whose context was the current one of the thread that made the
 * communicator, or that of cclCommInitAll; of one that was made of another one, that one's. Never waits for a running call.
 *
 * @return cclInvalidUsage where there was none, with -1 in `*device`. Host memory needs none, and buffers of any device may be used.
 *
 * # Safety
 * `device` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclCommCuDevice(cclComm_t comm,
                            int *device);

/**
 * Changes how long operations may wait for other ranks, from now on, those under way included: at least 1 millisecond. The same
 * on all ranks. Errors may come later, as with that of cclConfig_t.
 */
cclResult_t cclCommSetTimeout(cclComm_t comm,
                              int milliseconds);

/**
 * Makes a communicator of the ranks that pass the same `color`, in the order of their `key`, and of their ranks in
 * `comm` where keys are equal.
 *
 * It is an operation: all ranks of `comm` call it, at the same place among the others; with CCL_SPLIT_NOCOLOR a rank
 * takes part, and gets NULL. `*newcomm` is a handle as cclCommInitRank makes it, to be given back like that, before or
 * after `comm`; after an error it is NULL. All ranks must pass valid arguments: one whose arguments are refused takes no
 * part, and the others wait for it as in any operation. If a rank is lost once the colors are known, or does not come,
 * the call fails on all ranks of its color with cclRemoteError or cclTimeout and leaves `comm` as it is. In a group it is
 * carried out at the end, before the group's operations, beside the other communicators that the group makes.
 *
 * @param color 0 or more, or CCL_SPLIT_NOCOLOR.
 * @param config Ranks of one color pass settings that fit; NULL means the settings of `comm` with its present timeout.
 *
 * # Safety
 * `newcomm` is NULL, which is an invalid argument, or may be written, in a group until that ends. `config` as for
 * cclCommInitRankConfig.
 */
cclResult_t cclCommSplit(cclComm_t comm,
                         int color,
                         int key,
                         cclComm_t *newcomm,
                         struct cclConfig_t *config);

/**
 * Makes another communicator of the same ranks: cclCommSplit with one color for all, and one key.
 *
 * # Safety
 * As cclCommSplit.
 */
cclResult_t cclCommDup(cclComm_t comm, cclComm_t *newcomm, struct cclConfig_t *config);

/**
 * Makes a communicator whose `ndev` ranks are all in this process: their handles, by rank, in `comms`.
 *
 * Each is as cclCommInitRank makes it and is given back by itself. An operation needs all of them, so that each rank calls
 * it on a thread of its own, or one thread calls it for all in a group. After an error all of `comms` are NULL, unless
 * it was about `ndev`.
 *
 * @param devlist The CUDA device of each rank, of which several may have one. NULL: all have the caller's current one, if there is
 * one. Buffers may be host memory either way.
 *
 * # Safety
 * `comms` is NULL, which is an invalid argument, or `ndev` handles may be written there. `devlist` is NULL or holds that many numbers.
 */
cclResult_t cclCommInitAll(cclComm_t *comms,
                           int ndev,
                           const int *devlist);

/**
 * Makes a communicator of the ranks of `comm` without those that are excluded, in the order of their ranks.
 *
 * Each rank that is not excluded calls it, with the same ones; those that are may be dead. It works after a failure of `comm`, too,
 * which stays as it is. With a count of 0 those are left out that have died or left, as far as is known, and those that do before
 * all others have come.
 *
 * @param excludeRanksList NULL where the count is 0.
 * @param config NULL means the settings of `comm` with its present timeout.
 * @param shrinkFlags CCL_SHRINK_DEFAULT, or CCL_SHRINK_ABORT, which revokes `comm` first.
 * @return cclRemoteError where another one was lost, and cclTimeout where not all come in time, or they do not name the same
 * ones: then it can be tried again.
 *
 * # Safety
 * `excludeRanksList` holds that many numbers. `newcomm` and `config` as for cclCommSplit.
 */
cclResult_t cclCommShrink(cclComm_t comm,
                          int *excludeRanksList,
                          int excludeRanksCount,
                          cclComm_t *newcomm,
                          struct cclConfig_t *config,
                          int shrinkFlags);

/**
 * Makes the id by which new ranks join when `comm` is next grown by cclCommGrow: any of its ranks calls this and passes the
 * bytes to the new ones. These can be on other hosts if the ranks of `comm` listen at a network, as they do where its own id
 * was made by cclGetUniqueId on a host that has one.
 *
 * # Safety
 * `uniqueId` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclCommGetUniqueId(cclComm_t comm,
                               struct cclUniqueId *uniqueId);

/**
 * Makes a communicator of all ranks of `comm`, with their numbers, and of new ones with the numbers after these.
 *
 * The ranks of `comm` pass it with the rank -1, and NULL or the id for `uniqueId`; the new ones pass NULL, their number and the id of
 * cclCommGetUniqueId. It returns when all have called it. `comm` stays as it is.
 *
 * @param nranks All ranks, old and new.
 * @param config NULL means the settings of `comm` with its present timeout; for a new rank the default, which must fit.
 *
 * # Safety
 * `uniqueId` is NULL or may be read. `newcomm` and `config` as for cclCommSplit.
 */
cclResult_t cclCommGrow(cclComm_t comm,
                        int nranks,
                        const struct cclUniqueId *uniqueId,
                        int rank,
                        cclComm_t *newcomm,
                        struct cclConfig_t *config);

/**
 * Reduces the `count` elements of `sendbuff` over all ranks and leaves the result in `recvbuff` on every rank.
 *
 * All ranks pass the same count, type and operation. In place where sendbuff == recvbuff; any other overlap is an
 * invalid argument. Buffers are memory of the host or of a CUDA device, of any alignment; with a count of 0 they may be NULL.
 * The result has the same bits on every rank; of a NaN the sign and the payload may differ.
 *
 * Device memory, which the CUDA driver knows, takes a CUDA stream (NULL is its default one): the call returns at once, and the
 * operation is carried out in the order of the stream, through pinned host memory. When it fails the stream goes on, `recvbuff`
 * holds anything, and cclCommGetAsyncError tells. Ranks that are threads of one process need CUDA streams of their own that do not
 * wait for each other. cclUnhandledCudaError is what the driver refused.
 *
 * With CCL_CUDA_DIRECT=on collectives that have a buffer, but for V forms, can be captured into a CUDA graph, by all ranks; all
 * else is a cclInvalidUsage, and the capture goes on. All ranks launch their graphs in one order with their calls, as often as they
 * like; where launches, or launches and calls, of one communicator are in several streams the program has these wait for each
 * other. A launch has no deadline, nor is it checked that the ranks launch the same; when a rank is lost or aborts the graph goes on,
 * with anything in the buffers, and cclCommGetAsyncError tells. No graph is launched once its communicator is destroyed, or that of
 * another rank. That calls differ may be told a little after the streams have gone on. Such calls do not begin together where a group
 * has several of them in one stream: those of several communicators all ranks make there in one order, else the streams wait for each other
 * until the deadline.
 *
 * Of ranks that are threads of one process and use one device such a collective returns, where it is not captured, once all ranks
 * have made it and the streams have it; calls before it that go through host memory have then begun. Calls that differ, and ranks that do not come, are its result then, and nothing is carried out;
 * what the streams have is carried out whatever becomes of the communicator, and after it is destroyed. A thread that has several of the ranks makes their
 * calls in a group. The ranks may use any streams, and in a group make calls of several communicators in any order.
 *
 * @param count Elements, not bytes.
 * @param stream Of host memory: NULL, the call returns when `recvbuff` is complete; or a stream of cclStreamCreate.
 * @return cclSuccess; cclInvalidArgument before anything moved, with the communicator as good as before; cclRemoteError
 * when a rank was lost, left or aborted, cclTimeout when one stayed silent past the deadline, cclInvalidUsage when the
 * ranks' calls differ; a rank that only sends in its call, or has a count of 0, may be told that as late as by its next call or
 * cclCommFinalize. After these three the communicator is closed, as cclCommGetAsyncError tells, and `recvbuff` holds anything. A
 * cclInvalidUsage of another kind, e.g. after cclCommFinalize, leaves all as it was.
 *
 * # Safety
 * The buffers hold `count` elements each, which nobody else changes, nor in `recvbuff` reads, during the call.
 */
cclResult_t cclAllReduce(const void *sendbuff,
                         void *recvbuff,
                         size_t count,
                         cclDataType_t datatype,
                         cclRedOp_t op,
                         cclComm_t comm,
                         cclStream_t stream);

/**
 * Copies the `count` elements of `sendbuff` on rank `root` into `recvbuff` on every rank, the root included.
 *
 * All ranks pass the same count, type and root. Of ranks that name themselves each only sends: that others named another root they
 * may learn as late as in the next call, or when they finalize. `sendbuff` is looked at on the root alone and may be anything
 * elsewhere. In place on the root where sendbuff == recvbuff; any other overlap is an invalid argument. Buffers have
 * any alignment; with a count of 0 they may be NULL.
 *
 * @param count Elements, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce; `sendbuff` only on the root.
 */
cclResult_t cclBroadcast(const void *sendbuff,
                         void *recvbuff,
                         size_t count,
                         cclDataType_t datatype,
                         int root,
                         cclComm_t comm,
                         cclStream_t stream);

/**
 * cclBroadcast in place: `buff` is sent on rank `root` and filled on the others.
 *
 * # Safety
 * `buff` holds `count` elements, which nobody else changes during the call, nor, except on the root, reads.
 */
cclResult_t cclBcast(void *buff,
                     size_t count,
                     cclDataType_t datatype,
                     int root,
                     cclComm_t comm,
                     cclStream_t stream);

/**
 * Reduces the `count` elements of `sendbuff` over all ranks and leaves the result in `recvbuff` on rank `root`.
 *
 * All ranks pass the same count, type, operation and root. `recvbuff` is looked at on the root alone and may be anything
 * elsewhere. In place on the root where sendbuff == recvbuff; any other overlap is an invalid argument.
 *
 * @param count Elements, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce, with the buffers that this rank uses.
 */
cclResult_t cclReduce(const void *sendbuff,
                      void *recvbuff,
                      size_t count,
                      cclDataType_t datatype,
                      cclRedOp_t op,
                      int root,
                      cclComm_t comm,
                      cclStream_t stream);

/**
 * Gathers the `sendcount` elements of `sendbuff` of every rank into `recvbuff` on every rank: those of rank r at element
 * r * sendcount.
 *
 * All ranks pass the same count and type; `recvbuff` holds sendcount elements for each rank. In place where
 * sendbuff == recvbuff + rank * sendcount; any other overlap is an invalid argument.
 *
 * @param sendcount Elements of one rank, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce, with the buffers that this rank uses.
 */
cclResult_t cclAllGather(const void *sendbuff,
                         void *recvbuff,
                         size_t sendcount,
                         cclDataType_t datatype,
                         cclComm_t comm,
                         cclStream_t stream);

/**
 * Reduces `sendbuff` over all ranks and leaves in `recvbuff` of rank r the `recvcount` elements of the result from
 * r * recvcount on.
 *
 * All ranks pass the same count, type and operation; `sendbuff` holds recvcount elements for each rank. In place where
 * recvbuff == sendbuff + rank * recvcount; any other overlap is an invalid argument.
 *
 * @param recvcount Elements of one rank, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce, with the buffers that this rank uses.
 */
cclResult_t cclReduceScatter(const void *sendbuff,
                             void *recvbuff,
                             size_t recvcount,
                             cclDataType_t datatype,
                             cclRedOp_t op,
                             cclComm_t comm,
                             cclStream_t stream);

/**
 * Gathers the `count` elements of `sendbuff` of every rank into `recvbuff` on rank `root`: those of rank r at element
 * r * count.
 *
 * All ranks pass the same count, type and root; `recvbuff` holds count elements for each rank on the root, and may be
 * anything elsewhere. In place on the root where sendbuff == recvbuff + root * count; any other overlap is an invalid
 * argument.
 *
 * @param count Elements of one rank, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce, with the buffers that this rank uses.
 */
cclResult_t cclGather(const void *sendbuff,
                      void *recvbuff,
                      size_t count,
                      cclDataType_t datatype,
                      int root,
                      cclComm_t comm,
                      cclStream_t stream);

/**
 * Copies the `count` elements of `sendbuff` on rank `root` from r * count on into `recvbuff` on rank r, the root included.
 *
 * All ranks pass the same count, type and root; `sendbuff` holds count elements for each rank on the root, and may be
 * anything elsewhere. In place on the root where recvbuff == sendbuff + root * count; any other overlap is an invalid
 * argument.
 *
 * @param count Elements of one rank, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce, with the buffers that this rank uses.
 */
cclResult_t cclScatter(const void *sendbuff,
                       void *recvbuff,
                       size_t count,
                       cclDataType_t datatype,
                       int root,
                       cclComm_t comm,
                       cclStream_t stream);

/**
 * Copies the `count` elements of `sendbuff` from r * count on into `recvbuff` of rank r, at the caller's rank * count.
 *
 * All ranks pass the same count and type; both buffers hold count elements for each rank. In place where
 * sendbuff == recvbuff; any other overlap is an invalid argument.
 *
 * @param count Elements from one rank to another, not bytes.
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce.
 *
 * # Safety
 * As for cclAllReduce, with the buffers that this rank uses.
 */
cclResult_t cclAlltoAll(const void *sendbuff,
                        void *recvbuff,
                        size_t count,
                        cclDataType_t datatype,
                        cclComm_t comm,
                        cclStream_t stream);

/**
 * Returns when every rank has called it.
 *
 * @param stream NULL: the call blocks. A CUDA stream, in a process that has loaded its driver: what is in the streams meets.
 * @return As cclAllReduce.
 */
cclResult_t cclBarrier(cclComm_t comm,
                       cclStream_t stream);

/**
 * Copies `sendcounts[r]` elements of `sendbuff` from `sdispls[r]` on to rank r, and what rank r has for this one into
 * `recvbuff`: `recvcounts[r]` elements from `rdispls[r]` on.
 *
 * `sendcounts[b]` on rank a and `recvcounts[a]` on rank b are the same. Blocks lie in any order and with gaps, which stay
 * untouched (but those of a side in device memory, with the gaps between them, lie in one allocation); those of `recvbuff` do not overlap. There is no form in place: no block that is received may overlap one that is
 * sent. Counts and displacements are elements, not bytes; the arrays have an element for each rank and are read during the
 * call. The displacement of a block without elements is not looked at.
 *
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAllReduce. Ranks whose counts for each other differ have made calls that differ; some may hear of it only from
 * their next call.
 *
 * # Safety
 * As for cclAllReduce, with the elements of the blocks; the arrays hold an element for each rank.
 */
cclResult_t cclAlltoAllV(const void *sendbuff,
                         const size_t *sendcounts,
                         const size_t *sdispls,
                         void *recvbuff,
                         const size_t *recvcounts,
                         const size_t *rdispls,
                         cclDataType_t datatype,
                         cclComm_t comm,
                         cclStream_t stream);

/**
 * Gathers the `sendcount` elements of `sendbuff` of every rank into `recvbuff` on every rank: those of rank r are the
 * `recvcounts[r]` elements from `rdispls[r]` on.
 *
 * All ranks pass the same counts, each its own displacements; sendcount is the rank's own recvcounts[rank]. In place where
 * sendbuff == recvbuff + rdispls[rank]; any other overlap is an invalid argument. Blocks and arrays are as in cclAlltoAllV.
 *
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAlltoAllV.
 *
 * # Safety
 * As for cclAlltoAllV.
 */
cclResult_t cclAllGatherV(const void *sendbuff,
                          size_t sendcount,
                          void *recvbuff,
                          const size_t *recvcounts,
                          const size_t *rdispls,
                          cclDataType_t datatype,
                          cclComm_t comm,
                          cclStream_t stream);

/**
 * Reduces over all ranks the `sendcounts[r]` elements of `sendbuff` from `sdispls[r]` on, and leaves the result in `recvbuff`
 * of rank r.
 *
 * All ranks pass the same counts, type and operation, each its own displacements; recvcount is the rank's own
 * sendcounts[rank]. In place where recvbuff == sendbuff + sdispls[rank]; any other overlap is an invalid argument. Blocks and
 * arrays are as in cclAlltoAllV.
 *
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAlltoAllV.
 *
 * # Safety
 * As for cclAlltoAllV.
 */
cclResult_t cclReduceScatterV(const void *sendbuff,
                              const size_t *sendcounts,
                              const size_t *sdispls,
                              void *recvbuff,
                              size_t recvcount,
                              cclDataType_t datatype,
                              cclRedOp_t op,
                              cclComm_t comm,
                              cclStream_t stream);

/**
 * Gathers the `sendcount` elements of `sendbuff` of every rank into `recvbuff` on rank `root`: those of rank r are the
 * `recvcounts[r]` elements from `rdispls[r]` on.
 *
 * All ranks pass the same type and root; `recvbuff` and the arrays are looked at on the root alone and may be anything
 * elsewhere. recvcounts[r] is the sendcount of rank r. In place on the root where sendbuff == recvbuff + rdispls[root]; any
 * other overlap is an invalid argument. Blocks and arrays are as in cclAlltoAllV.
 *
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAlltoAllV.
 *
 * # Safety
 * As for cclAlltoAllV, with what this rank uses.
 */
cclResult_t cclGatherV(const void *sendbuff,
                       size_t sendcount,
                       void *recvbuff,
                       const size_t *recvcounts,
                       const size_t *rdispls,
                       cclDataType_t datatype,
                       int root,
                       cclComm_t comm,
                       cclStream_t stream);

/**
 * Copies the `sendcounts[r]` elements of `sendbuff` on rank `root` from `sdispls[r]` on into `recvbuff` on rank r, the root
 * included.
 *
 * All ranks pass the same type and root; `sendbuff` and the arrays are looked at on the root alone and may be anything
 * elsewhere. sendcounts[r] is the recvcount of rank r. In place on the root where recvbuff == sendbuff + sdispls[root]; any
 * other overlap is an invalid argument. Blocks and arrays are as in cclAlltoAllV.
 *
 * @param stream NULL: the call returns when `recvbuff` is complete and `sendbuff` may be changed.
 * @return As cclAlltoAllV.
 *
 * # Safety
 * As for cclAlltoAllV, with what this rank uses.
 */
cclResult_t cclScatterV(const void *sendbuff,
                        const size_t *sendcounts,
                        const size_t *sdispls,
                        void *recvbuff,
                        size_t recvcount,
                        cclDataType_t datatype,
                        int root,
                        cclComm_t comm,
                        cclStream_t stream);

/**
 * Makes a reduction that multiplies this rank's elements by `*scalar` when they are read, and adds what the ranks have.
 *
 * Each rank makes its own, at any time, and may have another scalar. `*op` may be passed to calls on `comm` with elements
 * of type `datatype`, until cclRedOpDestroy; a call that was made keeps what it needs. Products of 16- and 8-bit floats
 * are rounded before they are added; integers wrap.
 *
 * @param scalar An element of type `datatype`, of any alignment. It is read during the call.
 * @param residence cclScalarHostImmediate. cclScalarDevice is not supported yet.
 * @return cclSuccess; cclInvalidArgument; cclInvalidUsage for cclScalarDevice.
 *
 * # Safety
 * `op` is NULL, which is an invalid argument, or may be written. `scalar` is NULL, too, or holds an element.
 */
cclResult_t cclRedOpCreatePreMulSum(cclRedOp_t *op,
                                    void *scalar,
                                    cclDataType_t datatype,
                                    cclScalarResidence_t residence,
                                    cclComm_t comm);

/**
 * Gives back what cclRedOpCreatePreMulSum made on `comm`. Calls that were made with it go on. What is not given back goes
 * with the communicator.
 */
cclResult_t cclRedOpDestroy(cclRedOp_t op,
                            cclComm_t comm);

/**
 * Sends the `count` elements of `sendbuff` to rank `peer`, which calls cclRecv with the same count and type.
 *
 * Messages to one rank arrive in the order in which they begin: in that of the calls, but in a stream not before what is in it ahead
 * of them, so that those of different streams may pass each other. It may return before the message was received: up to 8 KiB travel
 * ahead, 32 messages or more, once the receiver is in a call of this communicator. To itself a rank sends in a group, and there receives, too, or in
 * another stream than that in which it receives; outside groups neither may be NULL, which is an invalid usage.
 *
 * @param count Elements, not bytes. May be 0; then `sendbuff` may be NULL.
 * @param stream NULL: the call returns when `sendbuff` may be changed. A CUDA stream waits for no receiver.
 * @return As cclAllReduce; a receive of another count or type is a call that differs.
 *
 * # Safety
 * `sendbuff` holds `count` elements, which nobody changes until the operation is over.
 */
cclResult_t cclSend(const void *sendbuff,
                    size_t count,
                    cclDataType_t datatype,
                    int peer,
                    cclComm_t comm,
                    cclStream_t stream);

/**
 * cclSend with a tag of 0 or more, by which the receiver can tell messages apart. cclSend's have tag 0.
 *
 * # Safety
 * As for cclSend.
 */
cclResult_t cclSendTag(const void *sendbuff,
                       size_t count,
                       cclDataType_t datatype,
                       int peer,
                       int tag,
                       cclComm_t comm,
                       cclStream_t stream);

/**
 * Receives the `count` elements that rank `peer` sends with cclSend into `recvbuff`.
 *
 * @param count Elements, not bytes: as many as are sent. May be 0; then `recvbuff` may be NULL.
 * @param stream NULL: the call returns when `recvbuff` is complete.
 * @return As cclSend.
 *
 * # Safety
 * `recvbuff` has room for `count` elements, which nobody uses until the operation is over.
 */
cclResult_t cclRecv(void *recvbuff,
                    size_t count,
                    cclDataType_t datatype,
                    int peer,
                    cclComm_t comm,
                    cclStream_t stream);

/**
 * Receives a message of at most `count` elements, from rank `peer` or CCL_ANY_SOURCE, with tag `tag` or CCL_ANY_TAG.
 *
 * A message goes to the first receive, in the order in which they begin (see cclSend), that takes its sender and its tag.
 *
 * @param count Elements that `recvbuff` has room for. A longer message is a call that differs.
 * @param info What came: sender, tag and count. May be NULL. It is written when the operation is over.
 * @return As cclSend.
 *
 * # Safety
 * As for cclRecv; `info` is NULL or may be written until the operation is over.
 */
cclResult_t cclRecvTag(void *recvbuff,
                       size_t count,
                       cclDataType_t datatype,
                       int peer,
                       int tag,
                       struct cclRecvInfo_t *info,
                       cclComm_t comm,
                       cclStream_t stream);

/**
 * Begins a group: the calls of this thread until cclGroupEnd are carried out together, at its end.
 *
 * Operations on any number of communicators, sends and receives in any order, and cclCommInitRank may be in a group. Those
 * that one group puts into one stream begin together, when what was in the stream before is over; what comes later in the
 * stream waits for all of them. Arguments are checked at once; one call that is refused makes cclGroupEnd refuse all. What only
 * tells or sets something, as cclCommCount does, is carried out at once, and fails alone. Calls on streams, cclCommFinalize, cclCommDestroy,
 * cclCommAbort and cclCommInitAll are not of the group: they act at once, on what was begun before it. A communicator on which the
 * ranks do not agree does not keep the group's operations from being carried out. Groups may lie in each other: the
 * outermost one counts. Of device memory see cclAllReduce: with CCL_CUDA_DIRECT=on such operations do not begin together.
 */
cclResult_t cclGroupStart(void);

/**
 * Ends a group, and with the outermost one carries out its calls. Returns when those with stream NULL are over.
 *
 * @return cclSuccess; otherwise the first failure: of a call that was refused, then nothing was carried out, or of an
 * operation.
 */
cclResult_t cclGroupEnd(void);

/**
 * Makes a stream for host memory: operations in it are carried out one after the other, those of a group together, while
 * the caller goes on.
 *
 * Give it back with cclStreamDestroy.
 *
 * # Safety
 * `stream` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclStreamCreate(cclStream_t *stream);

/**
 * Waits until all that is in the stream now is over, whatever others add meanwhile.
 *
 * @return cclSuccess, or the first failure of an operation in the stream, from then on each time.
 */
cclResult_t cclStreamSynchronize(cclStream_t stream);

/**
 * Tells whether all that is in the stream is over: cclSuccess, cclInProgress, or the first failure.
 */
cclResult_t cclStreamQuery(cclStream_t stream);

/**
 * Gives the stream back. What is in it goes on to its end.
 */
cclResult_t cclStreamDestroy(cclStream_t stream);

/**
 * Has `callback(data, result)` called after all that is in the stream now, also after a failure, which `result` tells.
 *
 * It is called on a thread of the library's; what comes later in the stream waits for it. It may call ccl, but nothing
 * that waits for this stream: nor an operation of all ranks, cclCommFinalize or cclCommDestroy on a communicator that has something
 * later in it.
 *
 * # Safety
 * `callback` may be called with `data` on another thread.
 */
cclResult_t cclStreamAddCallback(cclStream_t stream,
                                 cclStreamCallback_t callback,
                                 void *data);

/**
 * Allocates `size` bytes of memory that the ranks of a host read where it lies, instead of having its data copied for them.
 *
 * It is memory of the host, also in a program that uses CUDA, where ncclMemAlloc gives a device's.
 * It begins with a page and holds zeros. Any call of any communicator may use any part of it; ranks need not agree on
 * where their buffers are. Each communicator makes it known to the peers once, by the first calls that use it (no more than
 * four allocations are on their way to a peer at a time) or by cclCommRegister, so it is meant to be kept. In a communicator
 * a peer knows 64 of a rank's allocations at a time: what lies in others is copied until some of these are given back.
 * Between hosts a network plugin's cards reach it where it lies; to TCP it is as any other memory. Ranks that are threads of
 * one process need none of it. Give it back with cclMemFree. Children made by fork do not have it: who touches it there is ended by the system.
 *
 * @param size 0 gives NULL.
 * @return cclSuccess; cclInvalidArgument; cclSystemError when there is no memory. Then `*ptr` is NULL.
 *
 * # Safety
 * `ptr` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclMemAlloc(void **ptr,
                        size_t size);

/**
 * Gives back what cclMemAlloc gave: its pages are free at once, or, where network cards know them, with the next long
 * message (32 KiB are always enough) of each communicator by which they do, or its end. No call may be using it. NULL is fine.
 *
 * @return cclSuccess; cclInvalidArgument for any other address, and for memory that was given back before.
 *
 * # Safety
 * Nobody uses the memory any more.
 */
cclResult_t cclMemFree(void *ptr);

/**
 * Says that calls on `comm` will use the `size` bytes at `buff` again and again.
 *
 * Memory of cclMemAlloc, or a part of it, is made known at once to the peers that this rank has sent to, which else happens
 * in the first calls that use it; cclMemAlloc says how much they know. Any other memory is accepted, and used as if it were
 * not registered. `*handle` is to be given back with cclCommDeregister; it goes with the communicator. It does not keep the
 * memory: that is given back as if it were not registered. Waits for a running call.
 *
 * @return cclSuccess; cclInvalidArgument for NULL and for no bytes; otherwise as the calls on `comm`.
 *
 * # Safety
 * `handle` is NULL, which is an invalid argument, or may be written.
 */
cclResult_t cclCommRegister(cclComm_t comm,
                            void *buff,
                            size_t size,
                            void **handle);

/**
 * Gives back what cclCommRegister gave on `comm`. NULL is fine.
 *
 * @return cclSuccess; cclInvalidArgument for any other handle.
 */
cclResult_t cclCommDeregister(cclComm_t comm, void *handle);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  /* CCL_H */
