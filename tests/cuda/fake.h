/* What tests use of the driver, as cuda.h has it, and what they tell the stand-in. */
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>

typedef struct Context *CUcontext;
typedef struct Stream *CUstream;
typedef unsigned long long CUdeviceptr;
typedef struct Graph *CUgraph, *CUgraphExec;
typedef struct Event *CUevent;
typedef struct Object *CUuserObject;
typedef struct {
    char reserved[64];
} CUipcMemHandle;
/* As far as it is used. */
typedef struct {
    int operation;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
    CUdeviceptr alias;
    uint64_t rest;
} CUstreamBatchMemOpParams;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907
};

/* From now on this function gives this code; 0: it works again. */
void fakeFail(const char *function, int code) __attribute__((weak));
/* From now on all functions give this code, and no stream goes on; 0: all works again. */
void fakeBreak(int code);
/* The stream does so many more pieces of work, and then none. NULL where the driver is a real one. */
void fakeStop(CUstream stream, unsigned long more) __attribute__((weak));
/* Bytes of pinned host memory (1), or of memory of devices that this process has allocated (2), that are not given back. */
size_t fakeBytes(int kind);
/* How often this thread has had a stream wait for a point in a capture. NULL where the driver is a real one. */
unsigned fakeJoins(void) __attribute__((weak));
/* Modules that are loaded, and pieces of device memory that are not given back. */
int fakeHeld(void);

int cuInit(unsigned flags);
int cuGetErrorName(int code, const char **name);
int cuGetErrorString(int code, const char **text);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetPCIBusId(char *text, int size, int device);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxPushCurrent_v2(CUcontext context);
int cuCtxPopCurrent_v2(CUcontext *context);
int cuCtxGetCurrent(CUcontext *context);
int cuCtxGetDevice(int *device);
int cuCtxGetId(CUcontext context, unsigned long long *id);
int cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr at);
int cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at);
int cuMemAlloc_v2(CUdeviceptr *at, size_t size);
int cuMemFree_v2(CUdeviceptr at);
int cuMemHostRegister_v2(void *at, size_t size, unsigned flags);
int cuMemHostUnregister(void *at);
int cuMemHostGetDevicePointer_v2(CUdeviceptr *there, void *at, unsigned flags);
int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream);
int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream);
int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size);
int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(const char **function, void *module, const char *name);
int cuLaunchKernel(const char *function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned block, unsigned block_y,
                   unsigned block_z, unsigned shared, CUstream stream, void **params, void **extra);
int cuCtxEnablePeerAccess(CUcontext context, unsigned flags);
int cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at);
int cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags);
int cuStreamCreate(CUstream *stream, unsigned flags);
int cuStreamDestroy_v2(CUstream stream);
int cuStreamSynchronize(CUstream stream);
int cuStreamQuery(CUstream stream);
int cuStreamGetCtx(CUstream stream, CUcontext *context);
int cuStreamBeginCapture_v2(CUstream stream, int mode);
int cuStreamEndCapture(CUstream stream, CUgraph *graph);
int cuStreamGetCaptureInfo_v2(CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const void **before, size_t *count);
int cuGraphInstantiateWithFlags(CUgraphExec *launched, CUgraph graph, unsigned long long flags);
int cuGraphLaunch(CUgraphExec launched, CUstream stream);
int cuGraphDestroy(CUgraph graph);
int cuGraphExecDestroy(CUgraphExec launched);
int cuUserObjectCreate(CUuserObject *object, void *what, void (*destroy)(void *), unsigned uses, unsigned flags);
int cuUserObjectRelease(CUuserObject object, unsigned count);
int cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags);
int cuEventCreate(CUevent *event, unsigned flags);
int cuEventDestroy_v2(CUevent event);
int cuEventRecord(CUevent event, CUstream stream);
int cuEventQuery(CUevent event);
int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
int cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *all, unsigned flags);
int cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags);
int cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags);

#endif
