// A mixture of experts: each rank is an expert and has tokens, each for one of the experts. Counts are exchanged by
// all-to-all, then tokens by all-to-all-v: there, through the expert, and back.
#include "ranks.hpp"
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

constexpr std::size_t WIDTH = 16, TOKENS = 100;
using Token = std::array<float, WIDTH>;

// What expert `rank` makes of an element.
static float processed(float element, std::size_t rank) {
    return element * static_cast<float>(rank + 2);
}

// Blocks that lie one after the other: how many elements each has and where it begins.
struct Blocks {
    std::vector<std::size_t> counts, displs;

    explicit Blocks(std::size_t ranks) : counts(ranks), displs(ranks) {}

    void place() { std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), std::size_t{0}); }
    std::size_t tokens() const { return (displs.back() + counts.back()) / WIDTH; }
};

static void all_to_all_v(const Communicator &comm, const std::vector<Token> &send, const Blocks &to,
                         std::vector<Token> &recv, const Blocks &from) {
    expect(cclAlltoAllV(send.data(), to.counts.data(), to.displs.data(), recv.data(), from.counts.data(),
                        from.displs.data(), cclFloat, comm, nullptr));
}

static void dispatch(cclComm_t handle) {
    Communicator comm(handle);
    const auto rank = static_cast<std::size_t>(comm.rank()), ranks = static_cast<std::size_t>(comm.ranks());

    // Each rank has another number of tokens, and the router says which expert each is for.
    std::vector<Token> tokens(TOKENS + rank);
    auto seed = static_cast<unsigned>(rank * 2 * TOKENS * WIDTH);
    for (auto &token : tokens) {
        for (float &element : token) element = number(seed++);
    }
    const auto expert_of = [&](std::size_t token) { return (token * token + rank) % ranks; };

    // How many elements go to each rank, and how many come from it.
    Blocks ours(ranks), theirs(ranks);
    for (std::size_t t = 0; t < tokens.size(); t++) ours.counts[expert_of(t)] += WIDTH;
    expect(cclAlltoAll(ours.counts.data(), theirs.counts.data(), 1, cclUint64, comm, nullptr));
    ours.place();
    theirs.place();

    // Tokens are sent in the order of their experts: `places` is where each lies.
    std::vector<Token> sent(tokens.size()), received(theirs.tokens()), returned(tokens.size());
    std::vector<std::size_t> places, next = ours.displs;
    for (std::size_t t = 0; t < tokens.size(); t++) {
        places.push_back(next[expert_of(t)] / WIDTH);
        next[expert_of(t)] += WIDTH;
        sent[places[t]] = tokens[t];
    }

    all_to_all_v(comm, sent, ours, received, theirs);
    for (auto &token : received) {
        for (float &element : token) element = processed(element, rank);
    }
    all_to_all_v(comm, received, theirs, returned, ours);

    for (std::size_t t = 0; t < tokens.size(); t++) {
        for (float &element : tokens[t]) element = processed(element, expert_of(t));
        ensure(returned[places[t]] == tokens[t], "a token came back wrong");
    }
    expect(cclBarrier(comm, nullptr)); // all ranks' tokens are right
    if (rank == 0) std::printf("%zu experts: all tokens came back; expert 0 had %zu\n", ranks, received.size());
}

int main() {
    return run_ranks(4, dispatch);
}
