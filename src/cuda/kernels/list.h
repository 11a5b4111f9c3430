// Which kernels there are. Where an operation does the same to the bits of several types there is one kernel for them.
#pragma once

// The last number of a kernel: bytes that a thread reduces at once, so few that all totals stay in registers.

#define FOR_UNSIGNED(X, op) X(op, uint8, 16) X(op, uint16, 16) X(op, uint32, 16) X(op, uint64, 16)

#define FOR_INTEGERS(X, op) FOR_UNSIGNED(X, op) X(op, int8, 16) X(op, int16, 16) X(op, int32, 16) X(op, int64, 16)

#define FOR_FLOATS(X, op)                                                                                           \
    X(op, float16, 16) X(op, bfloat16, 16) X(op, float32, 16) X(op, float64, 16) X(op, float8e4m3, 8)               \
    X(op, float8e5m2, 8)

#define FOR_TREES(X, op)                                                                                            \
    X(op, float16, 8) X(op, bfloat16, 8) X(op, float32, 16) X(op, float64, 16) X(op, float8e4m3, 4)                 \
    X(op, float8e5m2, 4)

#define ALL_KERNELS(REDUCE, BITWISE, TREE)                                                                          \
    FOR_INTEGERS(REDUCE, sum) FOR_FLOATS(REDUCE, sum) FOR_UNSIGNED(REDUCE, prod) FOR_FLOATS(REDUCE, prod)           \
    FOR_INTEGERS(REDUCE, max) FOR_FLOATS(REDUCE, max) FOR_INTEGERS(REDUCE, min) FOR_FLOATS(REDUCE, min)             \
    BITWISE(bitand) BITWISE(bitor) BITWISE(bitxor) FOR_TREES(TREE, sum) FOR_TREES(TREE, prod)
