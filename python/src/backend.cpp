#include "backend.hpp"

#include <thread>

#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "tensors.hpp"

namespace ccl_torch {

using at::Tensor;
using c10d::OpType;
using Tensors = CclBackend::Tensors;
using Lists = CclBackend::Lists;
using WorkPtr = CclBackend::WorkPtr;

namespace {

/// Between the calls of several operations that go side by side.
class Together {
 public:
  explicit Together(Group& group, const char* operation) : group_(group), operation_(operation) {
    group_.check(operation_, ccl().GroupStart());
  }
  void add(cclResult_t result) {
    if (refused_ == nullptr && result != cclSuccess) refused_ = group_.failure(operation_, result);
  }
  /// Waits for all.
  void end() {
    open_ = false;
    cclResult_t result = ccl().GroupEnd();
    if (refused_ != nullptr) std::rethrow_exception(refused_);
    group_.check(operation_, result);
  }
  ~Together() {
    if (open_) ccl().GroupEnd();
  }

 private:
  Group& group_;
  const char* operation_;
  std::exception_ptr refused_;
  bool open_ = true;
};

const Tensor& single(const char* operation, const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "ccl ", operation, ": ", tensors.size(), " tensors: one for each process");
  return tensors[0];
}

const Tensors& list(const char* operation, const Lists& lists, int ranks) {
  TORCH_CHECK_VALUE(
      lists.size() == 1 && lists[0].size() == static_cast<size_t>(ranks),
      "ccl ", operation, ": the list must hold a tensor for each of ", ranks, " ranks");
  return lists[0];
}

void check_root(const char* operation, int64_t root, int ranks) {
  TORCH_CHECK_VALUE(0 <= root && root < ranks, "ccl ", operation, ": the root is rank ", root, " of ", ranks);
}

void check_types(const char* operation, const Tensors& tensors, const Tensor& like, Use use) {
  for (const Tensor& tensor : tensors) {
    check_tensor(operation, tensor, use);
    TORCH_CHECK_TYPE(
        tensor.scalar_type() == like.scalar_type(),
        "ccl ", operation, ": tensors of ", tensor.scalar_type(), " and ", like.scalar_type(), " in one call");
  }
}

/// `whole` holds a part like `part` for each rank.
void check_parts(const char* operation, const Tensor& whole, const Tensor& part, int ranks) {
  TORCH_CHECK_TYPE(
      whole.scalar_type() == part.scalar_type(),
      "ccl ", operation, ": tensors of ", whole.scalar_type(), " and ", part.scalar_type(), " in one call");
  TORCH_CHECK_VALUE(
      whole.numel() == part.numel() * ranks,
      "ccl ", operation, ": ", whole.numel(), " elements on the side of all ranks: with ", part.numel(),
      " for each of ", ranks, " they must be ", part.numel() * ranks);
}

/// The elements of the library's that go to each rank, or come from it, in rows of the first dimension.
std::vector<size_t> split_counts(const Tensor& tensor, std::vector<int64_t>& splits, int ranks) {
  c10d::checkSplitSizes(splits, tensor, ranks);
  int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  int64_t row = rows == 0 ? 0 : tensor.numel() / rows * Kind::of(tensor).per_element;
  std::vector<size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t own = splits.empty() ? rows / ranks : splits[rank];
    counts.push_back(static_cast<size_t>(own * row));
  }
  return counts;
}

/// A store to wait by, which holds up nobody else who uses that one. A program's own in Python may have no clone.
c10::intrusive_ptr<c10d::Store> own(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    return store->clone();
  } catch (const std::runtime_error&) {
    // What pybind11 throws for a method that is not there.
    return store;
  }
}

}  // namespace

CclBackend::CclBackend(
    c10::intrusive_ptr<c10d::Store> store,
    int rank,
    int size,
    Milliseconds timeout,
    const std::string& name,
    std::vector<int64_t> global_ranks)
    : Backend(rank, size), store_(std::move(store)), options_(c10::make_intrusive<Options>("ccl", timeout)) {
  options_->group_name = name;
  options_->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
  group_ = Group::meet(*store_, rank, size, timeout, name, std::move(global_ranks));
  init();
}

// What is under way keeps the group, which leaves after it.
CclBackend::~CclBackend() = default;

void CclBackend::setTimeout(Milliseconds timeout) {
  options_->timeout = timeout;
  group_->timeout_ms = timeout.count();
}

void CclBackend::shutdown() { group_->shut_down(); }

void CclBackend::abort() { group_->abort(); }

c10::intrusive_ptr<c10d::Backend> CclBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& opts) {
  group_->check_process();
  auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  std::vector<int64_t> global;
  for (int rank : ranks) {
    const auto& known = options_->global_ranks_in_group;
    global.push_back(known.empty() ? rank : static_cast<int64_t>(known.at(rank)));
  }
  return c10::make_intrusive<CclBackend>(
      own(store),
      static_cast<int>(mine - ranks.begin()),
      static_cast<int>(ranks.size()),
      opts ? opts->timeout : options_->timeout,
      opts ? opts->group_name : options_->group_name,
      std::move(global));
}

