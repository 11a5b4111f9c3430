/*
 * Training by data: every rank has the same weights and samples of its own. While a rank computes the gradients of one
 * bucket of weights, those of the buckets before it are averaged over the ranks.
 */
#include "ranks.h"

enum { FEATURES = 32, SAMPLES = 64, BUCKETS = 4, BUCKET = FEATURES / BUCKETS, STEPS = 60 };

static const float RATE = 0.3f;

static float inputs[SAMPLES][FEATURES], targets[SAMPLES], weights[FEATURES];

/* This rank's samples. What is to be learned: the weight of feature f is f. */
static void load(int rank) {
    for (int s = 0; s < SAMPLES; s++) {
        targets[s] = 0;
        for (int f = 0; f < FEATURES; f++) {
            inputs[s][f] = number((unsigned)((rank * SAMPLES + s) * FEATURES + f));
            targets[s] += inputs[s][f] * (float)f;
        }
    }
}

/* One step on all ranks; the loss before it, averaged over all samples. */
static float step(cclComm_t comm, cclStream_t stream) {
    float errors[SAMPLES], gradients[FEATURES], loss = 0;
    for (int s = 0; s < SAMPLES; s++) {
        errors[s] = -targets[s];
        for (int f = 0; f < FEATURES; f++) errors[s] += inputs[s][f] * weights[f];
        loss += errors[s] * errors[s] / SAMPLES;
    }
    must(cclAllReduce(&loss, &loss, 1, cclFloat, cclAvg, comm, stream));
    for (int b = 0; b < BUCKETS; b++) {
        float *bucket = gradients + b * BUCKET;
        for (int i = 0; i < BUCKET; i++) {
            bucket[i] = 0;
            for (int s = 0; s < SAMPLES; s++) bucket[i] += 2 * errors[s] * inputs[s][b * BUCKET + i] / SAMPLES;
        }
        /* It returns at once, and goes on while the next bucket is computed. */
        must(cclAllReduce(bucket, bucket, BUCKET, cclFloat, cclAvg, comm, stream));
    }
    must(cclStreamSynchronize(stream));
    for (int f = 0; f < FEATURES; f++) weights[f] -= RATE * gradients[f];
    return loss;
}

static void train(cclComm_t comm) {
    float first = 0, loss = 0, lowest[FEATURES], highest[FEATURES];
    int rank, ranks;
    cclStream_t stream;
    must(cclCommUserRank(comm, &rank));
    must(cclCommCount(comm, &ranks));
    must(cclStreamCreate(&stream));
    load(rank);

    /* All begin with the weights of rank 0. */
    for (int f = 0; f < FEATURES; f++) weights[f] = number((unsigned)(rank * FEATURES + f));
    must(cclBroadcast(weights, weights, FEATURES, cclFloat, 0, comm, NULL));
    for (int i = 0; i < STEPS; i++) {
        loss = step(comm, stream);
        if (i == 0) first = loss;
    }
    must(cclStreamDestroy(stream));

    must(cclAllReduce(weights, lowest, FEATURES, cclFloat, cclMin, comm, NULL));
    must(cclAllReduce(weights, highest, FEATURES, cclFloat, cclMax, comm, NULL));
    for (int f = 0; f < FEATURES; f++) check(lowest[f] == highest[f], "the ranks' weights differ");
    check(loss < first / 100, "the loss did not fall");
    if (rank == 0) printf("%d ranks, %d steps: the loss fell from %g to %g\n", ranks, STEPS, first, loss);
    must(cclCommDestroy(comm));
}

int main(void) {
    return run_ranks(4, train);
}
