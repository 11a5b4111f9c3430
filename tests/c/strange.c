/* Programs that a library must bear: without standard streams, with interval timers, with children that outlive a call,
   with threads that destroy, abort and guess handles while others call, that call as they end, without threads of their own. */
#include "ranks.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>

enum { COUNT = 30000 };

static float data[COUNT];
static cclComm_t shared;
static atomic_int stop, succeeded;

static cclComm_t init(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    return comm;
}

static void reduce(cclComm_t comm, int ranks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(i % 100);
    }
    OK(cclAllReduce(data, data, count, cclFloat, cclSum, comm, NULL));
    for (size_t i = 0; i < count; i++) {
        CHECK(data[i] == (float)(ranks * (int)(i % 100)));
    }
}

/* As a daemon has it: the numbers 0 to 2 are free, and then /dev/null. None of them may be the library's. */
static void no_standard_streams(cclUniqueId id, int ranks, int rank) {
    int error = fcntl(2, F_DUPFD_CLOEXEC, 100);
    cclComm_t comm;
    close(0), close(1), close(2);
    comm = init(id, ranks, rank);
    reduce(comm, ranks, COUNT);
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || open("/dev/null", O_RDWR) != fd) {
            dprintf(error, "descriptor %d is the library's\n", fd);
            _exit(1);
        }
    }
    dup2(error, 2);
    reduce(comm, ranks, COUNT);
    OK(cclCommDestroy(comm));
}

static void on_alarm(int number) { (void)number; }

static void signals(cclUniqueId id, int ranks, int rank) {
    struct itimerval every = {{0, 300}, {0, 300}};
    struct sigaction action;
    cclComm_t comm;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm; /* without SA_RESTART: system calls end early */
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    usleep((useconds_t)rank * 30000);
    comm = init(id, ranks, rank);
    for (int i = 0; i < 100; i++) {
        reduce(comm, ranks, i % 2 == 0 ? COUNT : 10);
    }
    OK(cclCommDestroy(comm));
}

static void *ask(void *nothing) {
    int value;
    while (!atomic_load(&stop)) {
        OK(cclCommCount(shared, &value));
    }
    return nothing;
}

/* A child that is forked while another thread is in the library can make its own communicator, and not use this. */
static void children(cclUniqueId id, int ranks, int rank) {
    pthread_t thread;
    int status, value;
    shared = init(id, ranks, rank);
    atomic_store(&stop, 0);
    CHECK(pthread_create(&thread, NULL, ask, NULL) == 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            cclUniqueId own;
            cclComm_t comm;
            alarm(60);
            REFUSED(cclInvalidUsage, "parent", cclCommCount(shared, &value));
            REFUSED(cclInvalidUsage, "parent", cclAllReduce(data, data, 1, cclFloat, cclSum, shared, NULL));
            REFUSED(cclInvalidUsage, "parent", cclCommAbort(shared));
            REFUSED(cclInvalidUsage, "parent", cclCommDestroy(shared));
            OK(cclGetUniqueId(&own));
            comm = init(own, 1, 0);
            CHECK(comm != shared);
            reduce(comm, 1, 10);
            OK(cclCommDestroy(comm));
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&stop, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    reduce(shared, ranks, COUNT);
    OK(cclCommDestroy(shared));
}

static void never(void *nothing, cclResult_t result) {
    (void)nothing, (void)result;
    _exit(1);
}

/* A stream that was made before anything else is the parent's, too. */
static int streams_of_the_parent(void) {
    cclStream_t stream, own;
    int status;
    OK(cclStreamCreate(&stream));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        REFUSED(cclInvalidUsage, "parent", cclStreamQuery(stream));
        REFUSED(cclInvalidUsage, "parent", cclStreamAddCallback(stream, never, NULL));
        REFUSED(cclInvalidUsage, "parent", cclStreamSynchronize(stream));
        REFUSED(cclInvalidUsage, "parent", cclStreamDestroy(stream));
        OK(cclStreamCreate(&own));
        CHECK(own != stream);
        OK(cclStreamSynchronize(own));
        OK(cclStreamDestroy(own));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    OK(cclStreamSynchronize(stream));
    OK(cclStreamDestroy(stream));
    return status != 0;
}

static void *guess(void *nothing) {
    for (unsigned bit = 0; !atomic_load(&stop); bit = (bit + 1) % 48) {
        cclComm_t none = (cclComm_t)((uintptr_t)shared ^ (uintptr_t)1 << bit);
        cclResult_t state;
        EXPECT(cclInvalidArgument, cclCommGetAsyncError(none, &state));
        EXPECT(cclInvalidArgument, cclCommAbort(none));
        EXPECT(cclInvalidArgument, cclCommDestroy(none));
        CHECK(strstr(cclGetLastError(none), "never was one") != NULL);
    }
    return nothing;
}

static void *destroy(void *nothing) {
    if (cclCommDestroy(shared) == cclSuccess) {
        atomic_fetch_add(&succeeded, 1);
    }
    return nothing;
}

/* Threads that guess handles harm nobody, and of those that destroy one only one does it. */
static void guessers(cclUniqueId id, int ranks, int rank) {
    pthread_t threads[3];
    shared = init(id, ranks, rank);
    atomic_store(&stop, 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, guess, NULL) == 0);
    }
    for (int i = 0; i < 100; i++) {
        reduce(shared, ranks, 1000);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(pthread_create(&threads[i], NULL, destroy, NULL) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(atomic_load(&succeeded) == 1);
}

static void *call(void *nothing) {
    cclResult_t result = cclAllReduce(data, data, COUNT, cclFloat, cclSum, shared, NULL);
    /* The second if the thread came so late that the handle was gone already. */
    CHECK(result == cclSuccess || result == cclInvalidArgument);
    return nothing;
}

/* A call goes on although another thread has destroyed the handle. */
static void destroyed_in_a_call(cclUniqueId id, int ranks, int rank) {
    pthread_t thread;
    cclResult_t result;
    shared = init(id, ranks, rank);
    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, call, NULL) == 0);
        usleep(200 * 1000);
        OK(cclCommDestroy(shared));
        CHECK(pthread_join(thread, NULL) == 0);
        return;
    }
    usleep(400 * 1000);
    result = cclAllReduce(data, data, COUNT, cclFloat, cclSum, shared, NULL);
    CHECK(result == cclSuccess || result == cclRemoteError);
    OK(cclCommDestroy(shared));
}

