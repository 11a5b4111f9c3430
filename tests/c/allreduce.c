/* All-reduce between 4 forked processes: every type and operation, many lengths, in place and out of place. */
#include "ranks.h"

enum { LARGEST = 100003, GUARD = 16 };

static const size_t COUNTS[] = {0, 1, 2, 3, 4, 5, 17, 1000, 65536, LARGEST};

/* Element i of a rank's input: small, so that no sum or product of 4 leaves an int16 or is rounded by a float. */
static int input(int rank, size_t i) { return (int)(i % 7) + rank + 1; }

/* What the ranks' inputs make, in wide integers. */
static long long wanted(cclRedOp_t op, int ranks, size_t i) {
    long long result = input(0, i);
    for (int rank = 1; rank < ranks; rank++) {
        long long x = input(rank, i);
        switch (op) {
        case cclSum:
        case cclAvg: result += x; break;
        case cclProd: result *= x; break;
        case cclMax: result = x > result ? x : result; break;
        case cclMin: result = x < result ? x : result; break;
        case cclBitAnd: result &= x; break;
        case cclBitOr: result |= x; break;
        case cclBitXor: result ^= x; break;
        default: CHECK(!"an operation that the test does not know");
        }
    }
    return result;
}

/* One call at `shift` bytes past an aligned address, with guards around the result. */
#define TEST_OF(name, type, dtype)                                                                                     \
    static void one_##name(cclComm_t comm, int ranks, int rank, cclRedOp_t op, size_t count, int in_place,             \
                           size_t shift) {                                                                             \
        size_t bytes = count * sizeof(type), room = bytes + shift + GUARD;                                             \
        char *send = (char *)malloc(room), *recv = (char *)malloc(room);                                               \
        CHECK(send != NULL && recv != NULL);                                                                           \
        memset(recv, 0x5a, room);                                                                                      \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type x = (type)input(rank, i);                                                                             \
            memcpy((in_place ? recv : send) + shift + i * sizeof x, &x, sizeof x);                                     \
        }                                                                                                              \
        OK(cclAllReduce((in_place ? recv : send) + shift, recv + shift, count, dtype, op, comm, NULL));                \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type is, should = (type)wanted(op, ranks, i);                                                              \
            if (op == cclAvg) {                                                                                        \
                should = (type)(should / (type)ranks);                                                                 \
            }                                                                                                          \
            memcpy(&is, recv + shift + i * sizeof is, sizeof is);                                                      \
            CHECK(is == should);                                                                                       \
            if (!in_place) {                                                                                           \
                memcpy(&is, send + shift + i * sizeof is, sizeof is);                                                  \
                CHECK(is == (type)input(rank, i));                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        for (size_t i = 0; i < GUARD; i++) {                                                                           \
            CHECK(recv[shift + bytes + i] == 0x5a && (i >= shift || recv[i] == 0x5a));                                 \
        }                                                                                                              \
        free(send);                                                                                                    \
        free(recv);                                                                                                    \
    }                                                                                                                  \
    static void test_##name(cclComm_t comm, int ranks, int rank, int ops) {                                            \
        for (cclRedOp_t op = 0; op < ops; op++) {                                                                      \
            one_##name(comm, ranks, rank, op, 1001, 0, 0);                                                             \
            one_##name(comm, ranks, rank, op, 1001, 1, 0);                                                             \
        }                                                                                                              \
        for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {                                                  \
            one_##name(comm, ranks, rank, cclSum, COUNTS[i], 0, 0);                                                    \
            one_##name(comm, ranks, rank, cclSum, COUNTS[i], 1, 0);                                                    \
        }                                                                                                              \
        one_##name(comm, ranks, rank, cclSum, 1001, 0, 1);                                                             \
        one_##name(comm, ranks, rank, cclSum, 1001, 1, 3);                                                             \
    }

TEST_OF(int8, int8_t, cclInt8)
TEST_OF(uint8, uint8_t, cclUint8)
TEST_OF(int16, int16_t, cclInt16)
TEST_OF(uint16, uint16_t, cclUint16)
TEST_OF(int32, int32_t, cclInt32)
TEST_OF(uint32, uint32_t, cclUint32)
TEST_OF(int64, int64_t, cclInt64)
TEST_OF(uint64, uint64_t, cclUint64)
TEST_OF(float32, float, cclFloat)
TEST_OF(float64, double, cclDouble)

/* Types that C lacks: the sum of 4 ones, by its bits. */
static void test_small_float(cclComm_t comm, cclDataType_t dtype, size_t size, unsigned one, unsigned four) {
    unsigned char data[2 * 100];
    for (size_t i = 0; i < 100; i++) {
        memcpy(data + i * size, &one, size); /* little-endian, as all that ccl runs on */
    }
    OK(cclAllReduce(data, data, 100, dtype, cclSum, comm, NULL));
    for (size_t i = 0; i < 100; i++) {
        CHECK(memcmp(data + i * size, &four, size) == 0);
    }
}

static void work(cclUniqueId id, int ranks, int rank) {
    cclComm_t comm;
    int value;
    OK(cclCommInitRank(&comm, ranks, id, rank));
    OK(cclCommCount(comm, &value));
    CHECK(value == ranks);
    OK(cclCommUserRank(comm, &value));
    CHECK(value == rank);

    /* The averages of int8 and uint8 fit too: the sum of 4 inputs is at most 34. Their products do not. */
    test_int8(comm, ranks, rank, cclProd);
    test_uint8(comm, ranks, rank, cclProd);
    test_int16(comm, ranks, rank, cclNumOps);
    test_uint16(comm, ranks, rank, cclNumOps);
    test_int32(comm, ranks, rank, cclNumOps);
    test_uint32(comm, ranks, rank, cclNumOps);
    test_int64(comm, ranks, rank, cclNumOps);
    test_uint64(comm, ranks, rank, cclNumOps);
    test_float32(comm, ranks, rank, cclBitAnd);
    test_float64(comm, ranks, rank, cclBitAnd);
    test_small_float(comm, cclHalf, 2, 0x3c00, 0x4400);
    test_small_float(comm, cclBfloat16, 2, 0x3f80, 0x4080);
    test_small_float(comm, cclFloat8e4m3, 1, 0x38, 0x48);
    test_small_float(comm, cclFloat8e5m2, 1, 0x3c, 0x44);

    OK(cclAllReduce(NULL, NULL, 0, cclFloat, cclSum, comm, NULL));
    OK(cclCommFinalize(comm));
    OK(cclCommDestroy(comm));
}

int main(void) { return run_ranks(4, work) != 0; }
