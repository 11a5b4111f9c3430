// The header in C++17: an all-reduce between 4 forked processes, with a configuration.
#include "ranks.h"
#include <numeric>
#include <string>
#include <vector>

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm = nullptr;
    cclConfig_t config = CCL_CONFIG_INITIALIZER;
    config.timeout = 60000;
    config.name = "c++";
    config.algorithm = "ring";
    OK(cclCommInitRankConfig(&comm, ranks, id, rank, &config));

    std::vector<double> send(12345), recv(send.size());
    std::iota(send.begin(), send.end(), rank);
    OK(cclAllReduce(send.data(), recv.data(), send.size(), cclDouble, cclSum, comm, nullptr));
    for (std::size_t i = 0; i < recv.size(); i++) {
        CHECK(recv[i] == static_cast<double>(i) * ranks + ranks * (ranks - 1) / 2);
    }

    EXPECT(cclInvalidArgument, cclAllReduce(send.data(), recv.data(), send.size(), cclNumTypes, cclSum, comm, nullptr));
    CHECK(std::string(cclGetLastError(comm)).find("data type 14") != std::string::npos);
    OK(cclCommDestroy(comm));
}

int main() {
    static_assert(sizeof(cclUniqueId) == CCL_UNIQUE_ID_BYTES, "an id is its bytes");
    int version = 0;
    OK(cclGetVersion(&version));
    CHECK(version == CCL_VERSION_CODE);
    return run_ranks(4, work) != 0;
}
