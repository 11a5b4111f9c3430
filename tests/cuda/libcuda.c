/* A stand-in for NVIDIA's libcuda.so.1: two devices whose memory is the host's and whose streams are threads.

   It is stricter than the real one where that finds mistakes. The program has device memory mapped without any access, so that
   code which takes it for host memory ends. Copies want pinned host memory and a current context, flags want pinned or device
   memory; what a capture does not allow is refused, on the threads that its mode concerns. A graph is what was captured, in the order
   in which it was. What gives memory back, or loads kernels, waits for all streams of the context, as the driver does. A stream that is
   destroyed does what it has; who names it afterwards ends. What is given to the default stream spoils captures of streams for which it
   waits. fake.h has what tests use to make it fail. */
#define _GNU_SOURCE
#include "fake.h"

#include "../../src/cuda/kernels/args.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEVICES = 2, MOST = 4096 };

typedef struct Context {
    int device;
    struct Stream *special;
} Context;

enum Kind { HOST = 1, DEVICE = 2 };

typedef struct {
    enum Kind kind;
    int device;
    char *base, *alias; /* Where the program has it, and where this library reads and writes it. */
    size_t size;
    int file;
    int imported; /* Whether another process has allocated it. */
} Memory;

enum What { COPY, WRITE, WAIT, WAIT_LONG, KERNEL, PASS, AWAIT };

typedef struct Work {
    enum What what;
    char *to;
    const char *from;
    size_t size;
    uint64_t value;
    unsigned rows; /* Of a kernel's grid. */
    struct Work *next;
} Work;

/* A list of work in its order. */
typedef struct {
    Work *first, **last;
} Works;

/* A point in a stream, which it has passed or not; who refers to it counts. */
typedef struct {
    atomic_int uses, passed;
} Mark;

typedef struct Object {
    void *what;
    void (*destroy)(void *);
    atomic_int uses;
} Object;

/* What is captured, and what is launched: work that is done again and again. */
typedef struct Graph {
    Works works;
    Object *objects[256];
    int objects_kept;
    atomic_int uses;
    unsigned long long id; /* Of the capture. */
    int mode, ended;
    atomic_int invalid;
} Graph;

typedef struct Event {
    Mark *mark;
    Graph *capture; /* In which it was recorded last. */
} Event;

typedef struct Stream {
    Context *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Works works;
    unsigned long given, done;
    atomic_ulong stop; /* Where it goes on no more; 0: nowhere. */
    Graph *capture;
    int ending;
    int blocking; /* Whether the default stream waits for it. */
    unsigned long long id;
    struct Stream *next; /* Of all, those that were destroyed as well: none has another's address. */
} Stream;

static Context contexts[DEVICES] = {{.device = 0}, {.device = 1}};
static Memory memory[MOST];
static int memories;
static Stream *streams;
static atomic_int peers[DEVICES][DEVICES]; /* Whether the first may use the second's memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local Context *stack[64];
static _Thread_local int depth;
static atomic_int sticky, failing, modules;
/* Captures that concern all threads, and those that concern this one. */
static atomic_int captures;
static _Thread_local int captures_here;
static _Thread_local unsigned joins;
static char failing_function[64];

void fakeFail(const char *function, int code) {
    snprintf(failing_function, sizeof failing_function, "%s", function);
    atomic_store(&failing, code);
}

void fakeBreak(int code) { atomic_store(&sticky, code); }

static int fault(const char *function) {
    int code = atomic_load(&failing);
    if (code != 0 && strcmp(failing_function, function) == 0) {
        return code;
    }
    return atomic_load(&sticky);
}

/* What every function begins with. */
#define ENTER()                                                                                                        \
    do {                                                                                                               \
        int code_ = fault(__func__);                                                                                   \
        if (code_ != 0) {                                                                                              \
            return code_;                                                                                              \
        }                                                                                                              \
    } while (0)

#define IN_CONTEXT()                                                                                                   \
    ENTER();                                                                                                           \
    if (depth == 0) {                                                                                                  \
        return CUDA_ERROR_INVALID_CONTEXT;                                                                             \
    }

/* What every function begins with that no capture allows. */
#define NOT_CAPTURED()                                                                                                 \
    IN_CONTEXT();                                                                                                      \
    if (atomic_load(&captures) + captures_here > 0) {                                                                  \
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                                                                  \
    }

