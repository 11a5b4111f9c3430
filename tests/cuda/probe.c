/* What a driver and its device do, as far as ccl's design rests on it: one line for each question. It needs nothing but libcuda.so.1, and
   asks each question in a process of its own, so that what blocks or fails is an answer as well.

   cc -O2 -pthread tests/cuda/probe.c -ldl -o probe && ./probe [WORDS]

   With words it asks the questions that have them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void *Handle;
typedef unsigned long long Address;
typedef struct {
    int operation;
    Address address;
    uint64_t value;
    unsigned flags;
    Address alias;
    uint64_t rest;
} MemOp;
typedef struct {
    char reserved[64];
} Ipc;

static void *library;

/* Calls a function of the driver by its name. */
#define CALL(name, types, ...) (((int(*) types)dlsym(library, name))(__VA_ARGS__))
#define CU(name, types, ...)                                                                                           \
    do {                                                                                                               \
        int result_ = CALL(name, types, __VA_ARGS__);                                                                  \
        if (result_ != 0) {                                                                                            \
            printf("%s gives %d (line %d)\n", name, result_, __LINE__);                                                \
            fflush(NULL);                                                                                              \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static Handle context;

static void begin(void) {
    int device;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("%s\n", dlerror());
        _exit(2);
    }
    CU("cuInit", (unsigned), 0);
    CU("cuDeviceGet", (int *, int), &device, 0);
    CU("cuDevicePrimaryCtxRetain", (Handle *, int), &context, device);
    CU("cuCtxPushCurrent_v2", (Handle), context);
}

static Handle stream(void) {
    Handle made;
    CU("cuStreamCreate", (Handle *, unsigned), &made, 1);
    return made;
}

static Address memory(size_t bytes) {
    Address at;
    CU("cuMemAlloc_v2", (Address *, size_t), &at, bytes);
    CU("cuMemsetD8_v2", (Address, unsigned char, size_t), at, 0, bytes);
    CU("cuCtxSynchronize", (void));
    return at;
}

static Address pinned(void *at, size_t bytes) {
    Address there;
    CU("cuMemHostRegister_v2", (void *, size_t, unsigned), at, bytes, 3);
    CU("cuMemHostGetDevicePointer_v2", (Address *, void *, unsigned), &there, at, 0);
    return there;
}

static void write_value(Handle s, Address at, uint32_t value) {
    CU("cuStreamWriteValue32_v2", (Handle, Address, uint32_t, unsigned), s, at, value, 0);
}
static void wait_value(Handle s, Address at, uint32_t value) {
    CU("cuStreamWaitValue32_v2", (Handle, Address, uint32_t, unsigned), s, at, value, 0);
}
static void synchronize(Handle s) { CU("cuStreamSynchronize", (Handle), s); }

static void *shared_memory(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void attributes(void) {
    static const struct {
        const char *name;
        int number;
    } ALL[] = {{"multiprocessors", 16},           {"L2 bytes", 38},
               {"DMA-BUF", 124},                  {"multicast", 132},
               {"wait for NOR", 123},
               {"64-bit memory operations", 122}, {"flush of remote writes", 98},
               {"VMM handles as descriptors", 103}, {"GPUDirect RDMA", 116},
               {"copy engines", 40},              {"unified addressing", 41},
               {"native atomics of the host", 86}, {"registered host memory by its own address", 91},
               {"concurrent kernels", 31}};
    char name[100];
    int version, value, device;
    begin();
    CU("cuDriverGetVersion", (int *), &version);
    CU("cuDeviceGet", (int *, int), &device, 0);
    CU("cuDeviceGetName", (char *, int, int), name, 100, device);
    printf("%s, driver for CUDA %d", name, version);
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        int result = CALL("cuDeviceGetAttribute", (int *, int, int), &value, ALL[i].number, device);
        printf("; %s %d%s", ALL[i].name, value, result == 0 ? "" : " (unknown)");
    }
    puts("");
}

/* By a thread that has no current context. */
static void pointers(void) {
    begin();
    Address at = memory(4096);
    int host = 0;
    CU("cuCtxPopCurrent_v2", (Handle *), &context);
    for (int which = 0; which < 2; which++) {
        int kinds[2] = {2, 9}, kind = -1, device = -1;
        void *answers[2] = {&kind, &device};
        int result = CALL("cuPointerGetAttributes", (unsigned, int *, void **, Address), 2, kinds, answers,
                          which == 0 ? at : (Address)(uintptr_t)&host);
        Address base = 0;
        size_t size = 0;
        int range = CALL("cuMemGetAddressRange_v2", (Address *, size_t *, Address), &base, &size,
                         which == 0 ? at : (Address)(uintptr_t)&host);
        printf("%s memory: attributes %d, type %d, device %d, range %d, %zu bytes; ", which == 0 ? "device" : "host", result, kind,
               device, range, size);
    }
    puts("");
}

static Handle nothing(void) {
    static const char PTX[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    Handle module, function;
    CU("cuModuleLoadData", (Handle *, const void *), &module, PTX);
    CU("cuModuleGetFunction", (Handle *, Handle, const char *), &function, module, "nothing");
    return function;
}

typedef int Launch(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);

static void launch_nothing(Handle function, Handle s) {
    ((Launch *)dlsym(library, "cuLaunchKernel"))(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
}

/* A graph of a kernel and of flags, which end as they were. */
static Handle graph_of(Handle s, Handle function, Address at) {
    Handle graph, made;
    CU("cuStreamBeginCapture_v2", (Handle, int), s, 1);
    launch_nothing(function, s);
    write_value(s, at, 1);
    wait_value(s, at, 1);
    write_value(s, at, 0);
    launch_nothing(function, s);
    CU("cuStreamEndCapture", (Handle, Handle *), s, &graph);
    CU("cuGraphInstantiateWithFlags", (Handle *, Handle, unsigned long long), &made, graph, 0);
    return made;
}

/* What waits while a stream of the context waits for a flag. */
static const char *blocked;
static void blocking(void) {
    begin();
    uint32_t *flags = shared_memory(4096);
    Address at = pinned(flags, 4096);
    void *host = shared_memory(1 << 20);
    Address before = memory(1 << 20);
    void *ready = shared_memory(1 << 20);
    pinned(ready, 1 << 20);
    char bytes[4096];
    Handle s = stream(), t = stream(), event, module, function = nothing(), graph = NULL;
    static const char PTX[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    CU("cuFuncLoad", (Handle), function);
    if (strncmp(blocked, "cuGraph", 7) == 0 && strcmp(blocked, "cuGraphInstantiate") != 0) {
        graph = graph_of(t, function, at + 128);
        if (strstr(blocked, "uploaded") != NULL) {
            CU("cuGraphUpload", (Handle, Handle), graph, t);
        } else if (strstr(blocked, "again") != NULL || strstr(blocked, "Destroy") != NULL) {
            CU("cuGraphLaunch", (Handle, Handle), graph, t);
        }
        synchronize(t);
    }
    wait_value(s, at, 1);
    double then = now();
    if (strcmp(blocked, "cuMemAlloc") == 0) {
        Address more;
        CU("cuMemAlloc_v2", (Address *, size_t), &more, 64 << 20);
    } else if (strcmp(blocked, "cuMemFree") == 0) {
        CU("cuMemFree_v2", (Address), before);
    } else if (strcmp(blocked, "cuMemHostRegister") == 0) {
        CU("cuMemHostRegister_v2", (void *, size_t, unsigned), host, 1 << 20, 3);
    } else if (strcmp(blocked, "cuMemHostUnregister") == 0) {
        CU("cuMemHostUnregister", (void *), ready);
    } else if (strcmp(blocked, "cuModuleLoadData") == 0) {
        CU("cuModuleLoadData", (Handle *, const void *), &module, PTX);
    } else if (strcmp(blocked, "cuStreamCreate") == 0) {
        stream();
    } else if (strcmp(blocked, "cuEventCreate") == 0) {
        CU("cuEventCreate", (Handle *, unsigned), &event, 2);
    } else if (strcmp(blocked, "cuMemcpyDtoH, pageable") == 0) {
        CU("cuMemcpyDtoH_v2", (void *, Address, size_t), bytes, before, sizeof bytes);
    } else if (strcmp(blocked, "cuMemcpyHtoD, pageable") == 0) {
        CU("cuMemcpyHtoD_v2", (Address, const void *, size_t), before, bytes, sizeof bytes);
    } else if (strcmp(blocked, "cuMemcpyDtoHAsync, another stream, pinned") == 0) {
        CU("cuMemcpyDtoHAsync_v2", (void *, Address, size_t, Handle), ready, before, 1 << 20, t);
        synchronize(t);
    } else if (strcmp(blocked, "cuMemcpyDtoDAsync, another stream") == 0) {
        CU("cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Handle), before, before + (1 << 19), 1 << 19, t);
        synchronize(t);
    } else if (strcmp(blocked, "cuIpcGetMemHandle") == 0) {
        Ipc handle;
        CU("cuIpcGetMemHandle", (Ipc *, Address), &handle, before);
    } else if (strcmp(blocked, "cuMemcpyDtoHAsync, pageable, the same stream") == 0) {
        CU("cuMemcpyDtoHAsync_v2", (void *, Address, size_t, Handle), bytes, before, sizeof bytes, s);
    } else if (strcmp(blocked, "cuLaunchKernel, the first one") == 0) {
        launch_nothing(function, t);
        synchronize(t);
    } else if (strcmp(blocked, "cuStreamWriteValue32, the first one") == 0) {
        write_value(t, at + 128, 1);
        synchronize(t);
    } else if (strcmp(blocked, "cuGraphInstantiate") == 0) {
        graph_of(t, function, at + 128);
    } else if (strncmp(blocked, "cuGraphLaunch", 13) == 0) {
        CU("cuGraphLaunch", (Handle, Handle), graph, t);
        synchronize(t);
    } else if (strcmp(blocked, "cuGraphUpload") == 0) {
        CU("cuGraphUpload", (Handle, Handle), graph, t);
    } else if (strcmp(blocked, "cuGraphExecDestroy") == 0) {
        CU("cuGraphExecDestroy", (Handle), graph);
    } else if (strcmp(blocked, "cuStreamDestroy, another stream") == 0) {
        CU("cuStreamDestroy_v2", (Handle), t);
    } else if (strcmp(blocked, "1,000 flags in the same stream") == 0) {
        for (int i = 0; i < 1000; i++) {
            write_value(s, at + 64, 1);
        }
    }
    printf("%.0f us; ", (now() - then) * 1e6);
    fflush(NULL);
    *(volatile uint32_t *)flags = 1;
    synchronize(s);
}

/* Two streams that tell each other by turns, in one process. */
static void inside(void) {
    begin();
    Handle s = stream(), t = stream();
    void *host = shared_memory(8192);
    Address there = memory(8192), here = pinned(host, 8192), gate = here + 4096;
    for (int which = 0; which < 2; which++) {
        Address flags = which == 0 ? here : there;
        enum { N = 200 };
        /* All is given before any of it begins. */
        wait_value(s, gate, (uint32_t)which + 1);
        for (int i = 1; i <= N; i++) {
            write_value(s, flags, (uint32_t)i), wait_value(s, flags + 256, (uint32_t)i);
            wait_value(t, flags, (uint32_t)i), write_value(t, flags + 256, (uint32_t)i);
        }
        usleep(20000);
        double then = now();
        *(volatile uint32_t *)((char *)host + 4096) = (uint32_t)which + 1;
        synchronize(s);
        printf("%.2f us by %s memory; ", (now() - then) * 1e6 / N, which == 0 ? "pinned host" : "device");
    }
    double then = now();
    for (int i = 0; i < 1000; i++) {
        write_value(s, here + 512, 1);
    }
    double given = now() - then;
    synchronize(s);
    printf("a write %.2f us to give, %.2f us in all; ", given * 1e3, (now() - then) * 1e3);
    MemOp all[32];
    memset(all, 0, sizeof all);
    for (int i = 0; i < 32; i++) {
        all[i].operation = 2, all[i].address = here + 1024 + (Address)(64 * i), all[i].value = 1;
    }
    then = now();
    for (int i = 0; i < 300; i++) {
        CU("cuStreamBatchMemOp_v2", (Handle, unsigned, MemOp *, unsigned), s, 32, all, 0);
    }
    given = now() - then;
    synchronize(s);
    printf("a batch of 32 writes %.2f us to give, %.2f us in all\n", given * 1e6 / 300, (now() - then) * 1e6 / 300);
}

/* The same by two processes. */
static void between(void) {
    enum { N = 200 };
    char *host = shared_memory(8192);
    int pipes[2];
    if (pipe(pipes) != 0) {
        exit(1);
    }
    pid_t child = fork();
    begin();
    Handle s = stream();
    Address here = pinned(host, 8192), gate = here + 4096, device;
    Ipc handle;
    if (child != 0) {
        device = memory(8192);
        CU("cuIpcGetMemHandle", (Ipc *, Address), &handle, device);
        if (write(pipes[1], &handle, sizeof handle) != sizeof handle) {
            exit(1);
        }
    } else {
        if (read(pipes[0], &handle, sizeof handle) != sizeof handle) {
            exit(1);
        }
        double then = now();
        CU("cuIpcOpenMemHandle_v2", (Address *, Ipc, unsigned), &device, handle, 1);
        printf("cuIpcOpenMemHandle %.0f us; ", (now() - then) * 1e6);
        fflush(NULL);
    }
    for (int which = 0; which < 2; which++) {
        Address flags = which == 0 ? here : device;
        volatile uint32_t *open = (volatile uint32_t *)(host + 4096), *there = (volatile uint32_t *)(host + 6144);
        wait_value(s, gate, (uint32_t)which + 1);
        for (int i = 1; i <= N; i++) {
            if (child != 0) {
                write_value(s, flags, (uint32_t)i), wait_value(s, flags + 256, (uint32_t)i);
            } else {
                wait_value(s, flags, (uint32_t)i), write_value(s, flags + 256, (uint32_t)i);
            }
        }
        if (child != 0) {
            while (*there != (uint32_t)which + 1) {
                usleep(1000);
            }
            usleep(20000);
            double then = now();
            *open = (uint32_t)which + 1;
            synchronize(s);
            printf("%.2f us by %s memory; ", (now() - then) * 1e6 / N, which == 0 ? "pinned host" : "IPC device");
            fflush(NULL);
        } else {
            *there = (uint32_t)which + 1;
            synchronize(s);
        }
    }
    if (child == 0) {
        _exit(0);
    }
    puts("");
    waitpid(child, NULL, 0);
}

/* N streams of a process that all wait for one another, the first ones before the last have written: whether one holds another up. */
static int streams;
static void crowd(void) {
    begin();
    Handle all[64];
    char *host = shared_memory(1 << 20);
    Address here = pinned(host, 1 << 20);
    for (int i = 0; i < streams; i++) {
        all[i] = stream();
    }
    double then = now();
    for (int round = 1; round <= 20; round++) {
        for (int i = 0; i < streams; i++) {
            for (int j = 0; j < streams; j++) {
                write_value(all[i], here + (Address)(i * 64 + j) * 64, (uint32_t)round);
            }
            for (int j = 0; j < streams; j++) {
                wait_value(all[i], here + (Address)(j * 64 + i) * 64, (uint32_t)round);
            }
        }
    }
    for (int i = 0; i < streams; i++) {
        synchronize(all[i]);
    }
    printf("%.1f us a round; ", (now() - then) * 1e6 / 20);
}

/* A thread fills a stream that waits for a flag. */
static struct {
    Handle stream, function;
    Launch *launch;
    volatile int count;
    int flags;
    Address at;
} filled;

static void *fill(void *unused) {
    CU("cuCtxPushCurrent_v2", (Handle), context);
    for (int i = 0; i < 20000; i++) {
        if (filled.flags) {
            write_value(filled.stream, filled.at + 64, 1);
        } else {
            filled.launch(filled.function, 1, 1, 1, 32, 1, 1, 0, filled.stream, NULL, NULL);
        }
        filled.count = i + 1;
    }
    return unused;
}

/* How much a stream that waits takes, and whether others can be given work when it takes no more. */
static void full(void) {
    pthread_t thread;
    begin();
    uint32_t *flags = shared_memory(4096);
    Address at = pinned(flags, 4096);
    Handle t = stream();
    filled.stream = stream(), filled.function = nothing(), filled.launch = (Launch *)dlsym(library, "cuLaunchKernel"), filled.at = at;
    wait_value(filled.stream, at, 1);
    pthread_create(&thread, NULL, fill, NULL);
    for (int before = -1; filled.count != before; usleep(300000)) {
        before = filled.count;
    }
    printf("%d %s until it takes no more; ", filled.count, filled.flags ? "flags" : "kernels");
    fflush(NULL);
    double then = now();
    filled.launch(filled.function, 1, 1, 1, 32, 1, 1, 0, t, NULL, NULL);
    printf("a kernel in another stream %.0f us; ", (now() - then) * 1e6);
    fflush(NULL);
    synchronize(t);
    printf("waited for %.0f us; ", (now() - then) * 1e6);
    fflush(NULL);
    *(volatile uint32_t *)flags = 1;
    pthread_join(thread, NULL);
    synchronize(filled.stream);
}

/* Launches, and copies, alone and in graphs. */
static void launches(void) {
    begin();
    Handle s = stream(), function = nothing(), graph, made;
    Launch *launch = (Launch *)dlsym(library, "cuLaunchKernel");
    double best = 1;
    for (int i = 0; i < 200; i++) {
        double then = now();
        launch(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
        synchronize(s);
        double took = now() - then;
        best = took < best ? took : best;
    }
    printf("an empty kernel, launched and waited for %.2f us; ", best * 1e6);
    double then = now();
    for (int i = 0; i < 1000; i++) {
        launch(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
    }
    synchronize(s);
    printf("of many %.2f us; ", (now() - then) * 1e3);
    CU("cuStreamBeginCapture_v2", (Handle, int), s, 1);
    for (int i = 0; i < 100; i++) {
        launch(function, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
    }
    CU("cuStreamEndCapture", (Handle, Handle *), s, &graph);
    CU("cuGraphInstantiateWithFlags", (Handle *, Handle, unsigned long long), &made, graph, 0);
    for (int i = 0; i < 2; i++) {
        then = now();
        CU("cuGraphLaunch", (Handle, Handle), made, s);
        synchronize(s);
    }
    printf("of 100 in a graph %.2f us; ", (now() - then) * 1e4);
    void *host = shared_memory(4096);
    Address here = pinned(host, 4096);
    CU("cuStreamBeginCapture_v2", (Handle, int), s, 1);
    for (int i = 0; i < 100; i++) {
        write_value(s, here, 1);
        wait_value(s, here, 1);
        write_value(s, here, 0);
    }
    CU("cuStreamEndCapture", (Handle, Handle *), s, &graph);
    CU("cuGraphInstantiateWithFlags", (Handle *, Handle, unsigned long long), &made, graph, 0);
    for (int i = 0; i < 3; i++) {
        then = now();
        CU("cuGraphLaunch", (Handle, Handle), made, s);
        synchronize(s);
    }
    printf("write, wait and write in a graph %.2f us; ", (now() - then) * 1e4);
    size_t size = 256 << 20;
    Address from = memory(size), to = memory(size);
    for (int i = 0; i < 2; i++) {
        then = now();
        for (int k = 0; k < 20; k++) {
            CU("cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Handle), to, from, size, s);
        }
        synchronize(s);
    }
    printf("a copy of 256 MiB moves %.0f GB/s, read and written; ", 2e-9 * (double)size * 20 / (now() - then));
    char *pages = shared_memory(size);
    memset(pages, 1, size);
    pinned(pages, size);
    for (int i = 0; i < 2; i++) {
        then = now();
        for (int k = 0; k < 4; k++) {
            CU("cuMemcpyDtoHAsync_v2", (void *, Address, size_t, Handle), pages, from, size, s);
        }
        synchronize(s);
    }
    printf("to pinned memory %.1f GB/s; ", 4e-9 * (double)size / (now() - then));
    for (int i = 0; i < 2; i++) {
        then = now();
        for (int k = 0; k < 4; k++) {
            CU("cuMemcpyHtoDAsync_v2", (Address, const void *, size_t, Handle), from, pages, size, s);
        }
        synchronize(s);
    }
    printf("from there %.1f GB/s\n", 4e-9 * (double)size / (now() - then));
}

static const char *words = "";

static void ask(const char *question, void (*answer)(void)) {
    int status;
    if (strstr(question, words) == NULL) {
        return;
    }
    printf("%s: ", question);
    fflush(NULL);
    double then = now();
    pid_t child = fork();
    if (child == 0) {
        alarm(4);
        answer();
        fflush(NULL);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        printf("%s; ", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "NO END within 4 s" : "FAILED");
    }
    printf("[%.1f s]\n", now() - then);
    fflush(NULL);
}

int main(int count, char **all) {
    words = count > 1 ? all[1] : "";
    static const char *const CALLS[] = {"cuMemAlloc", "cuMemFree", "cuMemHostRegister", "cuMemHostUnregister", "cuModuleLoadData",
        "cuStreamCreate", "cuEventCreate", "cuMemcpyDtoH, pageable", "cuMemcpyHtoD, pageable",
        "cuMemcpyDtoHAsync, another stream, pinned", "cuMemcpyDtoDAsync, another stream", "cuIpcGetMemHandle",
        "cuMemcpyDtoHAsync, pageable, the same stream", "1,000 flags in the same stream", "cuLaunchKernel, the first one",
        "cuStreamWriteValue32, the first one", "cuGraphInstantiate", "cuGraphLaunch, the first one", "cuGraphLaunch, uploaded",
        "cuGraphLaunch, again", "cuGraphUpload", "cuGraphExecDestroy", "cuStreamDestroy, another stream"};
    static const int STREAMS[] = {2, 4, 8, 12, 16, 24, 32, 48};
    ask("the device", attributes);
    ask("pointers, without a current context", pointers);
    ask("streams of a process that tell each other by turns", inside);
    ask("streams of two processes that do", between);
    for (size_t i = 0; i < sizeof STREAMS / sizeof *STREAMS; i++) {
        char text[100];
        streams = STREAMS[i];
        snprintf(text, sizeof text, "%d streams of a process that wait for all others", streams);
        ask(text, crowd);
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    streams = 32;
    ask("32 streams, and as many connections", crowd);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        char text[100];
        blocked = CALLS[i];
        snprintf(text, sizeof text, "while a stream waits, %s", blocked);
        ask(text, blocking);
    }
    for (filled.flags = 0; filled.flags < 2; filled.flags++) {
        ask("a stream that waits is filled", full);
    }
    ask("launches and copies", launches);
    return 0;
}
