/* What it takes an MPI's rank to be there: scripts/bench-init builds it with each of them. Every rank joins, makes two
   all-reduces of 1 KiB, and tells how long joining took it and how much memory it has. Rank 0 prints

   join init_ms most_init_ms resident_bytes most_resident_bytes share_bytes most_share_bytes

   each number the mean and the most of all ranks; a rank's share is Pss of /proc/self/smaps_rollup. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COUNT = 256 };

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Bytes in the line of that name. */
static double memory(const char *name) {
    char line[256];
    double kib = 0, found = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%lf", &kib) == 1) found = kib;
    fclose(file);
    return 1024 * found;
}

int main(int argc, char **argv) {
    static float sent[COUNT], received[COUNT];
    double began = now_ms(), mine[3], sum[3], most[3];
    int rank, ranks, wrong = 0;
    MPI_Init(&argc, &argv);
    mine[0] = now_ms() - began;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < COUNT; i++) sent[i] = 1;
    for (int call = 0; call < 2; call++)
        MPI_Allreduce(sent, received, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) wrong += received[i] != (float)ranks;
    mine[1] = memory("Rss:");
    mine[2] = memory("Pss:");
    MPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("join");
        for (int i = 0; i < 3; i++) printf(" %.3f %.3f", sum[i] / ranks, most[i]);
        printf("\n");
    }
    MPI_Finalize();
    return wrong != 0;
}