c10::intrusive_ptr<c10d::Backend> CclBackend::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<Options>& opts,
    const int& rank,
    const int& size) {
  group_->check_process();
  // Which ranks of all they are nobody knows: the groups may come from worlds of their own.
  return c10::make_intrusive<CclBackend>(
      own(store), rank, size, opts ? opts->timeout : options_->timeout,
      opts ? opts->group_name : options_->group_name, std::vector<int64_t>());
}

/// Begins a collective; one that is not asynchronous is over when this returns.
WorkPtr CclBackend::begin(What what, Tensors inputs, Tensors outputs, std::function<void()> body) {
  Milliseconds timeout = what.timeout.count() < 0 ? Milliseconds(group_->timeout_ms) : what.timeout;
  auto in_time = [group = group_, timeout, body = std::move(body)] {
    group->set_deadline(timeout);
    body();
  };
  auto operation = c10::make_intrusive<Operation>(
      group_, what.type, what.title, std::move(inputs), std::move(outputs), ++number_, timeout, std::move(in_time));
  what.is_async ? group_->submit(operation) : group_->run(operation);
  return operation;
}

WorkPtr CclBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  auto tensor = single("broadcast", tensors);
  int root = static_cast<int>(opts.rootRank);
  check_root("broadcast", opts.rootRank, size_);
  auto use = rank_ == root ? Use::read : Use::write;
  check_tensor("broadcast", tensor, use);
  return begin(what("ccl:broadcast", OpType::BROADCAST, opts), tensors, tensors, [group = group_, tensor, root, use] {
    Buffer data(tensor, use);
    group->check("broadcast", ccl().Bcast(data.data(), data.count(), data.type(), root, group->comm, nullptr));
    if (use == Use::write) data.store();
  });
}

WorkPtr CclBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  auto tensor = single("all_reduce", tensors);
  if (tensor.is_sparse()) return sparse(tensor, opts);
  check_tensor("all_reduce", tensor, Use::update);
  Reduction reduction("all_reduce", opts.reduceOp, tensor);
  auto body = [group = group_, tensor, reduction] {
    Buffer data(tensor, Use::update);
    Reduction::Made op(reduction, *group);
    auto result =
        ccl().AllReduce(data.data(), data.data(), data.count(), data.type(), op, group->comm, nullptr);
    group->check("all_reduce", result);
    data.store();
  };
  return begin(what("ccl:all_reduce", OpType::ALLREDUCE, opts), tensors, tensors, body);
}

WorkPtr CclBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return allreduce(tensors, opts);
}

namespace {

/// As many dimensions as PyTorch computes with.
constexpr int64_t most_dims = 64;

/// What each rank tells of its sparse tensor before any entry goes.
struct SparseHeader {
  int64_t entries = 0;
  int64_t type = 0;
  int64_t sparse_dim = 0;
  int64_t dim = 0;
  int64_t sizes[most_dims] = {};

  explicit SparseHeader(const Tensor& tensor)
      : entries(tensor._nnz()),
        type(static_cast<int64_t>(tensor.scalar_type())),
        sparse_dim(tensor.sparse_dim()),
        dim(tensor.dim()) {
    std::copy(tensor.sizes().begin(), tensor.sizes().end(), sizes);
  }

  bool fits(const SparseHeader& other) const {
    return type == other.type && sparse_dim == other.sparse_dim && dim == other.dim &&
        std::equal(sizes, sizes + dim, other.sizes);
  }

