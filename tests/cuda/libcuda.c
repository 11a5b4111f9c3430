/* A stand-in for NVIDIA's libcuda.so.1: two devices whose memory is the host's and whose streams are threads.

   It is stricter than the real one where that finds mistakes. The program has device memory mapped without any access, so that
   code which takes it for host memory ends. Copies want pinned host memory and a current context, flags want pinned or device
   memory. fake.h has what tests use to make it fail. */
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
} Memory;

enum What { COPY, WRITE, WAIT, KERNEL };

typedef struct Work {
    enum What what;
    char *to;
    const char *from;
    size_t size;
    uint32_t value;
    struct Work *next;
} Work;

typedef struct Stream {
    Context *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Work *first, **last;
    unsigned long given, done;
    int capturing, ending;
} Stream;

static Context contexts[DEVICES] = {{.device = 0}, {.device = 1}};
static Memory memory[MOST];
static int memories;
static atomic_int peers[DEVICES][DEVICES]; /* Whether the first may use the second's memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local Context *stack[64];
static _Thread_local int depth;
static atomic_int sticky, failing, modules;
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

/* The memory that has all these bytes; the lock is held. */
static Memory *find(const void *at, size_t size) {
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

/* The kernels, by src/cuda/kernels/host.cpp, where that is linked. */
__attribute__((weak)) long long ccl_kernels_on_host(const char *name, const void *args, unsigned grid, unsigned block, int backwards);

static void *carry_out(void *given) {
    Stream *stream = given;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (stream->first == NULL && !stream->ending) {
            pthread_cond_wait(&stream->changed, &stream->lock);
        }
        Work *work = stream->first;
        pthread_mutex_unlock(&stream->lock);
        if (work == NULL) {
            return NULL;
        }
        /* A broken context does nothing more. */
        while (atomic_load(&sticky) != 0) {
            usleep(1000);
        }
        switch (work->what) {
        case COPY:
            memmove(work->to, work->from, work->size);
            break;
        case WRITE:
            atomic_store((_Atomic uint32_t *)work->to, work->value);
            break;
        case WAIT:
            while ((int32_t)(atomic_load((_Atomic uint32_t *)work->to) - work->value) < 0) {
                usleep(20);
            }
            break;
        case KERNEL:
            if (ccl_kernels_on_host(work->from, work->to, work->value, (unsigned)work->size, 0) != 0) {
                fakeBreak(CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            free(work->to);
            break;
        }
        pthread_mutex_lock(&stream->lock);
        stream->first = work->next;
        if (stream->first == NULL) {
            stream->last = &stream->first;
        }
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        free(work);
    }
}

static Stream *make(Context *context) {
    Stream *stream = calloc(1, sizeof *stream);
    stream->context = context;
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&stream->thread, NULL, carry_out, stream) != 0) {
        free(stream);
        return NULL;
    }
    return stream;
}

