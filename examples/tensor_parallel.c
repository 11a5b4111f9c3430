/*
 * Two layers split over the ranks, y = relu(x up) down: each rank has some columns of `up` and the same rows of `down`, so
 * that nothing is exchanged between the two products. Before and after them the rows of x and y are split.
 */
#include "ranks.h"

/* Rows of x, and columns of `up`, that each rank has; columns of x and of y. */
enum { ROWS = 4, COLUMNS = 8, INPUTS = 16, OUTPUTS = 16 };

static float *zeros(int rows, int columns) {
    float *matrix = (float *)calloc((size_t)(rows * columns), sizeof *matrix);
    check(matrix != NULL, "out of memory");
    return matrix;
}

/* A matrix with content; the same on all ranks. */
static float *filled(int rows, int columns, unsigned seed) {
    float *matrix = zeros(rows, columns);
    for (int i = 0; i < rows * columns; i++) matrix[i] = number(seed + (unsigned)i);
    return matrix;
}

/* c += a b, of rows × inner and inner × columns. */
static void multiply(float *c, const float *a, const float *b, int rows, int inner, int columns) {
    for (int i = 0; i < rows; i++) {
        for (int k = 0; k < inner; k++) {
            for (int j = 0; j < columns; j++) c[i * columns + j] += a[i * inner + k] * b[k * columns + j];
        }
    }
}

static void relu(float *matrix, int count) {
    for (int i = 0; i < count; i++) {
        if (matrix[i] < 0) matrix[i] = 0;
    }
}

static void layers(cclComm_t comm) {
    int rank, ranks;
    must(cclCommUserRank(comm, &rank));
    must(cclCommCount(comm, &ranks));
    int tokens = ROWS * ranks, hidden = COLUMNS * ranks;

    /* The whole model, and this rank's parts of it. */
    float *x = filled(tokens, INPUTS, 0), *up = filled(INPUTS, hidden, 10000), *down = filled(hidden, OUTPUTS, 20000);
    float *own_x = x + rank * ROWS * INPUTS, *own_down = down + rank * COLUMNS * OUTPUTS, own_up[INPUTS * COLUMNS];
    for (int i = 0; i < INPUTS * COLUMNS; i++) {
        own_up[i] = up[i / COLUMNS * hidden + rank * COLUMNS + i % COLUMNS];
    }

    /* All rows through this rank's part of the layers; what the ranks have then adds up to y, whose rows are split again. */
    float *all_x = zeros(tokens, INPUTS), *inner = zeros(tokens, COLUMNS), *part = zeros(tokens, OUTPUTS);
    float *own_y = zeros(ROWS, OUTPUTS), *all_y = zeros(tokens, OUTPUTS);
    must(cclAllGather(own_x, all_x, ROWS * INPUTS, cclFloat, comm, NULL));
    multiply(inner, all_x, own_up, tokens, INPUTS, COLUMNS);
    relu(inner, tokens * COLUMNS);
    multiply(part, inner, own_down, tokens, COLUMNS, OUTPUTS);
    must(cclReduceScatter(part, own_y, ROWS * OUTPUTS, cclFloat, cclSum, comm, NULL));
    /* Where every rank goes on with all rows, it is an all-reduce instead. */
    must(cclAllReduce(part, all_y, (size_t)(tokens * OUTPUTS), cclFloat, cclSum, comm, NULL));

    /* The same rows through the whole layers. */
    float *whole_inner = zeros(ROWS, hidden), *whole_y = zeros(ROWS, OUTPUTS), error = 0;
    multiply(whole_inner, own_x, up, ROWS, INPUTS, hidden);
    relu(whole_inner, ROWS * hidden);
    multiply(whole_y, whole_inner, down, ROWS, hidden, OUTPUTS);
    for (int i = 0; i < ROWS * OUTPUTS; i++) {
        float split = own_y[i] - whole_y[i], reduced = all_y[rank * ROWS * OUTPUTS + i] - whole_y[i];
        error += split * split + reduced * reduced;
    }
    must(cclAllReduce(&error, &error, 1, cclFloat, cclMax, comm, NULL));
    check(error < 1e-8f * (float)ranks, "the product differs from the unsplit one");
    if (rank == 0) printf("%d ranks, %d hidden columns: squared error to the unsplit layers %g\n", ranks, hidden, error);

    float *matrices[] = {x, up, down, all_x, inner, part, own_y, all_y, whole_inner, whole_y};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) free(matrices[i]);
    must(cclCommDestroy(comm));
}

int main(void) {
    return run_ranks(4, layers);
}