  std::string text() const {
    return c10::str(
        static_cast<at::ScalarType>(type), " ", at::IntArrayRef(sizes, dim), " with ", sparse_dim, " sparse dimensions");
  }
};

/// The headers of all ranks, which fit each other: else all ranks refuse, in the same words.
std::vector<SparseHeader> sparse_headers(Group& group, const Tensor& mine) {
  SparseHeader own(mine);
  std::vector<SparseHeader> all(group.size, own);
  group.check(
      "all_reduce",
      ccl().AllGather(&own, all.data(), sizeof own / sizeof(int64_t), cclInt64, group.comm, nullptr));
  for (int rank = 1; rank < group.size; ++rank)
    TORCH_CHECK_VALUE(
        all[rank].fits(all[0]),
        "ccl all_reduce: the sparse tensors differ: rank 0's is ", all[0].text(), ", rank ", rank, "'s ",
        all[rank].text());
  return all;
}

/// The rows of all ranks, each rank's `own` of the same shape but for the first dimension.
Tensor gather_rows(Group& group, const Tensor& own, const std::vector<SparseHeader>& headers) {
  auto sizes = own.sizes().vec();
  int64_t row = Kind::of(own).per_element;
  for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
  sizes[0] = 0;
  std::vector<size_t> lengths;
  for (const SparseHeader& header : headers) {
    sizes[0] += header.entries;
    lengths.push_back(static_cast<size_t>(header.entries * row));
  }
  auto whole = at::empty(sizes, own.options());
  Buffer part(own, Use::read);
  Blocks blocks(whole, Use::write, lengths);
  group.check(
      "all_reduce",
      ccl().AllGatherV(
          part.data(), part.count(), blocks.base(), blocks.counts(), blocks.displs(), blocks.type(), group.comm,
          nullptr));
  return whole;
}

/// What the library's averages are divided by, and how: integers toward zero, whose type may not hold the number of ranks.
void divide(Tensor sums, int ranks) {
  if (at::isIntegralType(sums.scalar_type(), false)) {
    sums.copy_(sums.to(at::kLong).div_(ranks, "trunc"));
  } else {
    sums.div_(ranks);
  }
}

}  // namespace

/// Gathers the indices and values of all, and adds up what has the same place.
WorkPtr CclBackend::sparse(Tensor tensor, const c10d::AllreduceOptions& opts) {
  auto op = opts.reduceOp.op_;
  TORCH_CHECK_VALUE(
      op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "ccl all_reduce: sparse tensors have only SUM and AVG");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), "ccl all_reduce: a tensor is on ", tensor.device());
  TORCH_CHECK_VALUE(
      tensor.dim() <= most_dims, "ccl all_reduce: a sparse tensor has ", tensor.dim(), " dimensions: ", most_dims,
      " are the most");
  bool average = op == c10d::ReduceOp::AVG;
  TORCH_CHECK_VALUE(
      !average || tensor.scalar_type() != at::kBool, "ccl all_reduce: there is no average of bool: use SUM");
  auto body = [group = group_, tensor, average]() mutable {
    auto mine = tensor.coalesce();
    auto headers = sparse_headers(*group, mine);
    auto indices = gather_rows(*group, mine._indices().t().contiguous(), headers).t();
    auto values = gather_rows(*group, mine._values().contiguous(), headers);
    // A tensor made without checks may name places outside of it, at which the sum would write.
    at::_validate_sparse_coo_tensor_args(indices, values, tensor.sizes());
    auto sum =
        at::sparse_coo_tensor(indices, values, tensor.sizes(), values.options().layout(at::kSparse)).coalesce();
    if (average) divide(sum._values(), group->size);
    tensor.copy_(sum);
  };
  return begin(what("ccl:all_reduce", OpType::_ALLREDUCE_SPARSE, opts), {tensor}, {tensor}, body);
}

WorkPtr CclBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  TORCH_CHECK_VALUE(!tensors.empty(), "ccl all_reduce_coalesced: no tensors");
  std::vector<Reduction> reductions;
  for (const Tensor& tensor : tensors) {
    check_tensor("all_reduce_coalesced", tensor, Use::update);
    reductions.emplace_back("all_reduce_coalesced", opts.reduceOp, tensor);
  }
  auto body = [group = group_, tensors, reductions] {
    std::vector<Buffer> buffers;
    std::deque<Reduction::Made> ops;
    for (const Tensor& tensor : tensors) buffers.emplace_back(tensor, Use::update);
    keep_apart(buffers);
    for (const Reduction& reduction : reductions) ops.emplace_back(reduction, *group);
    Together together(*group, "all_reduce_coalesced");
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Buffer& data = buffers[i];
      together.add(
          ccl().AllReduce(data.data(), data.data(), data.count(), data.type(), ops[i], group->comm, nullptr));
    }
    together.end();
    for (const Buffer& data : buffers) data.store();
  };
  return begin(what("ccl:all_reduce", OpType::ALLREDUCE_COALESCED, opts), tensors, tensors, body);
}

WorkPtr CclBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  auto tensor = single("reduce", tensors);
  int root = static_cast<int>(opts.rootRank);
  check_root("reduce", opts.rootRank, size_);
  auto use = rank_ == root ? Use::update : Use::read;
  check_tensor("reduce", tensor, use);
  Reduction reduction("reduce", opts.reduceOp, tensor);
  auto body = [group = group_, tensor, reduction, root, use] {
    Buffer data(tensor, use);
    Reduction::Made op(reduction, *group);
    void* into = use == Use::update ? data.data() : nullptr;
    group->check(
        "reduce", ccl().Reduce(data.data(), into, data.count(), data.type(), op, root, group->comm, nullptr));
    if (use == Use::update) data.store();
  };
  return begin(what("ccl:reduce", OpType::REDUCE, opts), tensors, tensors, body);
}

