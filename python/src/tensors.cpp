#include "tensors.hpp"

#include <algorithm>
#include <utility>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

namespace ccl_torch {

namespace {

bool lies_plainly(const at::Tensor& tensor, Kind kind) {
  if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) return false;
  auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return address % (tensor.itemsize() / kind.per_element) == 0;
}

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  auto a_begins = static_cast<const char*>(a), b_begins = static_cast<const char*>(b);
  return a_begins < b_begins + b_bytes && b_begins < a_begins + a_bytes;
}

}  // namespace

Kind Kind::of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kChar: return {cclInt8, 1, true};
    case at::kByte: return {cclUint8, 1, true};
    case at::kShort: return {cclInt16, 1, true};
    case at::kUInt16: return {cclUint16, 1, true};
    case at::kInt: return {cclInt32, 1, true};
    case at::kUInt32: return {cclUint32, 1, true};
    case at::kLong: return {cclInt64, 1, true};
    case at::kUInt64: return {cclUint64, 1, true};
    case at::kHalf: return {cclFloat16, 1, true};
    case at::kBFloat16: return {cclBfloat16, 1, true};
    case at::kFloat: return {cclFloat32, 1, true};
    case at::kDouble: return {cclFloat64, 1, true};
    case at::kFloat8_e4m3fn: return {cclFloat8e4m3, 1, true};
    case at::kFloat8_e5m2: return {cclFloat8e5m2, 1, true};
    case at::kBool: return {cclUint8, 1, true};
    case at::kComplexHalf: return {cclFloat16, 2, true};
    case at::kComplexFloat: return {cclFloat32, 2, true};
    case at::kComplexDouble: return {cclFloat64, 2, true};
    default: return {cclUint8, static_cast<int64_t>(tensor.itemsize()), false};
  }
}

void check_tensor(const char* operation, const at::Tensor& tensor, Use use) {
  TORCH_CHECK_VALUE(tensor.defined(), "ccl ", operation, ": a tensor is undefined");
  TORCH_CHECK_VALUE(
      tensor.device().is_cpu(),
      "ccl ", operation, ": a tensor is on ", tensor.device(), ", but this group is for host memory: use tensor.cpu()");
  TORCH_CHECK_VALUE(
      tensor.layout() == at::kStrided,
      "ccl ", operation, ": a tensor has the layout ", tensor.layout(),
      ": only all_reduce takes sparse ones; use tensor.to_dense()");
  if (use != Use::read) at::assert_no_internal_overlap(tensor);
}

Buffer::Buffer(const at::Tensor& tensor, Use use) : tensor_(tensor), kind_(Kind::of(tensor)) {
  if (lies_plainly(tensor, kind_)) {
    plain_ = tensor;
    return;
  }
  plain_ = at::empty_like(tensor, tensor.options(), at::MemoryFormat::Contiguous);
  if (use != Use::write) plain_.copy_(tensor);
}

bool Buffer::overlaps(const Buffer& other) const {
  return overlap(data(), bytes(), other.data(), other.bytes());
}

bool Buffer::in_place(const Buffer& part, int rank, int ranks) const {
  return part.data() == static_cast<char*>(data()) + bytes() / ranks * rank;
}

bool Buffer::collides(const Buffer& part, int rank, int ranks) const {
  return overlaps(part) && !in_place(part, rank, ranks);
}

void Buffer::store() const {
  if (!plain_.is_same(tensor_)) tensor_.copy_(plain_);
}

bool lie_over_each_other(const std::vector<const Buffer*>& buffers) {
  std::vector<std::pair<const char*, size_t>> places;
  for (const Buffer* buffer : buffers)
    if (buffer->bytes() > 0) places.emplace_back(static_cast<const char*>(buffer->data()), buffer->bytes());
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i)
    if (places[i].first < places[i - 1].first + places[i - 1].second) return true;
  return false;
}

namespace {

std::vector<const Buffer*> pointers(const std::vector<Buffer>& buffers) {
  std::vector<const Buffer*> all;
  for (const Buffer& buffer : buffers) all.push_back(&buffer);
  return all;
}

}  // namespace

void keep_apart(std::vector<Buffer>& buffers) {
  if (lie_over_each_other(pointers(buffers)))
    for (Buffer& buffer : buffers) buffer.copy();
}

void keep_apart(std::vector<Buffer>& wholes, std::vector<Buffer>& parts, int rank, int ranks) {
  auto all = pointers(wholes);
  for (size_t i = 0; i < parts.size(); ++i)
    if (!wholes[i].in_place(parts[i], rank, ranks)) all.push_back(&parts[i]);
  if (!lie_over_each_other(all)) return;
  for (auto* buffers : {&wholes, &parts})
    for (Buffer& buffer : *buffers) buffer.copy();
}

Blocks::Blocks(const std::vector<at::Tensor>& tensors, Use use) {
  if (tensors.empty()) return;
  for (const at::Tensor& tensor : tensors) {
    buffers_.emplace_back(tensor, use);
    counts_.push_back(buffers_.back().count());
  }
  // Who has no use for some of the outputs may pass the same one for them.
  if (use != Use::read) keep_apart(buffers_);
  type_ = buffers_[0].type();
  place();
}

Blocks::Blocks(const at::Tensor& tensor, Use use, std::vector<size_t> counts) : counts_(std::move(counts)) {
  buffers_.emplace_back(tensor, use);
  type_ = buffers_[0].type();
  place();
}

