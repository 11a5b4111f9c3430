/*
 * A network plugin of ccl in one file: an example for authors, and what ccl's own tests run over.
 *
 * Its wire is a Unix socket, so that it joins processes of one host. A remote write, which a network card does by itself, is here
 * a frame: a head that says where the bytes belong, and the bytes, which the other side receives right there. See
 * include/ccl_net.h for what each function owes.
 *
 *     cc -O2 -fPIC -shared -Iinclude -o libccl_net_loop.so examples/net_plugin/loop.c
 *     CCL_NET_PLUGIN=./libccl_net_loop.so CCL_TRANSPORT=loop ccl-perf allreduce --ranks 4
 *
 * CCL_NET_LOOP_FAIL=FUNCTION:N has the Nth call of a function fail, and CCL_NET_LOOP_FAIL=FUNCTION:N:RANK on that rank alone;
 * write_bytes are writes of some bytes: messages, and not credits.
 */
#define _GNU_SOURCE
#include "ccl_net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/uio.h>
#include <unistd.h>

struct ccl_net_memory {
    unsigned char *base;
    size_t len;
    uint64_t key;
    struct ccl_net_memory *next;
};

struct head { /* of a frame */
    uint64_t address, key;
    uint32_t len, immediate;
};

#define MOST_SEGMENTS 4

struct post { /* a write that is not sent yet, or not told of */
    struct head head;
    struct iovec body[MOST_SEGMENTS];
    uint32_t segments;
    uint64_t id;
};

struct ccl_net_connection {
    struct ccl_net_context *context;
    struct ccl_net_connection *next;
    ccl_net_setup setup;
    int listener, fd; /* -1: none */
    int failed, told; /* whether it works no more, and whether that was said */
    int mute;         /* whether nothing can be sent: the other side has closed, and what it sent before is still to come */
    char why[200];
    /* Writes, a ring of setup.writes: `told_of` <= `sent` <= `posted`, and bytes of the first unsent one that have gone. */
    struct post *posts;
    uint64_t told_of, sent, posted;
    size_t gone;
    /* What comes: the head, and how many bytes of head and body are here. */
    struct head in;
    size_t have;
};

struct ccl_net_context {
    const ccl_net_host *host;
    int epoll;
    struct ccl_net_memory *memory;
    struct ccl_net_connection *connections;
};

static int fail(ccl_net_error *error, const char *what, int status) {
    snprintf(error->text, error->size, "%s: %s (%d)", what, strerror(status), status);
    return CCL_NET_ERROR;
}

/* Whether this call is to fail, for tests. Counts are of the process. */
static int fails(const ccl_net_context *context, const char *function, ccl_net_error *error) {
    const char *said = getenv("CCL_NET_LOOP_FAIL");
    size_t len = strlen(function);
    static unsigned calls;
    if (said == NULL || strncmp(said, function, len) != 0 || said[len] != ':')
        return 0;
    unsigned wanted = 0, rank = 0;
    int found = sscanf(said + len + 1, "%u:%u", &wanted, &rank);
    if (found == 2 && context->host->rank != rank)
        return 0;
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) < wanted)
        return 0;
    if (error != NULL)
        snprintf(error->text, error->size, "loop0 port 1: %s was told to fail", function);
    return 1;
}

static int loop_open(const ccl_net_host *host, ccl_net_context **made, ccl_net_error *error) {
    struct ccl_net_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return fail(error, "calloc", errno);
    context->host = host;
    if (fails(context, "open", error)) {
        free(context);
        return CCL_NET_ERROR;
    }
    context->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (context->epoll < 0) {
        int status = errno;
        free(context);
        return fail(error, "epoll_create1", status);
    }
    *made = context;
    return CCL_NET_OK;
}

static void loop_close(ccl_net_context *context) {
    close(context->epoll);
    free(context);
}

/* Two, so that lanes are spread, as over two ports of a card. */
static uint32_t loop_devices(ccl_net_context *context) {
    (void)context;
    return 2;
}