/* The memory that has all these bytes, or of none the one that `at` is in; the lock is held. */
static Memory *find(const void *at, size_t size) {
    size = size == 0 ? 1 : size;
    for (int i = 0; i < memories; i++) {
        Memory *one = &memory[i];
        if (one->base != NULL && (const char *)at >= one->base && (const char *)at + size <= one->base + one->size) {
            return one;
        }
    }
    return NULL;
}

/* Where this library has these bytes, which are of one kind or, with 0, of any; NULL for others. */
static char *alias(const void *at, size_t size, int kind, int device) {
    char *there = NULL;
    pthread_mutex_lock(&lock);
    Memory *one = find(at, size);
    if (one != NULL && (kind == 0 || (int)one->kind == kind) && (one->kind == HOST || one->device == device || peers[device][one->device])) {
        there = one->alias + ((const char *)at - one->base);
    }
    pthread_mutex_unlock(&lock);
    return there;
}

/* The same for a kernel, of what it finds in memory. Those that do are of one device, which this does not check. */
void *ccl_kernels_reach(unsigned long long at, unsigned long long bytes) {
    char *there = NULL;
    pthread_mutex_lock(&lock);
    Memory *one = find((void *)at, bytes);
    if (one != NULL && one->kind == DEVICE) {
        there = one->alias + ((char *)at - one->base);
    }
    pthread_mutex_unlock(&lock);
    return there;
}

static int keep(Memory one) {
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < memories && memory[at].base != NULL) {
        at++;
    }
    if (at < MOST) {
        memory[at] = one;
        memories = at == memories ? memories + 1 : memories;
    }
    pthread_mutex_unlock(&lock);
    return at < MOST ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void leave_mark(Mark *mark) {
    if (mark != NULL && atomic_fetch_sub(&mark->uses, 1) == 1) {
        free(mark);
    }
}

static void *copied(const void *from, size_t size) {
    void *to = malloc(size);
    memcpy(to, from, size);
    return to;
}

static size_t size_of_args(const char *function) {
    return strcmp(function, "ccl_copy") == 0     ? sizeof(struct ccl_copy_args)
           : strcmp(function, "ccl_swap") == 0   ? sizeof(struct ccl_swap_args)
           : strcmp(function, "ccl_arrive") == 0 ? sizeof(struct ccl_arrive_args)
                                                 : sizeof(struct ccl_reduce_args);
}

/* What is in a list: work of its own, that is. */
static void append(Works *works, Work work) {
    Work *kept = copied(&work, sizeof work);
    kept->next = NULL;
    *works->last = kept;
    works->last = &kept->next;
}

/* The kernels, by src/cuda/kernels/host.cpp, where that is linked. */
__attribute__((weak)) long long ccl_kernels_on_host(const char *name, const void *args, unsigned grid, unsigned rows, unsigned block,
                                                    int backwards);

static void *carry_out(void *given) {
    Stream *stream = given;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (stream->works.first == NULL && !stream->ending) {
            pthread_cond_wait(&stream->changed, &stream->lock);
        }
        Work *work = stream->works.first;
        pthread_mutex_unlock(&stream->lock);
        if (work == NULL) {
            return NULL;
        }
        /* A broken context does nothing more. */
        while (atomic_load(&sticky) != 0 || (atomic_load(&stream->stop) != 0 && stream->done >= atomic_load(&stream->stop))) {
            usleep(1000);
        }
        switch (work->what) {
        case COPY:
            memmove(work->to, work->from, work->size);
            break;
        case WRITE:
            atomic_store((_Atomic uint32_t *)work->to, (uint32_t)work->value);
            break;
        case WAIT_LONG:
            while (atomic_load((_Atomic uint64_t *)work->to) != work->value) {
                usleep(20);
            }
            break;
        case WAIT:
            while ((int32_t)(atomic_load((_Atomic uint32_t *)work->to) - (uint32_t)work->value) < 0) {
                usleep(20);
            }
            break;
        case KERNEL:
            if (ccl_kernels_on_host(work->from, work->to, (unsigned)work->value, work->rows, (unsigned)work->size, 0) != 0) {
                fakeBreak(CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            free(work->to);
            break;
        case PASS:
            atomic_store(&((Mark *)work->to)->passed, 1);
            leave_mark((Mark *)work->to);
            break;
        case AWAIT:
            while (!atomic_load(&((Mark *)work->to)->passed)) {
                usleep(20);
            }
            leave_mark((Mark *)work->to);
            break;
        }
        pthread_mutex_lock(&stream->lock);
        stream->works.first = work->next;
        if (stream->works.first == NULL) {
            stream->works.last = &stream->works.first;
        }
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        free(work);
    }
}

void fakeStop(CUstream stream, unsigned long more) {
    pthread_mutex_lock(&stream->lock);
    atomic_store(&stream->stop, stream->done + more);
    pthread_mutex_unlock(&stream->lock);
}

/* Under the lock. */
static Stream *make(Context *context) {
    static unsigned long long made;
    Stream *stream = calloc(1, sizeof *stream);
    stream->context = context;
    stream->id = ++made;
    stream->works.last = &stream->works.first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&stream->thread, NULL, carry_out, stream) != 0) {
        free(stream);
        return NULL;
    }
    stream->next = streams;
    streams = stream;
    return stream;
}