WorkPtr CclBackend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  auto input = single("all_gather", inputs);
  auto list_out = list("all_gather", outputs, size_);
  check_tensor("all_gather", input, Use::read);
  check_types("all_gather", list_out, input, Use::write);
  TORCH_CHECK_VALUE(
      list_out[rank_].numel() == input.numel(),
      "ccl all_gather: the input has ", input.numel(), " elements and its place in the list ", list_out[rank_].numel());
  auto body = [group = group_, input, list_out] {
    Buffer data(input, Use::read);
    Blocks blocks(list_out, Use::write);
    if (blocks.collides(data, group->rank)) data.copy();
    group->check(
        "all_gather",
        ccl().AllGatherV(
            data.data(), data.count(), blocks.base(), blocks.counts(), blocks.displs(), data.type(), group->comm,
            nullptr));
    blocks.store();
  };
  return begin(what("ccl:all_gather", OpType::ALLGATHER, opts), inputs, list_out, body);
}

WorkPtr CclBackend::_allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& opts) {
  check_tensor("all_gather_into_tensor", input, Use::read);
  check_tensor("all_gather_into_tensor", output, Use::write);
  check_parts("all_gather_into_tensor", output, input, size_);
  auto body = [group = group_, input, output] {
    Buffer part(input, Use::read), whole(output, Use::write);
    if (whole.collides(part, group->rank, group->size)) part.copy();
    group->check(
        "all_gather_into_tensor",
        ccl().AllGather(part.data(), whole.data(), part.count(), part.type(), group->comm, nullptr));
    whole.store();
  };
  return begin(what("ccl:_all_gather_base", OpType::_ALLGATHER_BASE, opts), {input}, {output}, body);
}

WorkPtr CclBackend::allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const char* name = "all_gather_coalesced";
  TORCH_CHECK_VALUE(
      outputs.size() == static_cast<size_t>(size_), "ccl ", name, ": ", outputs.size(), " lists for ", size_, " ranks");
  // One list for each rank comes in; one for each tensor is gathered.
  Lists by_tensor(inputs.size());
  Tensors all;
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK_VALUE(
        of_rank.size() == inputs.size(), "ccl ", name, ": ", of_rank.size(), " outputs for ", inputs.size(), " inputs");
    for (size_t i = 0; i < of_rank.size(); ++i) {
      by_tensor[i].push_back(of_rank[i]);
      all.push_back(of_rank[i]);
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(name, inputs[i], Use::read);
    check_types(name, by_tensor[i], inputs[i], Use::write);
    for (const Tensor& output : by_tensor[i])
      TORCH_CHECK_VALUE(
          output.sizes() == inputs[i].sizes(),
          "ccl ", name, ": invalid size of an output: ", output.sizes(), " for an input of ", inputs[i].sizes());
  }
  auto body = [group = group_, inputs, by_tensor, name] {
    std::vector<Buffer> parts;
    std::vector<Blocks> blocks;
    for (size_t i = 0; i < inputs.size(); ++i) {
      parts.emplace_back(inputs[i], Use::read);
      blocks.emplace_back(by_tensor[i], Use::write);
    }
    keep_apart(blocks, parts, group->rank);
    Together together(*group, name);
    for (size_t i = 0; i < parts.size(); ++i)
      together.add(ccl().AllGatherV(
          parts[i].data(), parts[i].count(), blocks[i].base(), blocks[i].counts(), blocks[i].displs(),
          parts[i].type(), group->comm, nullptr));
    together.end();
    for (const Blocks& gathered : blocks) gathered.store();
  };
  return begin(what("ccl:all_gather", OpType::ALLGATHER_COALESCED, opts), inputs, all, body);
}

WorkPtr CclBackend::allgather_into_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::AllgatherOptions& opts) {
  const char* name = "all_gather_into_tensor_coalesced";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ccl ", name, ": as many outputs as inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(name, inputs[i], Use::read);
    check_tensor(name, outputs[i], Use::write);
    check_parts(name, outputs[i], inputs[i], size_);
  }
  auto body = [group = group_, inputs, outputs, name] {
    std::vector<Buffer> parts, wholes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      parts.emplace_back(inputs[i], Use::read);
      wholes.emplace_back(outputs[i], Use::write);
    }
    keep_apart(wholes, parts, group->rank, group->size);
    Together together(*group, name);
    for (size_t i = 0; i < parts.size(); ++i)
      together.add(ccl().AllGather(
          parts[i].data(), wholes[i].data(), parts[i].count(), parts[i].type(), group->comm, nullptr));
    together.end();
    for (const Buffer& whole : wholes) whole.store();
  };
  return begin(what("ccl:all_gather", OpType::ALLGATHER_INTO_TENSOR_COALESCED, opts), inputs, outputs, body);
}