static int loop_device(ccl_net_context *context, uint32_t index, ccl_net_device *device, ccl_net_error *error) {
    if (fails(context, "device", error))
        return CCL_NET_ERROR;
    snprintf(device->name, sizeof device->name, "loop%u", (unsigned)index);
    device->port = 1;
    device->megabits = 0;
    device->numa_node = -1;
    device->max_segments = MOST_SEGMENTS;
    device->max_write = UINT32_MAX;
    return CCL_NET_OK;
}

static int loop_register(ccl_net_context *context, uint32_t device, void *address, size_t len,
                         ccl_net_memory **memory, uint64_t *key, ccl_net_error *error) {
    (void)device;
    if (fails(context, "register_memory", error))
        return CCL_NET_ERROR;
    struct ccl_net_memory *made = malloc(sizeof *made);
    if (made == NULL)
        return fail(error, "malloc", errno);
    made->base = address;
    made->len = len;
    made->next = context->memory;
    if (getrandom(&made->key, sizeof made->key, 0) != (ssize_t)sizeof made->key) {
        free(made);
        return fail(error, "getrandom", errno);
    }
    context->memory = made;
    *memory = made;
    *key = made->key;
    return CCL_NET_OK;
}

static void loop_deregister(ccl_net_context *context, ccl_net_memory *memory) {
    struct ccl_net_memory **at = &context->memory;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    free(memory);
}

static void watch(struct ccl_net_connection *at, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = at};
    if (epoll_ctl(at->context->epoll, EPOLL_CTL_MOD, fd, &event) != 0)
        epoll_ctl(at->context->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void broken(struct ccl_net_connection *at, const char *what, int status) {
    if (!at->failed) {
        at->failed = 1;
        snprintf(at->why, sizeof at->why, "loop%u port 1: %s%s%s", (unsigned)at->setup.device, what,
                 status ? ": " : "", status ? strerror(status) : "");
        if (at->fd >= 0)
            epoll_ctl(at->context->epoll, EPOLL_CTL_DEL, at->fd, NULL);
    }
}

/* The first side listens, at a name that the system chooses and its bytes tell; the other one connects when it joins. */
static int loop_create(ccl_net_context *context, const ccl_net_setup *setup, ccl_net_connection **made,
                       unsigned char *bytes, size_t *len, ccl_net_error *error) {
    if (fails(context, "create", error))
        return CCL_NET_ERROR;
    struct ccl_net_connection *at = calloc(1, sizeof *at);
    struct post *posts = calloc(setup->writes, sizeof *posts);
    if (at == NULL || posts == NULL) {
        free(at);
        free(posts);
        return fail(error, "calloc", ENOMEM);
    }
    at->context = context;
    at->setup = *setup;
    at->posts = posts;
    at->listener = at->fd = -1;
    size_t room = *len;
    *len = 0;
    if (setup->first) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        socklen_t size = sizeof name;
        at->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (at->listener < 0 || bind(at->listener, (struct sockaddr *)&name, sizeof(sa_family_t)) != 0 ||
            listen(at->listener, 4) != 0 || getsockname(at->listener, (struct sockaddr *)&name, &size) != 0) {
            int status = errno;
            if (at->listener >= 0)
                close(at->listener);
            free(posts);
            free(at);
            return fail(error, "a listening socket", status);
        }
        *len = size < room ? size : room;
        memcpy(bytes, &name, *len);
    }
    at->next = context->connections;
    context->connections = at;
    *made = at;
    return CCL_NET_OK;
}

/* Whether the other end belongs to the same user. */
static int is_ours(int fd) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