static void gather(cclComm_t comm, int ranks, int rank) {
    enum { EACH = 1 << 16 };
    static int mine[EACH], all[2 * EACH];
    CHECK(ranks == 2);
    for (int i = 0; i < EACH; i++) {
        mine[i] = rank + 2 * i;
    }
    OK(cclAllGather(mine, all, EACH, cclInt32, comm, NULL));
    for (int i = 0; i < ranks * EACH; i++) {
        CHECK(all[i] == i / EACH + 2 * (i % EACH));
    }
}

static void *call_late(void *nothing) {
    cclComm_t copy;
    int rank;
    sleep(6); /* longer than the library goes without looking whether the program has threads */
    reduce(shared, 2, COUNT);
    OK(cclCommUserRank(shared, &rank));
    gather(shared, 2, rank);
    OK(cclCommDup(shared, &copy, NULL));
    gather(copy, 2, rank);
    OK(cclCommDestroy(copy));
    return nothing;
}

static void ignore(void *nothing, cclResult_t outcome) {
    (void)nothing;
    (void)outcome;
}

/* For the leak sanitizer, where that is: in a forked process it does not find the memory of `main`'s thread, and takes what the C library
   keeps there for lost where another thread ends the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:__cxa_thread_atexit_impl\n"; }

/* The thread of `main` ends, which keeps nobody from reading the process's memory, and then the last one: so does the process, though the
   library's threads take no signals. */
static void no_threads_left(cclUniqueId id, int ranks, int rank) {
    pthread_t thread;
    pid_t self = getpid();
    if (fork() == 0) {
        /* No signal that can be caught ends a process of which this does not hold. */
        for (int i = 0; i < 60 && getppid() == self; i++) {
            sleep(1);
        }
        if (getppid() == self) {
            kill(self, SIGKILL);
        }
        _exit(0);
    }
    CHECK(setenv("CCL_CMA", "on", 1) == 0 && setenv("CCL_TIMEOUT", "20", 1) == 0);
    shared = init(id, ranks, rank);
    gather(shared, ranks, rank);
    /* The thread of a stream's callbacks is the library's, too, when none runs. */
    cclStream_t stream;
    OK(cclStreamCreate(&stream));
    OK(cclStreamAddCallback(stream, ignore, NULL));
    OK(cclStreamSynchronize(stream));
    CHECK(pthread_create(&thread, NULL, call_late, NULL) == 0);
    pthread_exit(NULL);
}

/* What was registered after the first call of ccl comes before the process leaves its communicators: all goes as ever, though what C++
   has of a thread is gone by then. */
static void before_it_leaves(void) {
    cclComm_t copy;
    float sum = 1;
    OK(cclGroupStart());
    OK(cclAllReduce(&sum, &sum, 1, cclFloat, cclSum, shared, NULL));
    OK(cclGroupEnd());
    CHECK(sum == 2);
    OK(cclCommDup(shared, &copy, NULL));
    reduce(copy, 2, COUNT);
    OK(cclCommDestroy(copy));
}

static int calls_at_the_end;

/* What was registered before comes after, and is told what this process has done, and not that others have left. */
static void after_it_left(void) {
    float sum = 1;
    if (calls_at_the_end) {
        if (cclAllReduce(&sum, &sum, 1, cclFloat, cclSum, shared, NULL) != cclRemoteError ||
            strstr(cclGetLastError(NULL), "its process is ending") == NULL || cclCommDestroy(shared) != cclSuccess) {
            fprintf(stderr, "after it left: %s\n", cclGetLastError(NULL));
            _exit(1);
        }
    }
}

static void at_the_end(cclUniqueId id, int ranks, int rank) {
    shared = init(id, ranks, rank);
    calls_at_the_end = rank == 0;
    CHECK(atexit(before_it_leaves) == 0);
}

int main(void) {
    int failed = 0;
    CHECK(atexit(after_it_left) == 0);
    failed += streams_of_the_parent();
    failed += run_ranks(3, no_standard_streams);
    failed += run_ranks(3, signals);
    failed += run_ranks(2, children);
    failed += run_ranks(3, guessers);
    failed += run_ranks(2, destroyed_in_a_call);
    failed += run_ranks(2, at_the_end);
    failed += run_ranks(2, no_threads_left);
    return failed != 0;
}