WorkPtr CclBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  auto input = single("gather", inputs);
  int root = static_cast<int>(opts.rootRank);
  check_root("gather", opts.rootRank, size_);
  check_tensor("gather", input, Use::read);
  Tensors list_out;
  if (rank_ == root) {
    list_out = list("gather", outputs, size_);
    check_types("gather", list_out, input, Use::write);
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), "ccl gather: only the root, rank ", root, ", has outputs");
  }
  auto body = [group = group_, input, list_out, root] {
    Buffer data(input, Use::read);
    Blocks blocks(list_out, Use::write);
    if (blocks.collides(data, group->rank)) data.copy();
    group->check(
        "gather",
        ccl().GatherV(
            data.data(), data.count(), blocks.base(), blocks.counts(), blocks.displs(), data.type(), root,
            group->comm, nullptr));
    blocks.store();
  };
  return begin(what("ccl:gather", OpType::GATHER, opts), inputs, list_out, body);
}

WorkPtr CclBackend::gather_into_tensor(Tensor& output, Tensor& input, const c10d::GatherOptions& opts) {
  int root = static_cast<int>(opts.rootRank);
  check_root("gather_single", opts.rootRank, size_);
  check_tensor("gather_single", input, Use::read);
  bool is_root = rank_ == root;
  if (is_root) {
    check_tensor("gather_single", output, Use::write);
    check_parts("gather_single", output, input, size_);
  }
  auto body = [group = group_, input, output = is_root ? output : Tensor(), root] {
    Buffer part(input, Use::read), whole;
    if (output.defined()) {
      whole = Buffer(output, Use::write);
      if (whole.collides(part, group->rank, group->size)) part.copy();
    }
    void* into = output.defined() ? whole.data() : nullptr;
    group->check(
        "gather_single", ccl().Gather(part.data(), into, part.count(), part.type(), root, group->comm, nullptr));
    if (output.defined()) whole.store();
  };
  Tensors outputs;
  if (is_root) outputs.push_back(output);
  return begin(what("ccl:gather", OpType::GATHER, opts), {input}, outputs, body);
}

WorkPtr CclBackend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) {
  auto output = single("scatter", outputs);
  int root = static_cast<int>(opts.rootRank);
  check_root("scatter", opts.rootRank, size_);
  check_tensor("scatter", output, Use::write);
  Tensors list_in;
  if (rank_ == root) {
    list_in = list("scatter", inputs, size_);
    check_types("scatter", list_in, output, Use::read);
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), "ccl scatter: only the root, rank ", root, ", has inputs");
  }
  auto body = [group = group_, output, list_in, root] {
    Buffer data(output, Use::write);
    Blocks blocks(list_in, Use::read);
    if (blocks.collides(data, group->rank)) blocks.copy();
    group->check(
        "scatter",
        ccl().ScatterV(
            blocks.base(), blocks.counts(), blocks.displs(), data.data(), data.count(), data.type(), root,
            group->comm, nullptr));
    data.store();
  };
  return begin(what("ccl:scatter", OpType::SCATTER, opts), list_in, outputs, body);
}

WorkPtr CclBackend::reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) {
  auto output = single("reduce_scatter", outputs);
  auto list_in = list("reduce_scatter", inputs, size_);
  check_tensor("reduce_scatter", output, Use::write);
  check_types("reduce_scatter", list_in, output, Use::read);
  TORCH_CHECK_VALUE(
      list_in[rank_].numel() == output.numel(),
      "ccl reduce_scatter: the output has ", output.numel(), " elements and this rank's input ",
      list_in[rank_].numel());
  Reduction reduction("reduce_scatter", opts.reduceOp, output);
  auto body = [group = group_, output, list_in, reduction] {
    Buffer data(output, Use::write);
    Blocks blocks(list_in, Use::read);
    if (blocks.collides(data, group->rank)) blocks.copy();
    Reduction::Made op(reduction, *group);
    group->check(
        "reduce_scatter",
        ccl().ReduceScatterV(
            blocks.base(), blocks.counts(), blocks.displs(), data.data(), data.count(), data.type(), op, group->comm,
            nullptr));
    data.store();
  };
  return begin(what("ccl:reduce_scatter", OpType::REDUCE_SCATTER, opts), list_in, outputs, body);
}

WorkPtr CclBackend::_reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& opts) {
  check_tensor("reduce_scatter_tensor", input, Use::read);
  check_tensor("reduce_scatter_tensor", output, Use::write);
  check_parts("reduce_scatter_tensor", input, output, size_);
  Reduction reduction("reduce_scatter_tensor", opts.reduceOp, output);
  auto body = [group = group_, input, output, reduction] {
    Buffer whole(input, Use::read), part(output, Use::write);
    if (whole.collides(part, group->rank, group->size)) whole.copy();
    Reduction::Made op(reduction, *group);
    group->check(
        "reduce_scatter_tensor",
        ccl().ReduceScatter(whole.data(), part.data(), part.count(), part.type(), op, group->comm, nullptr));
    part.store();
  };
  return begin(what("ccl:_reduce_scatter_base", OpType::_REDUCE_SCATTER_BASE, opts), {input}, {output}, body);
}

