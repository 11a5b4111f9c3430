/* A driver that lacks a function: host memory is as good as without one, and a stream is refused with the reason. */
#include "device.h"

static void work(cclUniqueId id, int ranks, int me) {
    Rank k = join(id, ranks, me);
    int32_t host[10] = {me}, *device = filled(me, 10);
    REFUSED(cclInvalidUsage, "cuStreamWaitValue32_v2",
            cclAllReduce(device, device, 10, cclInt32, cclSum, k.comm, k.stream));
    REFUSED(cclInvalidUsage, "too old", cclAllReduce(device, device, 10, cclInt32, cclSum, k.comm, NULL));
    OK(cclAllReduce(host, host, 10, cclInt32, cclSum, k.comm, NULL));
    CHECK(host[0] == ranks * (ranks - 1) / 2);
    leave(&k);
}

int main(void) { return run_ranks(2, work); }