static int loop_join(ccl_net_connection *at, const unsigned char *bytes, size_t len, ccl_net_error *error) {
    if (fails(at->context, "join", error))
        return CCL_NET_ERROR;
    if (at->setup.first) { /* it has connected before it answered */
        while ((at->fd = accept4(at->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0 && !is_ours(at->fd))
            close(at->fd);
        close(at->listener);
        at->listener = -1;
        if (at->fd < 0)
            return fail(error, "accept", errno);
    } else {
        struct sockaddr_un name;
        if (len > sizeof name)
            return fail(error, "the other side's bytes", EINVAL);
        memcpy(&name, bytes, len);
        at->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (at->fd < 0 || connect(at->fd, (struct sockaddr *)&name, (socklen_t)len) != 0)
            return fail(error, "connect", errno);
        if (!is_ours(at->fd))
            return fail(error, "connect", EPERM);
    }
    watch(at, at->fd, EPOLLIN);
    return CCL_NET_OK;
}

static void loop_destroy(ccl_net_connection *at) {
    struct ccl_net_connection **place = &at->context->connections;
    while (*place != at)
        place = &(*place)->next;
    *place = at->next;
    if (at->listener >= 0)
        close(at->listener);
    if (at->fd >= 0) {
        /* Closed alone it would be watched as long as a forked child has it, too. */
        epoll_ctl(at->context->epoll, EPOLL_CTL_DEL, at->fd, NULL);
        close(at->fd);
    }
    free(at->posts);
    free(at);
}

/* Sends what goes without waiting. */
static void send_some(struct ccl_net_connection *at) {
    int had = at->sent < at->posted;
    while (!at->failed && at->sent < at->posted) {
        struct post *post = &at->posts[at->sent % at->setup.writes];
        struct iovec parts[1 + MOST_SEGMENTS] = {{&post->head, sizeof post->head}};
        memcpy(parts + 1, post->body, sizeof post->body);
        size_t whole = sizeof post->head + post->head.len, skip = at->gone, count = 1 + post->segments;
        for (size_t i = 0; i < count; i++) {
            size_t less = skip < parts[i].iov_len ? skip : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + less;
            parts[i].iov_len -= less;
            skip -= less;
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t n = sendmsg(at->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            at->mute = 1;
            at->posted = at->sent;
            break;
        }
        at->gone += (size_t)n;
        if (at->gone == whole) {
            at->gone = 0;
            at->sent++;
        }
    }
    if (had && !at->failed)
        watch(at, at->fd, at->sent < at->posted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static int loop_write(ccl_net_connection *at, const ccl_net_segment *segments, uint32_t count, uint64_t address,
                      uint64_t key, uint32_t immediate, uint64_t id, ccl_net_error *error) {
    if (fails(at->context, "write", error) || (count > 0 && fails(at->context, "write_bytes", error)))
        return CCL_NET_ERROR;
    if (at->mute)
        return CCL_NET_OK; /* it is lost, of which CCL_NET_FAILED tells */
    if (count > MOST_SEGMENTS)
        return fail(error, "a write of too many segments", EINVAL);
    if (at->posted - at->told_of == at->setup.writes)
        return CCL_NET_AGAIN;
    struct post *post = &at->posts[at->posted % at->setup.writes];
    post->head = (struct head){address, key, 0, immediate};
    post->segments = count;
    for (uint32_t i = 0; i < count; i++) {
        post->body[i] = (struct iovec){(void *)segments[i].address, segments[i].len};
        post->head.len += (uint32_t)segments[i].len;
    }
    post->id = id;
    at->posted++;
    if (at->posted - at->sent == 1)
        send_some(at);
    return CCL_NET_OK; /* what became of it, events tell */
}

/* Where `len` bytes at `address` lie, if they are registered by this key. */
static unsigned char *target(struct ccl_net_context *context, uint64_t address, uint64_t key, uint32_t len) {
    for (struct ccl_net_memory *at = context->memory; at != NULL; at = at->next) {
        uint64_t base = (uint64_t)(uintptr_t)at->base;
        if (at->key == key && address >= base && len <= at->len && address - base <= at->len - len)
            return at->base + (address - base);
    }
    return NULL;
}

/* Receives until nothing more is here, or a whole write is: then it is 1. */
static int receive_one(struct ccl_net_connection *at) {
    for (;;) {
        unsigned char *to = (unsigned char *)&at->in + at->have;
        size_t room = sizeof at->in - at->have;
        if (at->have >= sizeof at->in) {
            size_t done = at->have - sizeof at->in;
            room = at->in.len - done;
            if (room > 0) {
                to = target(at->context, at->in.address, at->in.key, at->in.len);
                if (to == NULL) {
                    broken(at, "a write to memory that is not registered", 0);
                    return 0;
                }
                to += done;
            }
        }
        if (room == 0) {
            at->have = 0;
            return 1;
        }
        ssize_t n = recv(at->fd, to, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0) {
            broken(at, n < 0 ? "recv" : "the other side has closed it", n < 0 ? errno : 0);
            return 0;
        }
        at->have += (size_t)n;
    }
}

static int loop_poll(ccl_net_context *context, ccl_net_event *events, uint32_t most, uint32_t *count,
                     ccl_net_error *error) {
    if (fails(context, "poll", error))
        return CCL_NET_ERROR;
    struct epoll_event ready[16];
    int n = epoll_wait(context->epoll, ready, 16, 0);
    if (n < 0 && errno != EINTR)
        return fail(error, "epoll_wait", errno);
    *count = 0;
    /* What was sent is told first, as it makes room. */
    for (struct ccl_net_connection *at = context->connections; at != NULL && *count < most; at = at->next) {
        while (at->told_of < at->sent && !at->told && *count < most) {
            uint64_t id = at->posts[at->told_of++ % at->setup.writes].id;
            if (id != CCL_NET_UNTOLD)
                events[(*count)++] = (ccl_net_event){at->setup.number, id, CCL_NET_WRITTEN, 0};
        }
    }
    for (int i = 0; i < n; i++) {
        struct ccl_net_connection *at = ready[i].data.ptr;
        if (fails(context, "connection", NULL))
            broken(at, "it was told to fail", 0);
        if (ready[i].events & EPOLLOUT)
            send_some(at);
        while (!at->failed && *count < most && receive_one(at))
            events[(*count)++] = (ccl_net_event){at->setup.number, 0, CCL_NET_ARRIVED, at->in.immediate};
    }
    for (struct ccl_net_connection *at = context->connections; at != NULL && *count < most; at = at->next) {
        if (at->failed && !at->told) {
            at->told = 1;
            events[(*count)++] = (ccl_net_event){at->setup.number, 0, CCL_NET_FAILED, 0};
        }
    }
    return CCL_NET_OK;
}

static void loop_describe(ccl_net_connection *at, char *text, size_t size) {
    snprintf(text, size, "%s", at->why);
}

static int loop_descriptor(ccl_net_context *context) {
    return context->epoll;
}

/* The epoll instance is readable as long as there is something to do. A network card asks for one interrupt here. */
static int loop_arm(ccl_net_context *context, ccl_net_error *error) {
    return fails(context, "arm", error) ? CCL_NET_ERROR : CCL_NET_OK;
}

/* Two, so that lanes are spread over connections of one device, too. */
static uint32_t loop_connections(ccl_net_context *context) {
    (void)context;
    return 2;
}

#ifndef LOOP_SIZE
#define LOOP_SIZE sizeof(ccl_net_plugin)
#endif

#ifndef LOOP_VERSION
#define LOOP_VERSION CCL_NET_VERSION
#endif

static const ccl_net_plugin plugin = {
    .size = LOOP_SIZE,
    .version = LOOP_VERSION,
    .name = "loop",
    .about = "1",
    .open = loop_open,
    .close = loop_close,
    .devices = loop_devices,
    .device = loop_device,
    .register_memory = loop_register,
    .deregister_memory = loop_deregister,
    .create = loop_create,
    .join = loop_join,
    .destroy = loop_destroy,
    .write = loop_write,
    .poll = loop_poll,
    .describe = loop_describe,
    .descriptor = loop_descriptor,
    .arm = loop_arm,
    .connections = loop_connections, /* the other later ones it has not */
};

const ccl_net_plugin *ccl_net_plugin_v1(void) {
    return &plugin;
}
