#include "operation.hpp"

#include <ATen/core/jit_type.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Logging.h>

namespace ccl_torch {

namespace {
constexpr size_t prefix = sizeof("ccl:") - 1;
std::atomic<uint64_t> next_key{1};
}

Operation::Operation(
    std::shared_ptr<Group> group,
    c10d::OpType type,
    const char* title,
    std::vector<at::Tensor> inputs,
    std::vector<at::Tensor> outputs,
    uint64_t number,
    Milliseconds timeout,
    Body body)
    : Work(group->rank, type, title, inputs),
      group_(std::move(group)),
      name_(title + prefix),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      number_(number),
      key_(next_key++),
      timeout_(timeout),
      body_(std::move(body)) {}

bool Operation::wait(Milliseconds timeout) {
  if (!group_->is_ours() && !is_over()) group_->check_process();
  bool forever = timeout == kNoTimeout || timeout < Milliseconds::zero();
  if (forever && body_) group_->help(*this);
  std::unique_lock<std::mutex> lock(mutex_);
  auto over = [this] { return completed_; };
  bool is_over = true;
  if (forever) {
    cv_.wait(lock, over);
  } else {
    is_over = cv_.wait_for(lock, timeout, over);
  }
  auto future = is_over ? future_ : nullptr;
  lock.unlock();
  Group::stay_if_over();
  if (!is_over) {
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("ccl ", name_, ": not over after the ", timeout.count(), " ms of this wait; the operation goes on"));
  }
  // Who has waited finds the future completed, too; its callbacks may go on.
  if (future && !future->completed() && group_->is_ours()) {
    group_->hand_over();
    future->wait();
  }
  if (exception_) std::rethrow_exception(exception_);
  synchronize();  // PyTorch need not keep it, and its tensors, any longer for who waits in compiled code
  return true;
}

bool Operation::isCompleted() {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_ && (!future_ || future_->completed());
}

bool Operation::is_over() {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_;
}

void Operation::abort() { group_->abort(); }

int Operation::sourceRank() const { return source; }

std::vector<at::Tensor> Operation::result() {
  // In Gloo's words.
  TORCH_CHECK(
      is_over(), "Work needs to be completed before calling result(). Should call wait() before result().");
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (settled_) {
      lock.unlock();
      tell();
    }
  }
  return future_;
}

void Operation::carry_out() {
  // Copies of views are no business of autograd's, which this thread may know nothing of.
  at::AutoDispatchBelowADInplaceOrView guard;
  try {
    body_();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

bool Operation::complete(std::exception_ptr failure) {
  bool has_future;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
    settled_ = true;
    has_future = future_ != nullptr;
  }
  finish(std::move(failure));
  return has_future;
}

void Operation::report() const {
  if (!failure_) group_->successes.call(key_);
}

void Operation::tell() {
  try {
    if (failure_) {
      future_->setError(failure_);
    } else {
      future_->markCompleted(c10::IValue(outputs_));
    }
  } catch (const std::exception& error) {
    LOG(ERROR) << "ccl " << name_ << ": a callback of its future failed: " << error.what();
  }
}

}  // namespace ccl_torch
