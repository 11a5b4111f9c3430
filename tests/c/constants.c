/* The numbers and layouts that programs are built with: they never change. */
#include "ranks.h"

#define IS(constant, number) _Static_assert((constant) == (number), #constant " is " #number)

IS(CCL_SPLIT_NOCOLOR, -1);
IS(CCL_SHRINK_DEFAULT, 0);
IS(CCL_SHRINK_ABORT, 1);

IS(cclSuccess, 0);
IS(cclUnhandledCudaError, 1);
IS(cclSystemError, 2);
IS(cclInternalError, 3);
IS(cclInvalidArgument, 4);
IS(cclInvalidUsage, 5);
IS(cclRemoteError, 6);
IS(cclInProgress, 7);
IS(cclTimeout, 8);
IS(cclNumResults, 9);

IS(cclInt8, 0);
IS(cclChar, 0);
IS(cclUint8, 1);
IS(cclInt32, 2);
IS(cclInt, 2);
IS(cclUint32, 3);
IS(cclInt64, 4);
IS(cclUint64, 5);
IS(cclFloat16, 6);
IS(cclHalf, 6);
IS(cclFloat32, 7);
IS(cclFloat, 7);
IS(cclFloat64, 8);
IS(cclDouble, 8);
IS(cclBfloat16, 9);
IS(cclFloat8e4m3, 10);
IS(cclFloat8e5m2, 11);
IS(cclInt16, 12);
IS(cclUint16, 13);
IS(cclNumTypes, 14);

IS(cclSum, 0);
IS(cclProd, 1);
IS(cclMax, 2);
IS(cclMin, 3);
IS(cclAvg, 4);
IS(cclBitAnd, 5);
IS(cclBitOr, 6);
IS(cclBitXor, 7);
IS(cclNumOps, 8);

IS(cclScalarDevice, 0);
IS(cclScalarHostImmediate, 1);

IS(CCL_UNIQUE_ID_BYTES, 128);
IS(CCL_CONFIG_MAGIC, 0x0cc1c0f6);
IS(CCL_CONFIG_UNDEF_INT, INT_MIN);
IS(CCL_VERSION(1, 2, 3), 10203);

IS(sizeof(cclResult_t), sizeof(int));
IS(sizeof(cclDataType_t), sizeof(int));
IS(sizeof(cclRedOp_t), sizeof(int));
IS(sizeof(cclScalarResidence_t), sizeof(int));
IS(sizeof(cclComm_t), sizeof(void *));
IS(sizeof(cclStream_t), sizeof(void *));
IS(sizeof(cclUniqueId), 128);

IS(offsetof(cclConfig_t, size), 0);
IS(offsetof(cclConfig_t, magic), 8);
IS(offsetof(cclConfig_t, version), 12);
IS(offsetof(cclConfig_t, blocking), 16);
IS(offsetof(cclConfig_t, timeout), 20);
IS(offsetof(cclConfig_t, name), 24);
IS(offsetof(cclConfig_t, transport), 32);
IS(offsetof(cclConfig_t, algorithm), 40);
IS(offsetof(cclConfig_t, threads), 48);
IS(offsetof(cclConfig_t, reproducible), 52);
IS(offsetof(cclConfig_t, bufferBytes), 56);
IS(sizeof(cclConfig_t), 64); /* grows at the end only */

int main(void) {
    int version = 0;
    OK(cclGetVersion(&version));
    CHECK(version == CCL_VERSION_CODE);
    for (cclResult_t result = 0; result < cclNumResults; result++) {
        CHECK(strcmp(cclGetErrorString(result), cclGetErrorString(cclNumResults)) != 0);
    }
    return 0;
}
