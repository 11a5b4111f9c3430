/*
 * ccl_net.h: what a network plugin of ccl is.
 *
 * A plugin brings a wire of its own. It is a shared library, libccl_net_NAME.so, that exports one function, ccl_net_plugin_v1,
 * which returns the struct of functions below. ccl loads it where CCL_NET_PLUGIN (or the configuration) names it, and never
 * unasked. ccl does all that is about messages: lanes, credits, headers, where they lie, deadlines, failures. A plugin does four
 * things: it registers memory, joins two ends by bytes that ccl carries over its own authenticated connections, writes into
 * memory that the other side has registered, and tells both sides of it. That is a remote write with immediate, which InfiniBand
 * and RoCE have, and which a wire without it makes of a frame and a copy. examples/net_plugin/loop.c is a whole plugin.
 *
 * The contract:
 *
 * - A context belongs to one rank of one communicator. Its functions, and those of its connections, are called by one thread at a
 *   time, not always the same one. Several contexts are used at the same time by several threads.
 * - No function blocks, but `open`, `create` and `join`, which may take a moment; none of them waits for the other side.
 * - Writes of a connection become visible in the order in which they were posted: when CCL_NET_ARRIVED tells of one, all bytes of
 *   it, and of those before, are there. CCL_NET_WRITTEN comes in that order, too: then the write's own memory may be used again,
 *   and its bytes arrive though this side destroys the connection and ends.
 * - ccl has at most `writes` writes posted that no CCL_NET_WRITTEN has told of, and the other side posts at most `arrivals` that
 *   this side has not heard of by `poll`. So queues have bounds. Writes with the id CCL_NET_UNTOLD come on top: of them
 *   CCL_NET_WRITTEN need not tell, so that a card need not either, and where there is no room for one `write` says so.
 * - A write of no bytes carries its immediate alone; address and key are 0 then.
 * - The other side may destroy its end as soon as its writes are written, while this side still writes: what has arrived is told
 *   before the failure of that.
 * - A connection that fails tells so by one CCL_NET_FAILED, and nothing after it; from then on it uses no memory, neither here nor
 *   by the hand of the other side. What of it was posted is lost.
 * - What comes from the other side (addresses, keys, lengths) is checked before it is used, if the hardware does not do that.
 * - ccl deregisters memory when no write in it is posted and the other side was told of nothing in it, or has done what it was
 *   told for; what else there is when connections were destroyed. Then it closes the context. Memory stays mapped until it was
 *   deregistered. A process that was made by fork calls nothing of what its parent had opened.
 * - The struct of functions grows at its end: ccl reads as much of it as `size` says, and does without what is not there or NULL of
 *   the functions behind `arm`. So does ccl_net_host: a plugin reads no further than its `size`.
 * - Texts are UTF-8, for people: an error names device, port and the system's own status.
 */
#ifndef CCL_NET_H
#define CCL_NET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CCL_NET_VERSION 1

/* What functions return. */
#define CCL_NET_OK 0
#define CCL_NET_AGAIN 1 /* only `write`: no room now; ccl asks again later */
#define CCL_NET_ERROR 2 /* the text says what went wrong */

/* Kinds of events. */
#define CCL_NET_WRITTEN 1 /* the write `id` is done */
#define CCL_NET_ARRIVED 2 /* a write of the other side is here, with `immediate` */
#define CCL_NET_FAILED 3  /* the connection is broken; `describe` says why */

/* The id of writes that nothing is to be told of. Who tells all the same is not heard. */
#define CCL_NET_UNTOLD UINT64_MAX

/* What the plugin knows them by. */
typedef struct ccl_net_context ccl_net_context;
typedef struct ccl_net_connection ccl_net_connection;
typedef struct ccl_net_memory ccl_net_memory;

/* Where a function that returns CCL_NET_ERROR writes why: at most `size` bytes, with the zero at the end. */
typedef struct ccl_net_error {
    char *text;
    size_t size;
} ccl_net_error;

/* Whom a context is for. It is there as long as the context. */
typedef struct ccl_net_host {
    uint32_t size; /* of this struct */
    uint32_t rank;
    uint32_t ranks;
    /* Tells something: level 1 is a warning, 2 what a user may want to know, 3 details. */
    void (*log)(const struct ccl_net_host *host, int level, const char *text);
    /* Here if `size` says so. The PCI address of the GPU that the rank works with, as sysfs has it ("0000:3b:00.0"), with a zero at
       the end. NULL: it works with none, or that is not known. */
    const char *gpu;
} ccl_net_host;

/* A device: a port of a card. Lanes of a link are spread over the devices that a context has, the first 8 of them on the sending side. */
typedef struct ccl_net_device {
    char name[64];         /* with a zero at the end */
    uint32_t port;         /* its number, if there are several */
    uint32_t megabits;     /* a second; 0: not known */
    int32_t numa_node;     /* -1: not known; `devices` has the nearest of equals first */
    uint32_t max_segments; /* of a write, 2 at least */
    uint64_t max_write;    /* bytes of a write, 263168 (257 KiB) at least */
} ccl_net_device;

