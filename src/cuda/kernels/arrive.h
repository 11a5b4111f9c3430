// The beginning of a call in which kernels find the buffers of all ranks.
#pragma once

#include "sides.h"

DEVICE void arrive(const ccl_arrive_args &args) {
    const u64 own = args.call.own;
    if (!is_last(AT(own, done))) {
        return;
    }
    store_number(AT(own, send), args.send);
    store_number(AT(own, recv), args.recv);
    store_number(AT(own, call), args.call.number);
    publish(AT(own, turn), FIELD(own, turn) + 1);
    tell(args.call.meeting);
}
