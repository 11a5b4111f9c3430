// The backend that PyTorch knows as "ccl".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/version.h>

#include "group.hpp"
#include "operation.hpp"

namespace ccl_torch {

/// Overrides the old names of methods, to which the new ones (all_gather_single and so on) forward.
class CclBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  CclBackend(
      c10::intrusive_ptr<c10d::Store> store,
      int rank,
      int size,
      Milliseconds timeout,
      const std::string& name,
      std::vector<int64_t> global_ranks);
  ~CclBackend() override;

  const std::string getBackendName() const override { return "ccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  uint64_t getSequenceNumberForGroup() override { return number_; }
  void setTimeout(Milliseconds timeout) override;
  void shutdown() override;
  void abort() override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& opts) override;
  c10::intrusive_ptr<Backend> merge(
      const c10::intrusive_ptr<c10d::Store>& store,
      const c10::intrusive_ptr<Options>& opts,
      const int& rank,
      const int& size) override;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    group_->successes.add(id, [hook = std::move(hook)](uint64_t key) { hook({key, std::nullopt}); });
  }
  void unregisterCompletionHook(int64_t id) override { group_->successes.remove(id); }
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override { group_->failures.add(id, std::move(hook)); }
  void unregisterAbortHook(int64_t id) override { group_->failures.remove(id); }
#endif

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts)
      override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  /// Overrides one that PyTorch 2.13 and older have not.
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts)
      override;
  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  /// Of groups that others' backends time as well; there is nothing to switch on.
  void enableCollectivesTiming() override {}

 private:
  struct What {
    const char* title;
    c10d::OpType type;
    Milliseconds timeout;
    bool is_async;
  };
  template <typename Opts>
  static What what(const char* title, c10d::OpType type, const Opts& opts) {
    return {title, type, opts.timeout, opts.asyncOp};
  }

  WorkPtr begin(What what, Tensors inputs, Tensors outputs, std::function<void()> body);
  WorkPtr sparse(at::Tensor tensor, const c10d::AllreduceOptions& opts);
  WorkPtr post(const char* title, c10d::OpType type, Tensors& tensors, int peer, int tag);

  std::shared_ptr<Group> group_;
  c10::intrusive_ptr<c10d::Store> store_;
  /// For monitored barriers, from the first on: each one made is a file read anew, or one more connection.
  c10::intrusive_ptr<c10d::Store> own_store_;
  c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> number_{0};
  uint64_t monitored_ = 0;
};

}  // namespace ccl_torch
