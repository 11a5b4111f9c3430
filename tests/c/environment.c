/* Ranks that find each other by environment variables, as a launcher sets them. */
#include "ranks.h"

enum { RANKS = 3 };

static void set(const char *name, long number) {
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    CHECK(setenv(name, text, 1) == 0);
}

static void sum(cclComm_t comm, int rank) {
    int one = rank + 1, all = 0, count = 0, number = -1;
    OK(cclCommCount(comm, &count));
    OK(cclCommUserRank(comm, &number));
    CHECK(count == RANKS && number == rank);
    OK(cclAllReduce(&one, &all, 1, cclInt, cclSum, comm, NULL));
    CHECK(all == 1 + 2 + 3);
}

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t first, second, none = (cclComm_t)&first;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    (void)id;

    /* Calls that fail count, each once on every rank, for whatever reason. */
    REFUSED(cclInvalidUsage, "mpirun, torchrun or srun", cclCommInitEnv(&none, NULL));
    CHECK(none == NULL);
    set("WORLD_SIZE", ranks);
    set("MASTER_PORT", getppid());
    REFUSED(cclInvalidUsage, "RANK is not", cclCommInitEnv(&none, NULL));
    set("RANK", rank);
    if (rank == 1) {
        REFUSED(cclInvalidArgument, "comm is NULL", cclCommInitEnv(NULL, NULL));
    } else if (rank == 2) {
        config.size = 3;
        REFUSED(cclInvalidArgument, "CCL_CONFIG_INITIALIZER", cclCommInitEnv(&none, &config));
    } else {
        config.timeout = -1;
        REFUSED(cclInvalidArgument, "-1 milliseconds", cclCommInitEnv(&none, &config));
    }

    OK(cclCommInitEnv(&first, NULL));
    config = (cclConfig_t)CCL_CONFIG_INITIALIZER;
    config.timeout = 60000;
    OK(cclCommInitEnv(&second, &config));
    sum(second, rank);
    sum(first, rank);
    OK(cclCommDestroy(first));
    sum(second, rank);
    OK(cclCommDestroy(second));

    set("RANK", RANKS);
    REFUSED(cclInvalidUsage, "RANK=3 does not fit WORLD_SIZE=3", cclCommInitEnv(&none, NULL));
}

/* A rank of two that are on two hosts: the other one does not come, but the secret is read, once. */
static void secret(cclUniqueId id, int ranks, int rank) {
    cclComm_t none;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    (void)id, (void)ranks, (void)rank;
    config.timeout = 200;
    set("RANK", 1);
    set("WORLD_SIZE", 2);
    set("LOCAL_WORLD_SIZE", 1);
    set("MASTER_PORT", 29500);
    CHECK(setenv("MASTER_ADDR", "127.0.0.1", 1) == 0);
    REFUSED(cclInvalidUsage, "export CCL_SECRET_FILE=", cclCommInitEnv(&none, &config));

    CHECK(setenv("CCL_SECRET", "too short", 1) == 0);
    REFUSED(cclInvalidUsage, "CCL_SECRET has 9 characters", cclCommInitEnv(&none, &config));
    CHECK(getenv("CCL_SECRET") == NULL);

    CHECK(setenv("CCL_SECRET", "nobody knows this one", 1) == 0);
    for (int again = 0; again < 2; again++) {
        CHECK(cclCommInitEnv(&none, &config) != cclSuccess);
        CHECK(strstr(cclGetLastError(NULL), "CCL_SECRET") == NULL);
        CHECK(getenv("CCL_SECRET") == NULL);
        CHECK(getenv("MASTER_ADDR") != NULL && getenv("RANK") != NULL);
    }
}

int main(void) {
    static const char *const variables[] = {
        "RANK",          "WORLD_SIZE",    "LOCAL_RANK",          "LOCAL_WORLD_SIZE", "MASTER_ADDR", "CCL_MASTER_ADDR",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_STEP_ID",
        "CCL_SECRET_FILE", "CCL_SECRET", "CCL_INSECURE", "CCL_MASTER_PORT",
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    return run_ranks(RANKS, work) != 0 || run_ranks(1, secret) != 0;
}
