// libccl.so, opened when the package is imported: the functions of ccl.h that the backend calls.
#pragma once

#include <string>

#include "ccl.h"

namespace ccl_torch {

#define CCL_TORCH_FUNCTIONS(X) \
  X(GetVersion)                \
  X(GetLastError)              \
  X(GetUniqueId)               \
  X(CommInitRankConfig)        \
  X(CommDestroy)               \
  X(CommAbort)                 \
  X(CommRevoke)                \
  X(CommSetTimeout)            \
  X(CommGetAsyncError)         \
  X(AllReduce)                 \
  X(Bcast)                     \
  X(Reduce)                    \
  X(AllGather)                 \
  X(ReduceScatter)             \
  X(Gather)                    \
  X(AlltoAllV)                 \
  X(AllGatherV)                \
  X(ReduceScatterV)            \
  X(GatherV)                   \
  X(ScatterV)                  \
  X(Barrier)                   \
  X(SendTag)                   \
  X(RecvTag)                   \
  X(RedOpCreatePreMulSum)      \
  X(RedOpDestroy)              \
  X(GroupStart)                \
  X(GroupEnd)                  \
  X(StreamCreate)              \
  X(StreamDestroy)             \
  X(StreamSynchronize)         \
  X(StreamQuery)               \
  X(StreamAddCallback)

/// A pointer for each, without the prefix: `ccl().AllReduce` is cclAllReduce.
struct Library {
#define X(name) decltype(&::ccl##name) name = nullptr;
  CCL_TORCH_FUNCTIONS(X)
#undef X
};

/// The library that `open_library` opened.
const Library& ccl();

/// Opens the library at `path`, or by its name where the loader looks. Returns why it cannot be used, or nothing.
std::string open_library(const std::string& path);

}  // namespace ccl_torch
