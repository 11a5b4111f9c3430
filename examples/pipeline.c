/*
 * A pipeline: each rank is a stage, one layer of the model. Activations of small batches go forward from stage to stage and
 * gradients backward; once the pipeline is full, a stage does one of each in turn ("1F1B").
 */
#include "ranks.h"

enum { WIDTH = 1000, BATCHES = 8 };

/* A layer multiplies element by element with its weights. */
static float weight(int stage, int i) {
    return 1 + number((unsigned)(stage * WIDTH + i)) / 10;
}

static float sample(int batch, int i) {
    return number((unsigned)(1000000 + batch * WIDTH + i));
}

static cclComm_t comm;
static int rank, ranks;
/* Activations before and after this layer, the loss's gradients after and before it, and those of its weights. */
static float inputs[BATCHES][WIDTH], outputs[WIDTH], after[WIDTH], before[WIDTH], gradients[WIDTH];

/* Sends and receives at once what is not NULL; nothing where there is no such stage. */
static void exchange(int stage, const float *sent, float *received) {
    if (stage < 0 || stage >= ranks) return;
    must(cclGroupStart());
    if (sent) must(cclSend(sent, WIDTH, cclFloat, stage, comm, NULL));
    if (received) must(cclRecv(received, WIDTH, cclFloat, stage, comm, NULL));
    must(cclGroupEnd());
}

static void forward(int batch) {
    for (int i = 0; i < WIDTH; i++) outputs[i] = inputs[batch][i] * weight(rank, i);
}

static void backward(int batch) {
    for (int i = 0; i < WIDTH; i++) {
        /* The loss is half the sum of the squares of what the last stage puts out. */
        float gradient = rank == ranks - 1 ? outputs[i] : after[i];
        gradients[i] += gradient * inputs[batch][i];
        before[i] = gradient * weight(rank, i);
    }
}

/* How far the gradients are off those of the whole model: the sum of the squares. */
static float squared_error(void) {
    float error = 0;
    for (int i = 0; i < WIDTH; i++) {
        float factor = 1, wanted = 0;
        for (int stage = 0; stage < ranks; stage++) factor *= weight(stage, i);
        for (int b = 0; b < BATCHES; b++) wanted += sample(b, i) * sample(b, i) * factor * factor / weight(rank, i);
        error += (gradients[i] - wanted) * (gradients[i] - wanted);
    }
    return error;
}

static void stage(cclComm_t joined) {
    comm = joined;
    must(cclCommUserRank(comm, &rank));
    must(cclCommCount(comm, &ranks));
    int next = rank + 1, previous = rank - 1;
    int ahead = ranks - next < BATCHES ? ranks - next : BATCHES; /* forward passes before the first backward one */
    for (int b = 0; b < BATCHES && rank == 0; b++) {
        for (int i = 0; i < WIDTH; i++) inputs[b][i] = sample(b, i);
    }

    for (int b = 0; b < ahead; b++) {
        exchange(previous, NULL, inputs[b]);
        forward(b);
        exchange(next, outputs, NULL);
    }
    if (ahead < BATCHES) exchange(previous, NULL, inputs[ahead]);
    for (int b = ahead; b < BATCHES; b++) {
        forward(b);
        exchange(next, outputs, after);
        backward(b - ahead);
        exchange(previous, before, b + 1 < BATCHES ? inputs[b + 1] : NULL);
    }
    for (int b = BATCHES - ahead; b < BATCHES; b++) {
        exchange(next, NULL, after);
        backward(b);
        exchange(previous, before, NULL);
    }

    float error = squared_error();
    must(cclAllReduce(&error, &error, 1, cclFloat, cclMax, comm, NULL));
    check(error < 1e-6f, "the gradients differ from those of the whole model");
    if (rank == 0) printf("%d stages, %d batches: squared error to the whole model's gradients %g\n", ranks, BATCHES, error);
    must(cclCommDestroy(comm));
}

int main(void) {
    return run_ranks(4, stage);
}
