// A pipeline: each rank is a stage, one layer of the model. Activations of small batches go forward from stage to stage and
// gradients backward; once the pipeline is full, a stage does one of each in turn ("1F1B").
#include "ranks.hpp"
#include <algorithm>
#include <vector>

using Vector = std::vector<float>;

constexpr int WIDTH = 1000, BATCHES = 8;

// `WIDTH` numbers, the same on all ranks.
static Vector numbers(int seed) {
    Vector numbers;
    for (int i = 0; i < WIDTH; i++) numbers.push_back(number(static_cast<unsigned>(seed * WIDTH + i)));
    return numbers;
}

static Vector operator*(Vector one, const Vector &other) {
    for (int i = 0; i < WIDTH; i++) one[i] *= other[i];
    return one;
}

// A layer multiplies element by element with its weights.
static Vector weights_of(int stage) {
    Vector weights = numbers(stage);
    for (float &weight : weights) weight = 1 + weight / 10;
    return weights;
}

static Vector sample(int batch) {
    return numbers(1000 + batch);
}

// Sends and receives at once what is not NULL; nothing where there is no such stage.
static void exchange(const Communicator &comm, int stage, const Vector *sent, Vector *received) {
    if (stage < 0 || stage >= comm.ranks()) return;
    expect(cclGroupStart());
    if (sent) expect(cclSend(sent->data(), sent->size(), cclFloat, stage, comm, nullptr));
    if (received) expect(cclRecv(received->data(), received->size(), cclFloat, stage, comm, nullptr));
    expect(cclGroupEnd());
}

// The gradients of this stage's weights, of all batches.
static Vector train(const Communicator &comm, const Vector &weights) {
    const int next = comm.rank() + 1, previous = comm.rank() - 1;
    const bool is_first = comm.rank() == 0, is_last = next == comm.ranks();
    const int ahead = std::min(comm.ranks() - next, BATCHES); // forward passes before the first backward one
    // Activations before and after this layer, the loss's gradients after and before it, and those of its weights.
    std::vector<Vector> inputs;
    for (int b = 0; b < BATCHES; b++) inputs.push_back(is_first ? sample(b) : Vector(WIDTH));
    Vector outputs, after(WIDTH), before, gradients(WIDTH);

    const auto forward = [&](int batch) { outputs = inputs[batch] * weights; };
    const auto backward = [&](int batch) {
        // The loss is half the sum of the squares of what the last stage puts out.
        if (is_last) after = outputs;
        const Vector gradient = after * inputs[batch];
        for (int i = 0; i < WIDTH; i++) gradients[i] += gradient[i];
        before = after * weights;
    };
    for (int b = 0; b < ahead; b++) {
        exchange(comm, previous, nullptr, &inputs[b]);
        forward(b);
        exchange(comm, next, &outputs, nullptr);
    }
    if (ahead < BATCHES) exchange(comm, previous, nullptr, &inputs[ahead]);
    for (int b = ahead; b < BATCHES; b++) {
        forward(b);
        exchange(comm, next, &outputs, &after);
        backward(b - ahead);
        exchange(comm, previous, &before, b + 1 < BATCHES ? &inputs[b + 1] : nullptr);
    }
    for (int b = BATCHES - ahead; b < BATCHES; b++) {
        exchange(comm, next, nullptr, &after);
        backward(b);
        exchange(comm, previous, &before, nullptr);
    }
    return gradients;
}

static void stage(cclComm_t handle) {
    Communicator comm(handle);
    const Vector weights = weights_of(comm.rank()), gradients = train(comm, weights);

    // The whole model's: the factors of all stages but for this one's, once in the output and once in its gradient.
    Vector factors(WIDTH, 1), wanted(WIDTH);
    for (int stage = 0; stage < comm.ranks(); stage++) factors = factors * weights_of(stage);
    for (int b = 0; b < BATCHES; b++) {
        const Vector output = sample(b) * factors;
        for (int i = 0; i < WIDTH; i++) wanted[i] += output[i] * output[i] / weights[i];
    }
    float error = 0;
    for (int i = 0; i < WIDTH; i++) error += (gradients[i] - wanted[i]) * (gradients[i] - wanted[i]);
    expect(cclAllReduce(&error, &error, 1, cclFloat, cclMax, comm, nullptr));
    ensure(error < 1e-6f, "the gradients differ from those of the whole model");
    if (comm.rank() == 0) {
        std::printf("%d stages, %d batches: squared error to the whole model's gradients %g\n", comm.ranks(), BATCHES, error);
    }
}

int main() {
    return run_ranks(4, stage);
}
