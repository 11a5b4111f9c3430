// The beginning of a call in which kernels find the buffers of all ranks.
#pragma once

#include "sides.h"

DEVICE void arrive(const ccl_arrive_args &args) {
    if (!is_last(AT(args.own, done))) {
        return;
    }
    store_number(AT(args.own, send), args.send);
    store_number(AT(args.own, recv), args.recv);
    store_number(AT(args.own, call), args.call);
    store_number(AT(args.own, turn), FIELD(args.own, turn) + 1);
    if (args.begun) {
        Memory<4>::store(args.begun, {{args.number}});
    }
    tell(args.meeting);
}