WorkPtr CclBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs,
    Tensors& inputs,
    const c10d::ReduceScatterOptions& opts) {
  const char* name = "reduce_scatter_tensor_coalesced";
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "ccl ", name, ": as many outputs as inputs");
  std::vector<Reduction> reductions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_tensor(name, inputs[i], Use::read);
    check_tensor(name, outputs[i], Use::write);
    check_parts(name, inputs[i], outputs[i], size_);
    reductions.emplace_back(name, opts.reduceOp, outputs[i]);
  }
  auto body = [group = group_, inputs, outputs, reductions, name] {
    std::vector<Buffer> parts, wholes;
    std::deque<Reduction::Made> ops;
    for (size_t i = 0; i < inputs.size(); ++i) {
      wholes.emplace_back(inputs[i], Use::read);
      parts.emplace_back(outputs[i], Use::write);
    }
    keep_apart(wholes, parts, group->rank, group->size);
    for (const Reduction& reduction : reductions) ops.emplace_back(reduction, *group);
    Together together(*group, name);
    for (size_t i = 0; i < parts.size(); ++i)
      together.add(ccl().ReduceScatter(
          wholes[i].data(), parts[i].data(), parts[i].count(), parts[i].type(), ops[i], group->comm, nullptr));
    together.end();
    for (const Buffer& part : parts) part.store();
  };
  return begin(what("ccl:reduce_scatter", OpType::REDUCE_SCATTER_TENSOR_COALESCED, opts), inputs, outputs, body);
}

/// Equal splits take the V form as well: another rank may pass its own, which are equal only by chance.
WorkPtr CclBackend::alltoall_base(
    Tensor& output,
    Tensor& input,
    std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& opts) {
  check_tensor("all_to_all_single", input, Use::read);
  check_types("all_to_all_single", {output}, input, Use::write);
  auto received = split_counts(output, output_splits, size_);
  auto sent = split_counts(input, input_splits, size_);
  auto body = [group = group_, input, output, received, sent] {
    Blocks into(output, Use::write, received), from(input, Use::read, sent);
    if (from.overlaps(into)) from.copy();
    group->check(
        "all_to_all_single",
        ccl().AlltoAllV(
            from.base(), from.counts(), from.displs(), into.base(), into.counts(), into.displs(), into.type(),
            group->comm, nullptr));
    into.store();
  };
  return begin(what("ccl:all_to_all", OpType::ALLTOALL_BASE, opts), {input}, {output}, body);
}

WorkPtr CclBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  list("all_to_all", {outputs}, size_);
  list("all_to_all", {inputs}, size_);
  check_types("all_to_all", inputs, inputs[0], Use::read);
  check_types("all_to_all", outputs, inputs[0], Use::write);
  auto body = [group = group_, inputs, outputs] {
    Blocks into(outputs, Use::write), from(inputs, Use::read);
    if (from.overlaps(into)) from.copy();
    group->check(
        "all_to_all",
        ccl().AlltoAllV(
            from.base(), from.counts(), from.displs(), into.base(), into.counts(), into.displs(), into.type(),
            group->comm, nullptr));
    into.store();
  };
  return begin(what("ccl:all_to_all", OpType::ALLTOALL, opts), inputs, outputs, body);
}

WorkPtr CclBackend::barrier(const c10d::BarrierOptions& opts) {
  return begin(what("ccl:barrier", OpType::BARRIER, opts), {}, {}, [group = group_] {
    group->check("barrier", ccl().Barrier(group->comm, nullptr));
  });
}

namespace {

/// A send or receive on its way; the library's callback ends it.
struct Posted {
  std::shared_ptr<Group> group;
  c10::intrusive_ptr<Operation> operation;
  cclStream_t stream;
  Buffer buffer;
  bool receives;
  cclRecvInfo_t info{};

  void finish(cclResult_t result) {
    std::exception_ptr failure;
    if (result != cclSuccess) {
      failure = group->failure(operation->name(), result);
    } else if (receives) {
      failure = take();
    }
    group->message_over(receives, buffer.bytes());
    if (failure) group->report_failure();
    bool has_future = operation->complete(failure);
    operation->report();
    if (has_future) operation->tell();
  }