/* The stream that is meant; the special ones are one of the current context's. */
static Stream *named(CUstream raw) {
    if ((uintptr_t)raw > 2) {
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

static int give(CUstream raw, Work work) {
    Stream *stream = named(raw);
    if (stream == NULL || stream->context != stack[depth - 1]) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capturing) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    Work *kept = malloc(sizeof *kept);
    *kept = work;
    kept->next = NULL;
    pthread_mutex_lock(&stream->lock);
    *stream->last = kept;
    stream->last = &kept->next;
    stream->given++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_INIT is what it gives, if that is set. */
int cuInit(unsigned flags) {
    ENTER();
    const char *code = getenv("FAKE_CUDA_INIT");
    return code != NULL ? atoi(code) : flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
    ENTER();
    *count = DEVICES;
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
static int map(CUdeviceptr *at, int file, size_t size, int device) {
    size_t pages = (size + 4095) / 4096 * 4096;
    char *there = mmap(NULL, pages, PROT_NONE, MAP_SHARED, file, 0);
    char *here = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (there == MAP_FAILED || here == MAP_FAILED) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *at = (CUdeviceptr)there;
    return keep((Memory){.kind = DEVICE, .device = device, .base = there, .alias = here, .size = size, .file = file});
}

int cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
    IN_CONTEXT();
    size_t pages = (size + 4095) / 4096 * 4096;
    int file = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (size == 0 || file < 0 || ftruncate(file, (off_t)pages) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return map(at, file, size, stack[depth - 1]->device);
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
    return map(at, file, exported.size, exported.device);
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
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 2 : -1;
    return *value >= 0 && device >= 0 && device < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuModuleLoadData(void **module, const void *image) {
    IN_CONTEXT();
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

static int ends(const char *name, const char *end) {
    size_t length = strlen(name);
    return length > strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

int cuLaunchKernel(const char *function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned block, unsigned block_y,
                   unsigned block_z, unsigned shared, CUstream stream, void **params, void **extra) {
    IN_CONTEXT();
    if (grid == 0 || block == 0 || grid_y * grid_z * block_y * block_z != 1 || shared != 0 || extra != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int copies = strcmp(function, "ccl_copy") == 0, code;
    size_t size = copies ? sizeof(struct ccl_copy_args) : sizeof(struct ccl_reduce_args);
    void *args = malloc(size);
    memcpy(args, params[0], size);
    if (copies) {
        struct ccl_copy_args *copy = args;
        code = translate(copy->from, copy->ranges, copy->bytes, 0);
        code = code != CUDA_SUCCESS ? code : translate(copy->to, copy->ranges, copy->bytes, 0);
    } else {
        struct ccl_reduce_args *reduce = args;
        unsigned each = ends(function, "64") ? 8 : ends(function, "32") ? 4 : ends(function, "16") ? 2 : 1;
        code = translate(reduce->sources, reduce->n, NULL, each * reduce->count);
        code = code != CUDA_SUCCESS ? code : translate(reduce->destinations, reduce->m, NULL, each * reduce->count);
    }
    code = code != CUDA_SUCCESS
               ? code
               : give(stream, (Work){.what = KERNEL, .to = args, .from = function, .size = block, .value = grid});
    if (code != CUDA_SUCCESS) {
        free(args);
    }
    return code;
}

int cuMemFree_v2(CUdeviceptr at) {
    ENTER();
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
    IN_CONTEXT();
    if (flags != 3 || (uintptr_t)at % 4096 != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return keep((Memory){.kind = HOST, .device = stack[depth - 1]->device, .base = at, .alias = at, .size = size});
}

int cuMemHostUnregister(void *at) {
    ENTER();
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

static int copy(CUstream stream, const void *to, int to_kind, const void *from, int from_kind, size_t size) {
    int device = stack[depth - 1]->device;
    char *there = alias(to, size, to_kind, device), *here = alias(from, size, from_kind, device);
    if (there == NULL || here == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return give(stream, (Work){.what = COPY, .to = there, .from = here, .size = size});
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
    if (to == NULL || from == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(to, from, size);
    return CUDA_SUCCESS;
}

int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    IN_CONTEXT();
    return copy_now(alias((void *)to, size, DEVICE, stack[depth - 1]->device), from, size);
}

int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    IN_CONTEXT();
    return copy_now(to, alias((void *)from, size, DEVICE, stack[depth - 1]->device), size);
}

int cuStreamCreate(CUstream *stream, unsigned flags) {
    IN_CONTEXT();
    *stream = make(stack[depth - 1]);
    return flags <= 1 && *stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuStreamDestroy_v2(CUstream stream) {
    pthread_mutex_lock(&stream->lock);
    stream->ending = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    free(stream);
    return CUDA_SUCCESS;
}

int cuStreamSynchronize(CUstream raw) {
    IN_CONTEXT();
    Stream *stream = named(raw);
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

int cuStreamBeginCapture_v2(CUstream stream, int mode) {
    IN_CONTEXT();
    stream->capturing = 1;
    return mode >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuStreamEndCapture(CUstream stream, void **graph) {
    IN_CONTEXT();
    stream->capturing = 0;
    *graph = NULL;
    return CUDA_SUCCESS;
}

int cuStreamIsCapturing(CUstream raw, int *status) {
    IN_CONTEXT();
    Stream *stream = named(raw);
    if (stream == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *status = stream->capturing;
    return CUDA_SUCCESS;
}

static int flag(CUstream stream, enum What what, CUdeviceptr at, uint32_t value, unsigned flags) {
    char *there = alias((void *)at, sizeof value, 0, stack[depth - 1]->device);
    if (there == NULL || at % sizeof value != 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return give(stream, (Work){.what = what, .to = there, .value = value});
}

int cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    IN_CONTEXT();
    return flag(stream, WRITE, at, value, flags);
}

#ifndef WITHOUT_WAITS
int cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
    IN_CONTEXT();
    return flag(stream, WAIT, at, value, flags);
}
#endif
