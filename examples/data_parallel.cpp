// Training by data: every rank has the same weights and samples of its own. While a rank computes the gradients of one
// bucket of weights, those of the buckets before it are averaged over the ranks.
#include "ranks.hpp"
#include <cstddef>
#include <vector>

using Vector = std::vector<float>;

constexpr std::size_t FEATURES = 32, SAMPLES = 64, BUCKETS = 4, BUCKET = FEATURES / BUCKETS;
constexpr int STEPS = 60;
constexpr float RATE = 0.3f;

struct Sample {
    Vector input;
    float target;
};

// What is to be learned: the weight of feature f is f.
static std::vector<Sample> samples_of(int rank) {
    std::vector<Sample> samples(SAMPLES, {Vector(FEATURES), 0});
    unsigned seed = static_cast<unsigned>(rank * SAMPLES * FEATURES);
    for (auto &sample : samples) {
        for (std::size_t f = 0; f < FEATURES; f++) {
            sample.input[f] = number(seed++);
            sample.target += sample.input[f] * static_cast<float>(f);
        }
    }
    return samples;
}

// One step on all ranks; returns the loss before it, averaged over all samples.
static float step(const Communicator &comm, const Stream &stream, const std::vector<Sample> &samples, Vector &weights) {
    Vector errors, gradients(FEATURES);
    float loss = 0;
    for (const auto &sample : samples) {
        float error = -sample.target;
        for (std::size_t f = 0; f < FEATURES; f++) error += sample.input[f] * weights[f];
        loss += error * error / SAMPLES;
        errors.push_back(error);
    }
    expect(cclAllReduce(&loss, &loss, 1, cclFloat, cclAvg, comm, stream));
    for (std::size_t begin = 0; begin < FEATURES; begin += BUCKET) {
        for (std::size_t f = begin; f < begin + BUCKET; f++) {
            for (std::size_t s = 0; s < SAMPLES; s++) gradients[f] += 2 * errors[s] * samples[s].input[f] / SAMPLES;
        }
        // It returns at once, and goes on while the next bucket is computed.
        float *bucket = gradients.data() + begin;
        expect(cclAllReduce(bucket, bucket, BUCKET, cclFloat, cclAvg, comm, stream));
    }
    stream.synchronize();
    for (std::size_t f = 0; f < FEATURES; f++) weights[f] -= RATE * gradients[f];
    return loss;
}

static void train(cclComm_t handle) {
    Communicator comm(handle);
    Stream stream;
    const auto samples = samples_of(comm.rank());

    // All begin with the weights of rank 0.
    Vector weights(FEATURES, static_cast<float>(comm.rank()));
    expect(cclBroadcast(weights.data(), weights.data(), FEATURES, cclFloat, 0, comm, nullptr));
    const float first = step(comm, stream, samples, weights);
    float loss = first;
    for (int i = 1; i < STEPS; i++) loss = step(comm, stream, samples, weights);

    Vector lowest(FEATURES), highest(FEATURES);
    expect(cclAllReduce(weights.data(), lowest.data(), FEATURES, cclFloat, cclMin, comm, nullptr));
    expect(cclAllReduce(weights.data(), highest.data(), FEATURES, cclFloat, cclMax, comm, nullptr));
    ensure(lowest == highest, "the ranks' weights differ");
    ensure(loss < first / 100, "the loss did not fall");
    if (comm.rank() == 0) {
        std::printf("%d ranks, %d steps: the loss fell from %g to %g\n", comm.ranks(), STEPS, first, loss);
    }
}

int main() {
    return run_ranks(4, train);
}
