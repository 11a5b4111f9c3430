#include "library.hpp"

#include <dlfcn.h>

namespace ccl_torch {

namespace {
Library opened;
}

const Library& ccl() { return opened; }

std::string open_library(const std::string& path) {
  // It is never closed: its threads run until the process ends.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return dlerror();
  Library found;
#define X(name)                                                                           \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(handle, "ccl" #name));        \
  if (found.name == nullptr) return path + " has no function ccl" #name ": it is too old";
  CCL_TORCH_FUNCTIONS(X)
#undef X
  int version = 0;
  found.GetVersion(&version);
  // Before 1.0 a minor version may change anything.
  int wanted = CCL_VERSION_CODE;
  if (version / 100 != wanted / 100 || version < wanted) {
    auto text = [](int v) {
      return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
    };
    return path + " is ccl " + text(version) + ", but ccl_torch was built for " + text(wanted);
  }
  opened = found;
  return "";
}

}  // namespace ccl_torch
