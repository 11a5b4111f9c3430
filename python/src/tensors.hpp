// Tensors as the library can use them.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "group.hpp"

namespace ccl_torch {

/// The type of the library's that a tensor's elements are made of.
struct Kind {
  cclDataType_t type;
  /// How many of them an element is: 2 of a complex number, the bytes of what the library does not know.
  int64_t per_element;
  /// Whether the library can compute with them.
  bool is_number;

  static Kind of(const at::Tensor& tensor);
};

enum class Use { read, write, update };

/// Refuses what is no dense tensor in host memory, and one that is written at one place several times.
void check_tensor(const char* operation, const at::Tensor& tensor, Use use);

/// A tensor's elements in the order of its indices: where they lie if they lie so, else a copy.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const at::Tensor& tensor, Use use);

  void* data() const { return plain_.mutable_data_ptr(); }
  size_t count() const { return static_cast<size_t>(plain_.numel() * kind_.per_element); }
  size_t bytes() const { return plain_.nbytes(); }
  cclDataType_t type() const { return kind_.type; }
  size_t element() const { return plain_.itemsize() / kind_.per_element; }
  bool overlaps(const Buffer& other) const;
  /// Whether `part` is the place of `rank` among equal ones, where the library works in place.
  bool in_place(const Buffer& part, int rank, int ranks) const;
  /// Whether `part` lies in this otherwise.
  bool collides(const Buffer& part, int rank, int ranks) const;
  /// Has the library read a copy, where it would be written meanwhile.
  void copy() { plain_ = plain_.clone(at::MemoryFormat::Contiguous); }

  /// Copies what was received to where it belongs.
  void store() const;

 private:
  at::Tensor tensor_;
  at::Tensor plain_;
  Kind kind_{};
};

/// Whether some lie over others.
bool lie_over_each_other(const std::vector<const Buffer*>& buffers);
/// Of operations that go side by side: has all work on copies if some lie over others.
void keep_apart(std::vector<Buffer>& buffers);
/// The same, where each has a whole and the part of `rank`, which may be in place.
void keep_apart(std::vector<Buffer>& wholes, std::vector<Buffer>& parts, int rank, int ranks);

/// Tensors, one for each rank, as the library's V forms take them: as places relative to the first in memory.
class Blocks {
 public:
  Blocks(const std::vector<at::Tensor>& tensors, Use use);
  /// Parts of one tensor: elements of the library's, as `kind` counts them.
  Blocks(const at::Tensor& tensor, Use use, std::vector<size_t> counts);

  void* base() const { return base_; }
  const size_t* counts() const { return counts_.data(); }
  const size_t* displs() const { return displs_.data(); }
  cclDataType_t type() const { return type_; }
  bool overlaps(const Blocks& other) const;
  /// Whether `part` lies in these otherwise than as the block of `rank`, where the library works in place.
  bool collides(const Buffer& part, int rank) const;
  /// Has the library read copies, where it would be written meanwhile.
  void copy();
  void store() const;

  /// `keep_apart` of lists and parts.
  friend void keep_apart(std::vector<Blocks>& lists, std::vector<Buffer>& parts, int rank);

 private:
  void place();

  std::vector<Buffer> buffers_;
  void* base_ = nullptr;
  std::vector<size_t> counts_;
  std::vector<size_t> displs_;
  cclDataType_t type_ = cclUint8;
};

/// A reduction of PyTorch's for one type of elements.
class Reduction {
 public:
  /// Refuses what there is not, with what to do instead.
  Reduction(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor);

  /// Makes a pre-multiplied sum, if it is one, for as long as it lives.
  class Made {
   public:
    Made(const Reduction& reduction, Group& group);
    ~Made();
    Made(const Made&) = delete;
    operator cclRedOp_t() const { return op_; }

   private:
    Group* group_ = nullptr;
    cclRedOp_t op_;
  };

 private:
  cclRedOp_t op_ = cclSum;
  at::Tensor factor_;
};

}  // namespace ccl_torch
