/* What TCP between two processes of this machine can do: the bounds that scripts/bench-peers --transport tcp holds the
   collectives against.

   Two processes, each on a processor of its own, busy with calls that do not wait on one connection over the loopback
   interface. A line `name,bytes,figure` is the median of five passes:
     tcp_exchange  both write 8 bytes and wait for the other's, ns
     tcp_one_way   8 bytes there and back, ns of one way
     tcp_stream    so many bytes from one to the other, again and again, 1e9 bytes/s
     tcp_both      both send so many bytes and receive as many, again and again, 1e9 bytes/s of each direction */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PASSES = 5, TURNS = 20000, CHUNK = 1 << 20 };
static const size_t SIZES[] = {64 << 10, 1 << 20, 16 << 20, 256 << 20};

static int me, wire;
static char out[CHUNK], in[CHUNK];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int is_right, const char *what) {
    if (is_right) return;
    perror(what);
    exit(1);
}

/* Sends and receives so many bytes at once. */
static void move(size_t send_bytes, size_t receive_bytes) {
    while (send_bytes || receive_bytes) {
        if (send_bytes) {
            ssize_t sent = send(wire, out, send_bytes < CHUNK ? send_bytes : CHUNK, MSG_DONTWAIT | MSG_NOSIGNAL);
            must(sent > 0 || errno == EAGAIN, "send");
            if (sent > 0) send_bytes -= (size_t)sent;
        }
        if (receive_bytes) {
            ssize_t came = recv(wire, in, receive_bytes < CHUNK ? receive_bytes : CHUNK, MSG_DONTWAIT);
            must(came > 0 || (came < 0 && errno == EAGAIN), "recv");
            if (came > 0) receive_bytes -= (size_t)came;
        }
    }
}

/* Both are here. */
static void meet(void) { move(1, 1); }

static double exchange(size_t bytes, int turns) {
    double begin;
    meet();
    begin = now();
    for (int i = 0; i < turns; i++) move(bytes, bytes);
    return (now() - begin) / turns;
}

static double one_way(size_t bytes, int turns) {
    double begin;
    meet();
    begin = now();
    for (int i = 0; i < turns; i++) {
        if (me == 0) move(bytes, 0);
        move(0, bytes);
        if (me == 1) move(bytes, 0);
    }
    return (now() - begin) / turns / 2;
}

static double stream(size_t bytes, int turns) {
    double begin;
    meet();
    begin = now();
    for (int i = 0; i < turns; i++) move(me ? 0 : bytes, me ? bytes : 0);
    meet();
    return (now() - begin) / turns;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of `turns` times what `run` does with `moved` bytes: of so many bytes a rate, of none a time. */
static void report(const char *name, size_t bytes, double (*run)(size_t, int), size_t moved, int turns) {
    double figures[PASSES], middle;
    run(moved, turns / 4 + 1);
    for (int pass = 0; pass < PASSES; pass++) figures[pass] = run(moved, turns);
    qsort(figures, PASSES, sizeof *figures, ascending);
    middle = figures[PASSES / 2];
    if (me == 0) printf("%s,%zu,%.5g\n", name, bytes, bytes ? (double)bytes / middle / 1e9 : middle * 1e9);
    fflush(stdout);
}

/* One connection between this process and the child that it makes. */
static void connect_both(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    pid_t child, parent = getpid();
    must(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "getsockname");
    child = fork();
    must(child >= 0, "fork");
    me = child == 0;
    if (me) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) exit(1);
        wire = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(wire, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    } else {
        wire = accept(listener, NULL, NULL);
        must(wire >= 0, "accept");
    }
    must(setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
}

static void pin(void) {
    cpu_set_t allowed, mine;
    int left = me;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        fprintf(stderr, "this takes two processors\n");
        exit(1);
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

int main(void) {
    int status = 0;
    connect_both();
    pin();
    report("tcp_exchange", 0, exchange, 8, TURNS);
    report("tcp_one_way", 0, one_way, 8, TURNS);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        int turns = (int)((512 << 20) / SIZES[i] / (SIZES[i] < 1 << 20 ? 4 : 1));
        report("tcp_stream", SIZES[i], stream, SIZES[i], turns);
        report("tcp_both", SIZES[i], exchange, SIZES[i], turns);
    }
    if (me) return 0;
    must(wait(&status) > 0 && status == 0, "the other process");
    return 0;
}