/* Whether a stream of the context has work. */
static int is_busy(const Context *context) {
    int busy = 0;
    pthread_mutex_lock(&lock);
    for (Stream *stream = streams; stream != NULL; stream = stream->next) {
        pthread_mutex_lock(&stream->lock);
        busy |= stream->context == context && stream->done < stream->given;
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&lock);
    return busy;
}

/* What the driver does before it gives memory back or loads kernels. */
static void await_streams(void) {
    while (depth > 0 && atomic_load(&sticky) == 0 && is_busy(stack[depth - 1])) {
        usleep(100);
    }
}

/* The stream that is meant; the special ones are one of the current context's. */
static Stream *named(CUstream raw) {
    if ((uintptr_t)raw > 2) {
        pthread_mutex_lock(&raw->lock);
        int is_gone = raw->ending;
        pthread_mutex_unlock(&raw->lock);
        if (is_gone) {
            fprintf(stderr, "a CUDA stream is used that was destroyed\n");
            abort();
        }
        return raw;
    }
    if (depth == 0) {
        return NULL;
    }
    Context *context = stack[depth - 1];
    pthread_mutex_lock(&lock);
    if (context->special == NULL) {
        context->special = make(context);
    }
    pthread_mutex_unlock(&lock);
    return context->special;
}

/* What a stream's work is captured into. When a capture ends, streams that have joined it are in it no more. */
static Graph *capture_of(Stream *stream) {
    if (stream->capture != NULL && stream->capture->ended) {
        stream->capture = NULL;
    }
    return stream->capture;
}