  std::exception_ptr take() {
    operation->source = info.source;
    try {
      TORCH_CHECK_VALUE(
          info.count == buffer.count(),
          "ccl ", operation->name(), ": rank ", info.source, " sent ", info.count * buffer.element(),
          " bytes to a tensor of ", buffer.bytes());
      at::AutoDispatchBelowADInplaceOrView guard;
      buffer.store();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  static void ended(void* data, cclResult_t result) {
    Group::is_waited_for();
    std::unique_ptr<Posted> posted(static_cast<Posted*>(data));
    auto group = posted->group;
    auto stream = posted->stream;
    {
      InCallback here(*group);
      posted->finish(result);
    }
    posted.reset();  // tensors with it, which may take the interpreter
    group->give_stream(stream, result != cclSuccess);
  }
};

}  // namespace

/// Begins a send, or a receive, which has no order with other operations but with those that it matches.
WorkPtr CclBackend::post(const char* title, OpType type, Tensors& tensors, int peer, int tag) {
  const char* name = title + sizeof("ccl:") - 1;
  auto tensor = single(name, tensors);
  bool receives = type != OpType::SEND;
  auto use = receives ? Use::write : Use::read;
  check_tensor(name, tensor, use);
  TORCH_CHECK_VALUE(tag >= 0, "ccl ", name, ": the tag is ", tag, ": it must not be negative");
  TORCH_CHECK_VALUE(
      (0 <= peer && peer < size_) || type == OpType::RECVANYSOURCE,
      "ccl ", name, ": there is no rank ", peer, " of ", size_);
  Milliseconds timeout(group_->timeout_ms);
  auto operation = c10::make_intrusive<Operation>(
      group_, type, title, receives ? Tensors() : tensors, receives ? tensors : Tensors(), number_, timeout, nullptr);
  at::AutoDispatchBelowADInplaceOrView guard;
  Buffer buffer(tensor, use);
  auto stream = group_->take_stream(receives, buffer.bytes());
  auto* posted = new Posted{group_, operation, stream, std::move(buffer), receives};
  const Buffer& data = posted->buffer;
  group_->set_deadline(timeout);
  cclResult_t result =
      receives
          ? ccl().RecvTag(
                data.data(), data.count(), data.type(), peer, tag, &posted->info, group_->comm, posted->stream)
          : ccl().SendTag(data.data(), data.count(), data.type(), peer, tag, group_->comm, posted->stream);
  if (result == cclSuccess) result = ccl().StreamAddCallback(posted->stream, Posted::ended, posted);
  if (result != cclSuccess) {
    // After a failure of the system's the operation may be under way: its memory is left to it.
    auto failure = group_->failure(name, result);
    group_->message_over(receives, data.bytes());
    group_->give_stream(posted->stream, true);
    group_->report_failure();
    if (result != cclSystemError) delete posted;
    std::rethrow_exception(failure);
  }
  return operation;
}

WorkPtr CclBackend::send(Tensors& tensors, int peer, int tag) {
  return post("ccl:send", OpType::SEND, tensors, peer, tag);
}

WorkPtr CclBackend::recv(Tensors& tensors, int peer, int tag) {
  return post("ccl:recv", OpType::RECV, tensors, peer, tag);
}

WorkPtr CclBackend::recvAnysource(Tensors& tensors, int tag) {
  return post("ccl:recvAnySource", OpType::RECVANYSOURCE, tensors, CCL_ANY_SOURCE, tag);
}

namespace {

/// A barrier through the store, so that the group is as good as before when a rank does not come. In Gloo's words.
class Monitored {
 public:
  Monitored(Group& group, c10d::Store& store, uint64_t number, Milliseconds timeout)
      : group_(group), store_(store), number_(number), timeout_(timeout), end_(Clock::now() + timeout) {}

  /// The part of all ranks but 0: says that this one is here, and hears who is missing.
  void arrive() {
    auto here = key(std::to_string(group_.rank));
    std::string verdict;
    try {
      store_.set(here, std::string("here"));
      // Rank 0 says within its own deadline who is missing; it may have begun later than this one.
      if (comes(key("verdict"))) verdict = store_.get_to_str(key("verdict"));
    } catch (const c10::DistNetworkError&) {
      throw;  // there is nothing to leave
    } catch (...) {
      leave(here);
      throw;
    }
    leave(here);
    if (verdict.empty()) {
      C10_THROW_ERROR(
          DistBackendError,
          c10::str(
              "Rank ", group_.rank, " heard nothing from rank 0 in monitoredBarrier in ", timeout_.count(), " ms"));
    }
    if (verdict != all_came) {
      C10_THROW_ERROR(
          DistBackendError,
          c10::str(
              "Rank ", group_.rank, " successfully reached monitoredBarrier, but received errors while waiting for ",
              "send/recv from rank 0: ",
              verdict));
    }
  }

