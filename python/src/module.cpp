#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"

PYBIND11_MODULE(_C, m) {
  using namespace ccl_torch;
  namespace py = pybind11;
  m.doc() = "The C++ side of ccl_torch.";
  m.def("open_library", &open_library, "Opens libccl.so; returns why it cannot be used, or an empty text.");
  m.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store,
         int rank,
         int size,
         std::chrono::milliseconds timeout,
         const std::string& name,
         std::vector<int64_t> global_ranks) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<CclBackend>(store, rank, size, timeout, name, std::move(global_ranks));
      },
      "Meets the other ranks of a group and makes its backend.",
      py::call_guard<py::gil_scoped_release>());
  m.def("leave_all", &Group::leave_all, "Leaves all groups.", py::call_guard<py::gil_scoped_release>());
}