/* What a connection is to be like. */
typedef struct ccl_net_setup {
    uint64_t number; /* by which events name it */
    uint32_t device;
    uint32_t peer;     /* the rank at its other end */
    uint32_t first;    /* 1 on the side whose bytes go first, 0 on the one that has them when it makes its own */
    uint32_t writes;   /* posted and not told of, at most */
    uint32_t arrivals; /* of the other side's, not told of, at most */
} ccl_net_setup;

/* A piece of registered memory that is to be written. */
typedef struct ccl_net_segment {
    const void *address;
    size_t len;
    ccl_net_memory *memory;
} ccl_net_segment;

typedef struct ccl_net_event {
    uint64_t connection; /* its number */
    uint64_t id;         /* of the write; else 0 */
    uint32_t kind;
    uint32_t immediate; /* of what arrived; else 0 */
} ccl_net_event;

/* Bytes of the longest text by which ends are joined. */
#define CCL_NET_MAX_BYTES 256

typedef struct ccl_net_plugin {
    uint32_t size;     /* of this struct */
    uint32_t version;  /* CCL_NET_VERSION */
    const char *name;  /* as in libccl_net_NAME.so */
    const char *about; /* its own version; must be the same on all ranks */

    int (*open)(const ccl_net_host *host, ccl_net_context **context, ccl_net_error *error);
    void (*close)(ccl_net_context *context);

    /* How many devices there are that can be used: 1 at least after an `open` that succeeded. The best come first. */
    uint32_t (*devices)(ccl_net_context *context);
    int (*device)(ccl_net_context *context, uint32_t index, ccl_net_device *device, ccl_net_error *error);

    /* Memory that writes on connections of the device begin in, and that those of the other side reach by `key`. */
    int (*register_memory)(ccl_net_context *context, uint32_t device, void *address, size_t len,
                           ccl_net_memory **memory, uint64_t *key, ccl_net_error *error);
    void (*deregister_memory)(ccl_net_context *context, ccl_net_memory *memory);

    /* Makes one end, and the bytes by which the other side joins it: `len` is the room for them, and then their number.
       The first side's bytes go to the other one, which makes its end, joins it, and answers with its own. */
    int (*create)(ccl_net_context *context, const ccl_net_setup *setup, ccl_net_connection **connection,
                  unsigned char *bytes, size_t *len, ccl_net_error *error);
    int (*join)(ccl_net_connection *connection, const unsigned char *bytes, size_t len, ccl_net_error *error);
    /* From here on there are no events of it, and the other side writes nothing more. */
    void (*destroy)(ccl_net_connection *connection);

    /* Writes the segments one after the other to `address` of the other side, and tells it `immediate`. */
    int (*write)(ccl_net_connection *connection, const ccl_net_segment *segments, uint32_t count, uint64_t address,
                 uint64_t key, uint32_t immediate, uint64_t id, ccl_net_error *error);

    /* Moves everything on that needs this rank's hand, and gives up to `most` events. Called again and again by ranks that
       wait. An error is the end of the whole context. */
    int (*poll)(ccl_net_context *context, ccl_net_event *events, uint32_t most, uint32_t *count, ccl_net_error *error);
    /* Why a connection has failed. */
    void (*describe)(ccl_net_connection *connection, char *text, size_t size);

    /* A descriptor that becomes readable when `poll` has something to do that came after the last `arm`. After `arm` ccl polls
       once more before it sleeps. It stays the same. */
    int (*descriptor)(ccl_net_context *context);
    int (*arm)(ccl_net_context *context, ccl_net_error *error);

    /* From here on a function may be missing. */

    /* How many connections of each device a direction of a link is to have; 1 if this is missing. Long messages take turns. */
    uint32_t (*connections)(ccl_net_context *context);

    /* The device whose end best meets the one that gave these bytes: such as one of the same subnet. `device` holds the one that
       would be taken if this is missing: the sender's devices and the receiver's are paired in their order. */
    int (*meet)(ccl_net_context *context, const unsigned char *bytes, size_t len, uint32_t *device, ccl_net_error *error);

    /* As register_memory, for memory of a device (a GPU) that is known by a dma-buf: `len` bytes that begin `offset` bytes behind
       its start, and at `address` in what ccl and the other side say of them. */
    int (*register_dmabuf)(ccl_net_context *context, uint32_t device, int fd, uint64_t offset, uint64_t address, size_t len,
                           ccl_net_memory **memory, uint64_t *key, ccl_net_error *error);
} ccl_net_plugin;

/* What the library exports. The struct stays as it is as long as the library is loaded, which is until the process ends. */
const ccl_net_plugin *ccl_net_plugin_v1(void);

#ifdef __cplusplus
}
#endif

#endif