  /// The part of rank 0: waits for the others, and tells them who is missing.
  void call(bool all) {
    std::vector<int> missing;
    std::vector<std::string> heard;
    for (int rank = 1; rank < group_.size; ++rank) {
      auto here = key(std::to_string(rank));
      bool waits = all || missing.empty();
      if (waits ? comes(here) : store_.check({here})) {
        heard.push_back(heard_key(rank, number_));
      } else if (waits) {
        missing.push_back(rank);
      }
    }
    auto verdict = missing.empty() ? all_came : failed(missing);
    store_.set(key("verdict"), verdict);
    wait_for_all(heard);
    if (!missing.empty()) C10_THROW_ERROR(DistBackendError, verdict);
    // All have come to this one, so that nobody reads of the one before.
    if (number_ > 1) forget(store_, key("verdict", number_ - 1));
  }

 private:
  using Clock = std::chrono::steady_clock;
  inline static const std::string all_came = "all";
  static constexpr auto longest_pause = Milliseconds(50);
  /// How long rank 0 waits for others to hear what it says: in vain only for one that came and has died since.
  static constexpr auto heard_patience = std::chrono::seconds(20);

  std::string key(const std::string& what) const { return key(what, number_); }
  /// Groups that follow one another by one store count alike: each has keys of its own.
  std::string key(const std::string& what, uint64_t number) const {
    return c10::str("ccl/monitored/", group_.meeting(), "/", number, "/", what);
  }
  /// Where a rank says that it needs the store no more.
  std::string heard_key(int rank, uint64_t number) const { return key(c10::str("heard/", rank), number); }

  /// Whether the key comes in time; throws why the group has failed meanwhile, which the store's own wait would not
  /// see. A rank's death alone is no failure: the group is told of it by the next call that needs the rank.
  bool comes(const std::string& key) const {
    for (auto pause = Milliseconds(1);; pause = std::min(2 * pause, longest_pause)) {
      auto failure = group_.stopped("monitored_barrier");
      Group::stay_if_over();
      bool late = Clock::now() >= end_;
      // Looked for last: who set it may have gone since.
      try {
        if (store_.check({key})) return true;
      } catch (const c10::DistNetworkError&) {
        // A failure of the group's is why its keeper went.
        if (!failure) failure = group_.stopped("monitored_barrier");
        if (!failure) throw;
      }
      if (failure) {
        group_.report_failure();
        std::rethrow_exception(failure);
      }
      if (late) return false;
      std::this_thread::sleep_for(pause);
    }
  }

  /// The last use of the store: rank 0, with which it may end, waits for that.
  void leave(const std::string& here) {
    forget(store_, here);
    try {
      store_.set(heard_key(group_.rank, number_), std::string("heard"));
    } catch (const std::exception&) {
      // Rank 0 waits a moment in vain.
    }
  }

  /// Waits a moment for those who came: this process may keep the store, and end next.
  void wait_for_all(const std::vector<std::string>& heard) const {
    auto end = Clock::now() + heard_patience;
    for (auto pause = Milliseconds(1); !heard.empty() && Clock::now() < end; pause = std::min(2 * pause, longest_pause)) {
      Group::stay_if_over();
      try {
        if (store_.check(heard)) return forget_all(heard);
      } catch (const std::exception&) {
        break;  // there is no store to keep
      }
      std::this_thread::sleep_for(pause);
    }
    Group::stay_if_over();
  }

  void forget_all(const std::vector<std::string>& keys) const {
    for (const auto& key : keys) forget(store_, key);
  }

  std::string failed(const std::vector<int>& missing) const {
    return c10::str(
        missing.size() == 1 ? "Rank " : "Ranks ", c10::Join(", ", missing), " failed to pass monitoredBarrier in ",
        timeout_.count(), " ms: Rank 0 timed out in monitoredBarrier");
  }

  Group& group_;
  c10d::Store& store_;
  const uint64_t number_;
  const Milliseconds timeout_;
  const Clock::time_point end_;
};

}  // namespace

void CclBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  group_->check_process();
  // PyTorch passes its default where the caller names no timeout.
  bool named = opts.timeout.count() >= 0 && opts.timeout != kBackendDefaultTimeout;
  auto timeout = named ? opts.timeout : options_->timeout;
  // The caller's timeout is rank 0's, as in Gloo: a rank that gave up before rank 0 would blame it, and be missed itself.
  if (rank_ != 0) timeout = std::max(timeout, options_->timeout);
  // All ranks count all of them, also those that fail.
  auto number = ++monitored_;
  try {
    // Not used again once something has failed there.
    auto store = own_store_ ? std::move(own_store_) : own(store_);
    Monitored barrier(*group_, *store, number, timeout);
    rank_ == 0 ? barrier.call(wait_all_ranks) : barrier.arrive();
    own_store_ = std::move(store);
  } catch (const c10::DistNetworkError& error) {
    if (rank_ == 0) throw;
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            "Rank ", rank_, " heard nothing from rank 0 in monitoredBarrier: the store is lost, and with it ",
            "perhaps rank 0, which most often keeps it: ",
            error.what_without_backtrace()));
  }
}

}  // namespace ccl_torch
