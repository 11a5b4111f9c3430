// A communicator and the order of its operations.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hooks.hpp"
#include "library.hpp"

namespace ccl_torch {

using Milliseconds = std::chrono::milliseconds;

class Operation;

/// Deletes a key where the store can.
void forget(c10d::Store& store, const std::string& key);

class Group;

/// While it lives this thread is in a callback of the group's, and need not be waited for by what that calls.
class InCallback {
 public:
  explicit InCallback(const Group& group);
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
  /// How many of the group's this thread is in.
  static int count(const Group& group);
};

/// One rank's place in a process group.
///
/// Collectives are carried out one after the other in the order in which they were submitted, by whoever has the
/// *turn*: the caller itself where it waits anyway, else a thread that is made on first need. Futures are completed by such
/// threads alone: a caller may hold locks that callbacks take. A thread that goes to complete one sees to it first that another does
/// what else there is, because callbacks may wait for later operations. Where no thread can be made the caller does all.
/// Sends and receives have no order with these: each is in a stream of the library's.
class Group : public std::enable_shared_from_this<Group> {
 public:
  /// Meets the other ranks through the store. Waits for them, at most `timeout`.
  static std::shared_ptr<Group> meet(
      c10d::Store& store,
      int rank,
      int size,
      Milliseconds timeout,
      std::string name,
      std::vector<int64_t> global_ranks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Adds the operation to those that wait for their turn, and returns.
  void submit(const c10::intrusive_ptr<Operation>& operation);
  /// Carries it out before it returns, in its turn.
  void run(const c10::intrusive_ptr<Operation>& operation);
  /// Carries out what waits as long as nobody else does and `operation` is not over.
  void help(Operation& operation);
  /// Has a thread do what there is to do. Does it itself if there can be none.
  void hand_over();

  /// Waits until nothing is under way, and leaves. A message may be one that nobody answers: receives have a moment, and
  /// sends one, and the time that their bytes take, after each that ends, then the group is aborted.
  void shut_down();
  /// Ends what is under way, on all ranks, with an error.
  void abort();
  /// Leaves, for the end of the process: at once, or by `end` where messages are all that is under way.
  void leave(std::chrono::steady_clock::time_point end);
  /// Does so with all groups of this process.
  static void leave_all();
  /// Keeps a thread that has waited, once `leave_all` has begun. It would go back to Python, which ends: a thread that
  /// asks for the interpreter then is unwound through C++, which ends the process by std::terminate. Where Python has not
  /// begun to end some seconds later, a handler of the program's may wait for this thread, which goes back. Whoever called
  /// `leave_all` goes on, and so does a thread that it waits for.
  static void stay_if_over();
  /// Says that `leave_all` waits for this thread.
  static void is_waited_for();

  /// Whether this process made it: a child made by fork has neither the threads nor the communicator.
  bool is_ours() const;
  /// Throws if it did not.
  void check_process() const;
  /// A stream that nothing is in, for a send or a receive of so many bytes.
  cclStream_t take_stream(bool receives, size_t bytes);
  /// The message is over, as who waits for it is told next.
  void message_over(bool receives, size_t bytes);
  /// Takes back the stream of a message that is over, of which nothing is left to be done.
  void give_stream(cclStream_t stream, bool failed);

  /// Sets the deadline for an operation that is about to begin: who calls has the turn, or a message's stream. It is that of all
  /// that is under way, so that as long as there is something else it only becomes longer.
  void set_deadline(Milliseconds timeout);
  /// Throws what went wrong in `operation`, if something did.
  void check(const char* operation, cclResult_t result) const;
  /// Why the group cannot be used any more, if it cannot. Never waits.
  std::exception_ptr stopped(const char* operation) const;
  /// The exception that `check` throws.
  std::exception_ptr failure(const char* operation, cclResult_t result) const;

  /// Calls the hooks for failures if the group has failed. If this process ended it they are not called.
  void report_failure() const;

  /// What names this meeting of its ranks to all of them, and no other one.
  const std::string& meeting() const { return meeting_; }

  const int rank;
  const int size;
  cclComm_t comm = nullptr;
  std::atomic<int64_t> timeout_ms;
  /// For each operation that is over and has gone well, by its key.
  Hooks<uint64_t> successes;
  /// For the group's failure, before who waits is told. Each operation that fails by it has them called.
  Hooks<> failures;

 private:
  Group(int rank, int size, Milliseconds timeout, std::string name, std::vector<int64_t> global_ranks);

  void join(const cclUniqueId& id);
  void leave(std::unique_lock<std::mutex>& lock);
  cclStream_t new_stream() const;
  Milliseconds send_patience() const;
  bool has_messages() const { return sends_ > 0 || receives_ > 0; }
  bool has_work() const { return !futures_.empty() || (!turn_taken_ && !waiting_.empty()); }
  bool wake();
  void work();
  void hand_over(std::unique_lock<std::mutex>& lock);
  void do_next(std::unique_lock<std::mutex>& lock);
  void take_turn(std::unique_lock<std::mutex>& lock, const c10::intrusive_ptr<Operation>& operation);

  const std::string name_;
  std::string meeting_;
  const std::vector<int64_t> global_ranks_;
  const int process_;

  std::mutex mutex_;
  /// There is something to carry out, or no more.
  std::condition_variable work_there_;
  /// Something is over.
  std::condition_variable less_to_do_;
  std::deque<c10::intrusive_ptr<Operation>> waiting_;
  /// Those that are over, and whose futures are to be completed.
  std::deque<c10::intrusive_ptr<Operation>> futures_;
  bool turn_taken_ = false;
  /// Whether hooks are being called because an operation has failed.
  bool reporting_ = false;
  bool closed_ = false;
  int threads_ = 0;
  int idle_ = 0;
  /// A thread has been woken, or made, and has not looked yet.
  bool comes_ = false;
  /// Sends and receives under way.
  int sends_ = 0;
  int receives_ = 0;
  /// All the bytes of those sends.
  int64_t sent_bytes_ = 0;
  /// Those, and operations that are over of which something else has still to be told.
  int callbacks_ = 0;
  /// Those of them that wait for the others, as they shut the group down.
  int leaving_ = 0;
  std::vector<cclStream_t> streams_;
  std::atomic<int64_t> deadline_ms_{0};
  std::atomic<bool> gone_{false};
  /// By this process.
  std::atomic<bool> aborted_{false};
};

}  // namespace ccl_torch