/// Finds where the blocks lie.
void Blocks::place() {
  displs_.clear();
  if (buffers_.size() != counts_.size()) {
    base_ = buffers_[0].data();
    size_t next = 0;
    for (size_t count : counts_) {
      displs_.push_back(next);
      next += count;
    }
    return;
  }
  char* base = nullptr;
  for (const Buffer& buffer : buffers_) {
    auto* at = static_cast<char*>(buffer.data());
    if (buffer.count() > 0 && (base == nullptr || at < base)) base = at;
  }
  base_ = base;
  for (const Buffer& buffer : buffers_) {
    auto distance = buffer.count() > 0 ? static_cast<char*>(buffer.data()) - base : 0;
    // All begin at a multiple of the element's size.
    displs_.push_back(static_cast<size_t>(distance) / buffer.element());
  }
}

void Blocks::copy() {
  for (Buffer& buffer : buffers_) buffer.copy();
  place();
}

bool Blocks::overlaps(const Blocks& other) const {
  for (const Buffer& mine : buffers_)
    for (const Buffer& theirs : other.buffers_)
      if (mine.overlaps(theirs)) return true;
  return false;
}

bool Blocks::collides(const Buffer& part, int rank) const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    size_t element = buffers_[0].element();
    const void* block = static_cast<char*>(base_) + displs_[i] * element;
    bool in_place = static_cast<int>(i) == rank && block == part.data();
    if (!in_place && overlap(block, counts_[i] * element, part.data(), part.bytes())) return true;
  }
  return false;
}

void keep_apart(std::vector<Blocks>& lists, std::vector<Buffer>& parts, int rank) {
  std::vector<const Buffer*> all;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Buffer& buffer : lists[i].buffers_) all.push_back(&buffer);
    if (lists[i].buffers_[rank].data() != parts[i].data()) all.push_back(&parts[i]);
  }
  if (!lie_over_each_other(all)) return;
  for (Blocks& list : lists) list.copy();
  for (Buffer& part : parts) part.copy();
}

void Blocks::store() const {
  for (const Buffer& buffer : buffers_) buffer.store();
}

Reduction::Reduction(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor) {
  using c10d::ReduceOp;
  auto type = tensor.scalar_type();
  TORCH_CHECK_VALUE(
      Kind::of(tensor).is_number, "ccl ", operation, ": there is no reduction of ", type,
      ": convert the tensor, as by .float()");
  bool is_bool = type == at::kBool, is_complex = at::isComplexType(type);
  bool is_integer = at::isIntegralType(type, true);
  switch (op.op_) {
    // Of truths the sum is whether any is true, and the product whether all are.
    case ReduceOp::SUM: op_ = is_bool ? cclMax : cclSum; break;
    case ReduceOp::PRODUCT: op_ = is_bool ? cclMin : cclProd; break;
    case ReduceOp::AVG:
      TORCH_CHECK_VALUE(!is_bool, "ccl ", operation, ": there is no average of bool: use SUM, MAX or MIN");
      op_ = cclAvg;
      break;
    case ReduceOp::MIN: op_ = cclMin; break;
    case ReduceOp::MAX: op_ = cclMax; break;
    case ReduceOp::BAND: op_ = cclBitAnd; break;
    case ReduceOp::BOR: op_ = cclBitOr; break;
    case ReduceOp::BXOR: op_ = cclBitXor; break;
    case ReduceOp::PREMUL_SUM: {
      TORCH_CHECK_VALUE(!is_bool, "ccl ", operation, ": there is no PREMUL_SUM of bool");
      auto* given = dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(given != nullptr, "ccl ", operation, ": PREMUL_SUM without a factor");
      auto factor = given->tensor_factor.defined() ? given->tensor_factor.cpu()
                                                   : at::full({1}, given->double_factor, at::dtype(at::kDouble));
      TORCH_CHECK_VALUE(
          !factor.is_complex(), "ccl ", operation, ": the factor of a PREMUL_SUM is complex: it must be a real number");
      factor_ = factor.to(is_complex ? c10::toRealValueType(type) : type).contiguous();
      TORCH_CHECK_VALUE(
          !is_integer || factor_.to(at::kDouble).equal(factor.to(at::kDouble)),
          "ccl ", operation, ": the factor of a PREMUL_SUM of ", type, " must be a whole number of that type");
      break;
    }
    default: TORCH_CHECK_VALUE(false, "ccl ", operation, ": unknown reduction ", static_cast<int>(op.op_));
  }
  TORCH_CHECK_VALUE(
      !is_complex || op_ == cclSum || op_ == cclAvg,
      "ccl ", operation,
      ": complex numbers have only SUM and AVG: reduce their parts, by torch.view_as_real, for others");
  bool bitwise = op_ == cclBitAnd || op_ == cclBitOr || op_ == cclBitXor;
  TORCH_CHECK_VALUE(
      !bitwise || is_integer, "ccl ", operation, ": BAND, BOR and BXOR are for integers and bool, not for ", type);
}

Reduction::Made::Made(const Reduction& reduction, Group& group) : op_(reduction.op_) {
  if (!reduction.factor_.defined()) return;
  auto kind = Kind::of(reduction.factor_);
  void* factor = reduction.factor_.mutable_data_ptr();
  group.check(
      "PREMUL_SUM", ccl().RedOpCreatePreMulSum(&op_, factor, kind.type, cclScalarHostImmediate, group.comm));
  group_ = &group;
}

Reduction::Made::~Made() {
  if (group_ != nullptr) ccl().RedOpDestroy(op_, group_->comm);
}

}  // namespace ccl_torch