/* What concerns the default stream concerns all streams of its context for which that waits, and so spoils their captures. */
static int default_stream(CUstream raw, int spoils) {
    int code = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (Stream *stream = streams; (uintptr_t)raw <= 1 && stream != NULL; stream = stream->next) {
        if (stream->blocking && stream->context == stack[depth - 1] && capture_of(stream) != NULL) {
            atomic_fetch_or(&stream->capture->invalid, spoils);
            code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static int give(CUstream raw, Work work) {
    Stream *stream = named(raw);
    if (stream == NULL || stream->context != stack[depth - 1]) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int code = default_stream(raw, 1);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    pthread_mutex_lock(&stream->lock);
    if (capture_of(stream) != NULL && atomic_load(&stream->capture->invalid)) {
        pthread_mutex_unlock(&stream->lock);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (capture_of(stream) != NULL) {
        append(&stream->capture->works, work);
    } else {
        append(&stream->works, work);
        stream->given++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_INIT is what it gives, if that is set. */
int cuInit(unsigned flags) {
    ENTER();
    const char *code = getenv("FAKE_CUDA_INIT");
    return code != NULL ? atoi(code) : flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* FAKE_CUDA_DEVICES says how many there are, if that is set. */
int cuDeviceGetCount(int *count) {
    ENTER();
    const char *fewer = getenv("FAKE_CUDA_DEVICES");
    *count = fewer != NULL ? atoi(fewer) : DEVICES;
    return CUDA_SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    default: *name = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}

int cuGetErrorString(int code, const char **text) {
    (void)code;
    *text = "as the stand-in was told";
    return CUDA_SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    ENTER();
    *device = ordinal;
    return ordinal >= 0 && ordinal < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int cuDeviceGetPCIBusId(char *text, int size, int device) {
    ENTER();
    int len = snprintf(text, (size_t)size, "0000:%02X:00.0", 0x3b + device);
    return len < size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(CUcontext *context, int device) {
    ENTER();
    if (device < 0 || device >= DEVICES) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

int cuCtxPushCurrent_v2(CUcontext context) {
    ENTER();
    if (context == NULL || depth == 64) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

int cuCtxPopCurrent_v2(CUcontext *context) {
    if (depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

int cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    *context = depth == 0 ? NULL : stack[depth - 1];
    return CUDA_SUCCESS;
}

int cuCtxGetDevice(int *device) {
    IN_CONTEXT();
    *device = stack[depth - 1]->device;
    return CUDA_SUCCESS;
}

int cuCtxGetId(CUcontext context, unsigned long long *id) {
    ENTER();
    *id = (unsigned long long)((Context *)context)->device + 1;
    return CUDA_SUCCESS;
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr at) {
    ENTER();
    pthread_mutex_lock(&lock);
    Memory *one = find((void *)at, 1);
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case 2: *(unsigned *)data[i] = one == NULL ? 0 : one->kind; break;
        case 9: *(int *)data[i] = one == NULL ? -2 : one->device; break;
        default: pthread_mutex_unlock(&lock); return CUDA_ERROR_INVALID_VALUE;
        }
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

int cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
    ENTER();
    pthread_mutex_lock(&lock);
    Memory *one = find((void *)at, 1);
    if (one != NULL) {
        *base = (CUdeviceptr)one->base;
        *size = one->size;
    }
    pthread_mutex_unlock(&lock);
    return one != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes the file. */
static int map(CUdeviceptr *at, int file, size_t size, int device, int imported) {
    size_t pages = (size + 4095) / 4096 * 4096;
    char *there = mmap(NULL, pages, PROT_NONE, MAP_SHARED, file, 0);
    char *here = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (there == MAP_FAILED || here == MAP_FAILED) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *at = (CUdeviceptr)there;
    return keep((Memory){.kind = DEVICE, .device = device, .base = there, .alias = here, .size = size, .file = file, .imported = imported});
}

int cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
    NOT_CAPTURED();
    size_t pages = (size + 4095) / 4096 * 4096;
    int file = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (size == 0 || file < 0 || ftruncate(file, (off_t)pages) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return map(at, file, size, stack[depth - 1]->device, 0);
}

typedef struct {
    int process, file, device;
    size_t size;
} Exported;

int cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at) {
    IN_CONTEXT();
    pthread_mutex_lock(&lock);
    Memory *one = find((void *)at, 1);
    int good = one != NULL && one->kind == DEVICE && one->base == (char *)at;
    Exported exported = {.process = getpid()};
    if (good) {
        exported.file = one->file, exported.device = one->device, exported.size = one->size;
    }
    pthread_mutex_unlock(&lock);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &exported, sizeof exported);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
    IN_CONTEXT();
    Exported exported;
    memcpy(&exported, &handle, sizeof exported);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", exported.process, exported.file);
    /* Its own process has the address. */
    int file = exported.process == getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (flags != 1 || file < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    peers[stack[depth - 1]->device][exported.device] = 1;
    return map(at, file, exported.size, exported.device, 1);
}

int cuCtxEnablePeerAccess(CUcontext context, unsigned flags) {
    IN_CONTEXT();
    int device = stack[depth - 1]->device;
    if (flags != 0 || context->device == device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return atomic_exchange(&peers[device][context->device], 1) ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

/* An H100 with few multiprocessors. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER();
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 2 : attribute == 122 ? 1 : -1;
    return *value >= 0 && device >= 0 && device < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuModuleLoadData(void **module, const void *image) {
    IN_CONTEXT();
    await_streams();
    *module = stack[depth - 1];
    if (memcmp(image, "\177ELF", 4) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    atomic_fetch_add(&modules, 1);
    return CUDA_SUCCESS;
}

int cuModuleUnload(void *module) {
    IN_CONTEXT();
    atomic_fetch_sub(&modules, 1);
    return module == stack[depth - 1] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

int fakeHeld(void) {
    int held = atomic_load(&modules);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < memories; i++) {
        held += memory[i].base != NULL && memory[i].kind == DEVICE;
    }
    pthread_mutex_unlock(&lock);
    return held;
}

size_t fakeBytes(int kind) {
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < memories; i++) {
        int is_one = memory[i].base != NULL && (int)memory[i].kind == kind && !memory[i].imported;
        bytes += is_one ? memory[i].size : 0;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

unsigned fakeJoins(void) { return joins; }

/* A function is its name. */
int cuModuleGetFunction(const char **function, void *module, const char *name) {
    IN_CONTEXT();
    *function = strdup(name);
    return module == stack[depth - 1] && ccl_kernels_on_host != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Puts addresses of this library in the place of the program's, all of which must have so many bytes. */
static int translate(unsigned long long *addresses, unsigned count, const unsigned long long *sizes, unsigned long long size) {
    for (unsigned i = 0; i < count; i++) {
        char *there = alias((void *)addresses[i], sizes != NULL ? sizes[i] : size, DEVICE, stack[depth - 1]->device);
        if (there == NULL) {
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        addresses[i] = (unsigned long long)there;
    }
    return CUDA_SUCCESS;
}

/* The same of one side of a reduction, in each row `count` addresses, which must have all that the rows reach from there. */
static int translate_rows(unsigned long long *addresses, unsigned count, unsigned apart, unsigned rows, unsigned long long at,
                          unsigned long long step, unsigned long long size) {
    unsigned long long sizes[CCL_MOST_SOURCES];
    unsigned all = count + (rows - 1) * apart;
    if (rows == 0 || all > CCL_MOST_SOURCES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < all; i++) {
        unsigned last = apart != 0 && i / apart < rows ? i / apart : rows - 1;
        sizes[i] = at + last * step + size;
    }
    return translate(addresses, all, sizes, 0);
}

/* Of a call in which buffers are found by entries. */
static int translate_call(struct ccl_call *call) {
    if (call->number == 0) {
        return CUDA_SUCCESS;
    }
    int code = translate(call->entries, call->ranks, NULL, sizeof(struct ccl_entry));
    return code != CUDA_SUCCESS ? code : translate(&call->own, 1, NULL, sizeof(struct ccl_entry));
}

static int translate_reduce(struct ccl_reduce_args *args, unsigned each) {
    if (args->call.number != 0) {
        if (args->rows != 1) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        int code = translate(args->sources, args->n, NULL, sizeof(struct ccl_entry));
        code = code != CUDA_SUCCESS ? code : translate(args->destinations, args->m, NULL, sizeof(struct ccl_entry));
        return code != CUDA_SUCCESS ? code : translate_call(&args->call);
    }
    unsigned long long size = each * args->count;
    int code =
        translate_rows(args->sources, args->n, args->sources_apart, args->rows, args->source_at, args->source_step, size);
    return code != CUDA_SUCCESS ? code
                                : translate_rows(args->destinations, args->m, args->destinations_apart, args->rows,
                                                 args->destination_at, args->destination_step, size);
}

/* Of an exchange without a call a rank has all of its own block, which says how long blocks are. */
static int translate_swap(struct ccl_swap_args *args) {
    unsigned ranks = args->call.ranks;
    if (args->call.number != 0) {
        return translate_call(&args->call);
    }
    if (ranks > CCL_MOST_SOURCES || args->me >= ranks) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned long long size = ranks * args->bytes[args->me];
    int code = translate(args->sends, ranks, NULL, size);
    return code != CUDA_SUCCESS ? code : translate(args->recvs, ranks, NULL, size);
}

static int ends(const char *name, const char *end) {
    size_t length = strlen(name);
    return length > strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* FAKE_CUDA_LAUNCH says which launch of all fails, if that is set. */
static int launch_fault(void) {
    static atomic_int launches;
    const char *which = getenv("FAKE_CUDA_LAUNCH");
    return which != NULL && atomic_fetch_add(&launches, 1) + 1 == atoi(which) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

int cuLaunchKernel(const char *function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned block, unsigned block_y,
                   unsigned block_z, unsigned shared, CUstream stream, void **params, void **extra) {
    IN_CONTEXT();
    if (grid == 0 || block == 0 || grid_y == 0 || grid_z * block_y * block_z != 1 || shared != 0 || extra != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int code = launch_fault();
    if (code != CUDA_SUCCESS) {
        return code;
    }
    unsigned rows = 1;
    void *args = copied(params[0], size_of_args(function));
    if (strcmp(function, "ccl_copy") == 0) {
        struct ccl_copy_args *copy = args;
        code = translate(copy->from, copy->ranges, copy->bytes, 0);
        code = code != CUDA_SUCCESS ? code : translate(copy->to, copy->ranges, copy->bytes, 0);
    } else if (strcmp(function, "ccl_arrive") == 0) {
        code = translate_call(&((struct ccl_arrive_args *)args)->call);
    } else if (strcmp(function, "ccl_swap") == 0) {
        code = translate_swap(args);
    } else {
        unsigned each = ends(function, "64") ? 8 : ends(function, "32") ? 4 : ends(function, "16") ? 2 : 1;
        rows = ((struct ccl_reduce_args *)args)->rows;
        code = translate_reduce(args, each);
    }
    code = code == CUDA_SUCCESS && rows != grid_y ? CUDA_ERROR_INVALID_VALUE : code;
    Work work = {.what = KERNEL, .to = args, .from = function, .size = block, .value = grid, .rows = rows};
    code = code != CUDA_SUCCESS ? code : give(stream, work);
    if (code != CUDA_SUCCESS) {
        free(args);
    }
    return code;
}

int cuMemFree_v2(CUdeviceptr at) {
    ENTER();
    await_streams();
    pthread_mutex_lock(&lock);
    Memory *one = find((void *)at, 1);
    if (one == NULL || one->kind != DEVICE || one->base != (char *)at) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t pages = (one->size + 4095) / 4096 * 4096;
    /* The addresses stay taken, as the driver's do. */
    munmap(one->alias, pages);
    close(one->file);
    one->base = NULL;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

int cuMemHostRegister_v2(void *at, size_t size, unsigned flags) {
    NOT_CAPTURED();
    if (flags != 3 || (uintptr_t)at % 4096 != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return keep((Memory){.kind = HOST, .device = stack[depth - 1]->device, .base = at, .alias = at, .size = size});
}

int cuMemHostUnregister(void *at) {
    ENTER();
    await_streams();
    pthread_mutex_lock(&lock);
    Memory *one = find(at, 1);
    if (one != NULL) {
        one->base = NULL;
    }
    pthread_mutex_unlock(&lock);
    return one != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuMemHostGetDevicePointer_v2(CUdeviceptr *there, void *at, unsigned flags) {
    IN_CONTEXT();
    *there = (CUdeviceptr)at;
    return flags == 0 && alias(at, 1, HOST, 0) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether this is host memory that is not pinned. */
static int is_pageable(const void *at, size_t size) {
    pthread_mutex_lock(&lock);
    Memory *begin = find(at, 1), *end = find((const char *)at + size - 1, 1);
    pthread_mutex_unlock(&lock);
    return begin == NULL && end == NULL;
}

/* A copy of memory that is not pinned is over when this returns, whatever the stream waits for before. */
static int copy(CUstream stream, const void *to, int to_kind, const void *from, int from_kind, size_t size) {
    int device = stack[depth - 1]->device;
    char *there = alias(to, size, to_kind, device), *here = alias(from, size, from_kind, device);
    int from_pages = from_kind == HOST && is_pageable(from, size), to_pages = to_kind == HOST && is_pageable(to, size);
    there = to_pages ? (char *)to : there, here = from_pages ? (char *)from : here;
    if (there == NULL || here == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int code = give(stream, (Work){.what = COPY, .to = there, .from = here, .size = size});
    return code == CUDA_SUCCESS && (from_pages || to_pages) ? cuStreamSynchronize(stream) : code;
}

int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    IN_CONTEXT();
    return copy(stream, to, HOST, (void *)from, DEVICE, size);
}

int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    IN_CONTEXT();
    return copy(stream, (void *)to, DEVICE, from, HOST, size);
}

int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    IN_CONTEXT();
    return copy(stream, (void *)to, DEVICE, (void *)from, DEVICE, size);
}

static int copy_now(void *to, const void *from, size_t size) {
    int code = default_stream(NULL, 1);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (to == NULL || from == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(to, from, size);
    return CUDA_SUCCESS;
}

int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    NOT_CAPTURED();
    return copy_now(alias((void *)to, size, DEVICE, stack[depth - 1]->device), from, size);
}

int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    NOT_CAPTURED();
    return copy_now(to, alias((void *)from, size, DEVICE, stack[depth - 1]->device), size);
}

int cuStreamCreate(CUstream *stream, unsigned flags) {
    IN_CONTEXT();
    pthread_mutex_lock(&lock);
    *stream = make(stack[depth - 1]);
    if (*stream != NULL) {
        (*stream)->blocking = flags == 0;
    }
    pthread_mutex_unlock(&lock);
    return flags <= 1 && *stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuStreamGetId(CUstream raw, unsigned long long *id) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    *id = stream == NULL ? 0 : stream->id;
    return stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

int cuStreamDestroy_v2(CUstream raw) {
    Stream *stream = named(raw);
    pthread_detach(stream->thread);
    pthread_mutex_lock(&stream->lock);
    stream->ending = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

int cuStreamSynchronize(CUstream raw) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    int code = default_stream(raw, 1);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (capture_of(stream) != NULL) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_lock(&stream->lock);
    unsigned long given = stream->given;
    while (stream->done < given) {
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

int cuStreamQuery(CUstream raw) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    int code = default_stream(raw, 1);
    if (code != CUDA_SUCCESS) {
        return code;
    }
    if (capture_of(stream) != NULL) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_lock(&stream->lock);
    int idle = stream->done == stream->given;
    pthread_mutex_unlock(&stream->lock);
    return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

int cuStreamGetCtx(CUstream raw, CUcontext *context) {
    ENTER();
    Stream *stream = named(raw);
    if (stream == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *context = stream->context;
    return CUDA_SUCCESS;
}

int cuStreamBeginCapture_v2(CUstream raw, int mode) {
    IN_CONTEXT();
    static atomic_ullong ids;
    Stream *stream = named(raw);
    if (mode < 0 || mode > 2 || capture_of(stream) != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Graph *graph = calloc(1, sizeof *graph);
    graph->works.last = &graph->works.first;
    graph->id = atomic_fetch_add(&ids, 1) + 1;
    graph->mode = mode;
    graph->uses = 1;
    atomic_fetch_add(&captures, mode == 0);
    captures_here += mode == 1;
    stream->capture = graph;
    return CUDA_SUCCESS;
}

int cuStreamEndCapture(CUstream raw, Graph **graph) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    if (capture_of(stream) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *graph = stream->capture;
    atomic_fetch_sub(&captures, (*graph)->mode == 0);
    captures_here -= (*graph)->mode == 1;
    (*graph)->ended = 1;
    stream->capture = NULL;
    if (atomic_load(&(*graph)->invalid)) {
        cuGraphDestroy(*graph);
        *graph = NULL;
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return CUDA_SUCCESS;
}

int cuStreamGetCaptureInfo_v2(CUstream raw, int *status, unsigned long long *id, Graph **graph, const void **before, size_t *count) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    if (stream == NULL || before != NULL || count != NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (default_stream(raw, 0) != CUDA_SUCCESS) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    Graph *capture = capture_of(stream);
    *status = capture == NULL ? 0 : atomic_load(&capture->invalid) ? 2 : 1;
    *id = capture != NULL ? capture->id : 0;
    *graph = capture;
    return CUDA_SUCCESS;
}

int cuGraphInstantiateWithFlags(Graph **launched, Graph *graph, unsigned long long flags) {
    IN_CONTEXT();
    atomic_fetch_add(&graph->uses, 1);
    *launched = graph;
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuGraphLaunch(Graph *graph, CUstream raw) {
    IN_CONTEXT();
    for (Work *one = graph->works.first; one != NULL; one = one->next) {
        Work work = *one;
        if (work.what == KERNEL) {
            work.to = copied(work.to, size_of_args(work.from));
        }
        int code = give(raw, work);
        if (code != CUDA_SUCCESS) {
            return code;
        }
    }
    return CUDA_SUCCESS;
}

static void release_object(Object *object) {
    if (atomic_fetch_sub(&object->uses, 1) == 1) {
        object->destroy(object->what);
        free(object);
    }
}

int cuGraphDestroy(Graph *graph) {
    if (atomic_fetch_sub(&graph->uses, 1) > 1) {
        return CUDA_SUCCESS;
    }
    for (int i = 0; i < graph->objects_kept; i++) {
        release_object(graph->objects[i]);
    }
    for (Work *one = graph->works.first; one != NULL;) {
        Work *next = one->next;
        if (one->what == KERNEL) {
            free(one->to);
        }
        free(one);
        one = next;
    }
    return CUDA_SUCCESS; /* Streams and events may still know that they were in it. */
}

int cuGraphExecDestroy(Graph *launched) { return cuGraphDestroy(launched); }

int cuUserObjectCreate(Object **object, void *what, void (*destroy)(void *), unsigned uses, unsigned flags) {
    ENTER();
    if (flags != 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *object = calloc(1, sizeof **object);
    (*object)->what = what, (*object)->destroy = destroy, (*object)->uses = (int)uses;
    return CUDA_SUCCESS;
}

int cuUserObjectRelease(Object *object, unsigned count) {
    while (count-- > 0) {
        release_object(object);
    }
    return CUDA_SUCCESS;
}

/* With flag 1 the caller's reference becomes the graph's. */
int cuGraphRetainUserObject(Graph *graph, Object *object, unsigned count, unsigned flags) {
    ENTER();
    if (count != 1 || flags != 1 || graph->objects_kept == 256) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph->objects[graph->objects_kept++] = object;
    return CUDA_SUCCESS;
}

int cuEventCreate(Event **event, unsigned flags) {
    IN_CONTEXT();
    *event = calloc(1, sizeof **event);
    return flags == 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuEventDestroy_v2(Event *event) {
    leave_mark(event->mark);
    free(event);
    return CUDA_SUCCESS;
}

int cuEventRecord(Event *event, CUstream raw) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    leave_mark(event->mark);
    event->mark = NULL;
    event->capture = stream != NULL ? capture_of(stream) : NULL;
    if (event->capture != NULL) {
        return CUDA_SUCCESS;
    }
    event->mark = calloc(1, sizeof *event->mark);
    event->mark->uses = 2;
    return give(raw, (Work){.what = PASS, .to = (char *)event->mark});
}

int cuEventQuery(Event *event) {
    IN_CONTEXT();
    if (event->capture != NULL) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return event->mark == NULL || atomic_load(&event->mark->passed) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* A stream that waits for a point in a capture joins it; its work is captured behind that point as it comes. */
int cuStreamWaitEvent(CUstream raw, Event *event, unsigned flags) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    if (stream == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Graph *capture = capture_of(stream);
    if (event->capture != NULL) {
        if (event->capture->ended || (capture != NULL && capture != event->capture)) {
            return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        stream->capture = event->capture;
        joins++;
        return CUDA_SUCCESS;
    }
    if (event->mark == NULL) {
        return CUDA_SUCCESS;
    }
    if (capture != NULL) {
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    atomic_fetch_add(&event->mark->uses, 1);
    return give(raw, (Work){.what = AWAIT, .to = (char *)event->mark});
}

static int flag(CUstream stream, enum What what, CUdeviceptr at, uint64_t value, unsigned flags) {
    size_t size = what == WAIT_LONG ? 8 : 4;
    char *there = alias((void *)at, size, 0, stack[depth - 1]->device);
    if (there == NULL || at % size != 0 || flags != (what == WAIT_LONG)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return give(stream, (Work){.what = what, .to = there, .value = value});
}

int cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    IN_CONTEXT();
    return flag(stream, WRITE, at, value, flags);
}

int cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *all, unsigned flags) {
    IN_CONTEXT();
    if (count == 0 || count > 255 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        static const enum What WHAT[] = {PASS, WAIT, WRITE, PASS, WAIT_LONG};
        enum What what = all[i].operation >= 1 && all[i].operation <= 4 ? WHAT[all[i].operation] : PASS;
        int code = what == PASS ? CUDA_ERROR_INVALID_VALUE : flag(stream, what, all[i].address, all[i].value, all[i].flags);
        if (code != CUDA_SUCCESS) {
            return code;
        }
    }
    return CUDA_SUCCESS;
}

#ifndef WITHOUT_WAITS
int cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    IN_CONTEXT();
    return flag(stream, WAIT, at, value, flags);
}
#endif
