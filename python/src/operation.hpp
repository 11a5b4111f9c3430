// What a caller of PyTorch's gets for an operation: a Work.
#pragma once

#include <functional>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "group.hpp"

namespace ccl_torch {

/// An operation under way, or over. It keeps its tensors.
class Operation : public c10d::Work {
 public:
  /// What carries it out; throws if it fails.
  using Body = std::function<void()>;

  /// `title` is "ccl:" and the name, for the profiler. Without a body somebody else calls `complete`.
  Operation(
      std::shared_ptr<Group> group,
      c10d::OpType type,
      const char* title,
      std::vector<at::Tensor> inputs,
      std::vector<at::Tensor> outputs,
      uint64_t number,
      Milliseconds timeout,
      Body body);

  bool wait(Milliseconds timeout) override;
  void abort() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return number_; }
  Milliseconds getTimeout() const override { return timeout_; }
  /// Overrides one that older versions of PyTorch have not.
  uint64_t getCompletionKey() const { return key_; }

  /// Whether it is over, and so is what goes by its future.
  bool isCompleted() override;
  /// Whether it is over; its future may be completed a little later.
  bool is_over();
  /// Runs the body and keeps what it threw. Only who has the turn calls it.
  void carry_out();
  /// It is over: wakes who waits. Whether there is a future to `tell`, as somebody has asked for one.
  bool complete(std::exception_ptr failure);
  bool complete() { return complete(failure_); }
  /// Whether it failed as it was carried out.
  bool failed() const { return failure_ != nullptr; }
  /// Tells the group's hooks that it is over, if it has gone well.
  void report() const;
  /// Completes the future, which runs its callbacks on this thread.
  void tell();

  const char* name() const { return name_; }

  /// Whose message a receive from any rank got.
  std::atomic<int> source{-1};

 private:
  std::shared_ptr<Group> group_;
  const char* name_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  const uint64_t number_;
  /// No other operation of the process has it, nor has had.
  const uint64_t key_;
  const Milliseconds timeout_;
  Body body_;
  std::exception_ptr failure_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  /// Who asks for a future from now on completes it himself.
  bool settled_ = false;
};

}  // namespace ccl_torch
