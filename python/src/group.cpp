#include "group.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <system_error>
#include <thread>

#include <unistd.h>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <c10/util/hash.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

#include "operation.hpp"

namespace ccl_torch {

namespace {

/// Where the id of the communicator lies in the store.
const char* const id_key = "ccl/id";
/// Where rank 0 says why it could not make the group. It is not in the id's place: by the same store ranks may meet again, and one that
/// comes before rank 0 must wait for it then.
const char* const failure_key = "ccl/failure";
/// Streams that are kept for the next sends and receives at most, each with its thread: what a step of a pipeline or of an
/// exchange by messages has in flight.
constexpr size_t streams_kept = 128;
/// How long a thread without anything to do keeps its group.
constexpr auto idle_patience = std::chrono::seconds(2);
/// How long a group that is shut down waits for receives, and all groups together wait for messages at the end of the process.
constexpr auto message_patience = std::chrono::seconds(1);
/// What a group that is shut down expects of sends that move: long ones have longer.
constexpr int64_t slow_bytes_per_ms = 10'000;
/// How long the end of the process waits for threads that are in callbacks, and how long threads that have waited stay while
/// Python does not end.
constexpr auto exit_patience = std::chrono::seconds(5);
/// How often these look whether it does.
constexpr auto exit_pause = Milliseconds(50);

/// All groups of the process, for its end. Never destroyed: threads may outlive static objects.
struct Groups {
  std::mutex mutex;
  std::vector<std::weak_ptr<Group>> all;
};

Groups& groups() {
  static auto* groups = new Groups;
  return *groups;
}

/// Whether `leave_all` has begun, until when threads stay while Python does not end, and the thread in which it does so.
std::atomic<bool> is_over{false};
std::atomic<std::chrono::steady_clock::time_point> stay_until{};
thread_local bool ends_process = false;
/// Whether `leave` waits for this thread.
thread_local bool waited_for = false;

/// What it says, without the stack that PyTorch appends to its own.
const char* text_of(const std::exception& error) {
  auto* own = dynamic_cast<const c10::Error*>(&error);
  return own != nullptr ? own->what_without_backtrace() : error.what();
}

/// The first of a queue, which is not empty.
c10::intrusive_ptr<Operation> taken(std::deque<c10::intrusive_ptr<Operation>>& queue) {
  auto first = std::move(queue.front());
  queue.pop_front();
  return first;
}

int milliseconds(int64_t ms) { return static_cast<int>(std::clamp<int64_t>(ms, 1, INT_MAX)); }

}  // namespace

void forget(c10d::Store& store, const std::string& key) {
  try {
    store.deleteKey(key);
  } catch (const std::exception&) {
    // A store that cannot delete keys is good enough for one meeting.
  }
}

namespace {

/// Leaves word for ranks that come later.
void leave_word(c10d::Store& store, const std::exception& failure) {
  try {
    store.set(failure_key, std::string(text_of(failure)));
  } catch (const std::exception&) {
    // Who loses the store finds out by itself.
  }
}

/// Why rank 0, which does not come, went, if it left word.
std::string word_left(c10d::Store& store) {
  try {
    if (store.check({failure_key})) return ", or came earlier and failed: " + store.get_to_str(failure_key);
  } catch (const std::exception&) {
    // The store itself is gone, as is told.
  }
  return "";
}

}  // namespace

Group::Group(int rank, int size, Milliseconds timeout, std::string name, std::vector<int64_t> global_ranks)
    : rank(rank),
      size(size),
      timeout_ms(timeout.count()),
      name_(std::move(name)),
      global_ranks_(std::move(global_ranks)),
      process_(getpid()) {}

Group::~Group() {
  // A child made by fork has neither the communicator nor the threads.
  if (!is_ours()) return;
  for (cclStream_t stream : streams_) ccl().StreamDestroy(stream);
  if (!gone_.exchange(true)) ccl().CommDestroy(comm);
}

std::shared_ptr<Group> Group::meet(
    c10d::Store& store,
    int rank,
    int size,
    Milliseconds timeout,
    std::string name,
    std::vector<int64_t> global_ranks) {
  TORCH_CHECK_VALUE(0 <= rank && rank < size, "ccl: rank ", rank, " of ", size, ": ranks count from 0");
  // Whether it met them or not.
  struct Stay {
    ~Stay() { stay_if_over(); }
  } stay;
  std::shared_ptr<Group> group(new Group(rank, size, timeout, std::move(name), std::move(global_ranks)));
  cclUniqueId id;
  if (rank == 0) {
    forget(store, failure_key);
    // The id holds the secret of the communicator and is used once: it goes as soon as all have it, and before any rank
    // can come again by the same store.
    try {
      group->check("init", ccl().GetUniqueId(&id));
      store.set(id_key, std::vector<uint8_t>(id.internal, id.internal + sizeof id.internal));
      group->join(id);
    } catch (const std::exception& error) {
      leave_word(store, error);
      forget(store, id_key);
      throw;
    }
    forget(store, id_key);
  } else {
    std::vector<uint8_t> bytes;
    try {
      store.wait({id_key}, timeout);
      bytes = store.get(id_key);
    } catch (const std::exception& error) {
      C10_THROW_ERROR(
          DistBackendError,
          c10::str(
              "ccl init: rank 0 did not come within ", timeout.count(), " ms", word_left(store), ": ", text_of(error)));
    }
    TORCH_CHECK(bytes.size() == sizeof id.internal, "ccl init: the store holds no id of ccl's under ", id_key);
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    group->join(id);
  }
  group->check("init", ccl().Barrier(group->comm, nullptr));
  auto& known = groups();
  std::lock_guard<std::mutex> lock(known.mutex);
  std::erase_if(known.all, [](const std::weak_ptr<Group>& other) { return other.expired(); });
  known.all.push_back(group);
  return group;
}

void Group::join(const cclUniqueId& id) {
  // The secret in the id stays out of what is derived from it.
  meeting_ = c10::sha1(std::string(id.internal, sizeof id.internal)).str();
  cclConfig_t config = CCL_CONFIG_INITIALIZER;
  config.timeout = milliseconds(timeout_ms);
  config.name = name_.c_str();
  cclResult_t result = ccl().CommInitRankConfig(&comm, size, id, rank, &config);
  if (result != cclSuccess) {
    gone_ = true;
    check("init", result);
  }
  deadline_ms_ = config.timeout;
}

void Group::submit(const c10::intrusive_ptr<Operation>& operation) {
  check_process();
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.push_back(operation);
  hand_over(lock);
}

void Group::run(const c10::intrusive_ptr<Operation>& operation) {
  check_process();
  std::unique_lock<std::mutex> lock(mutex_);
  if (turn_taken_ || !waiting_.empty()) {
    waiting_.push_back(operation);
    lock.unlock();
    operation->wait(kNoTimeout);
    return;
  }
  take_turn(lock, operation);
  hand_over(lock);
  lock.unlock();
  stay_if_over();
}

void Group::help(Operation& operation) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!turn_taken_ && !waiting_.empty() && !operation.is_over()) {
    auto next = taken(waiting_);
    take_turn(lock, next);
    bool is_over = next.get() == &operation;
    // It goes on with operations by itself, as long as it has to.
    if (is_over || !futures_.empty()) hand_over(lock);
    if (is_over) return;
    lock.unlock();
    next.reset();
    lock.lock();
  }
}

void Group::hand_over() {
  std::unique_lock<std::mutex> lock(mutex_);
  hand_over(lock);
}

void Group::hand_over(std::unique_lock<std::mutex>& lock) {
  while (has_work() && !wake()) do_next(lock);
}

/// Completes a future, or carries out an operation. The lock is off meanwhile.
void Group::do_next(std::unique_lock<std::mutex>& lock) {
  bool tells = !futures_.empty();
  auto operation = taken(tells ? futures_ : waiting_);
  if (tells) {
    if (has_work()) wake();
    lock.unlock();
    stay_if_over();
    operation->tell();
  } else {
    take_turn(lock, operation);
    lock.unlock();
  }
  // Its tensors go with the lock off, as they may take the interpreter.
  operation.reset();
  lock.lock();
}

static thread_local std::vector<const Group*> in_callbacks;

InCallback::InCallback(const Group& group) { in_callbacks.push_back(&group); }

InCallback::~InCallback() { in_callbacks.pop_back(); }

int InCallback::count(const Group& group) {
  return static_cast<int>(std::count(in_callbacks.begin(), in_callbacks.end(), &group));
}

void Group::take_turn(std::unique_lock<std::mutex>& lock, const c10::intrusive_ptr<Operation>& operation) {
  turn_taken_ = true;
  lock.unlock();
  operation->carry_out();
  lock.lock();
  turn_taken_ = false;
  ++callbacks_;
  InCallback here(*this);
  if (operation->failed() && !failures.empty() && !reporting_) {
    // Before who waits for it hears. A hook may use the group, and wait until it has nothing more to do; what fails meanwhile is no
    // news.
    reporting_ = true;
    less_to_do_.notify_all();
    if (has_work()) wake();
    lock.unlock();
    report_failure();
    lock.lock();
    reporting_ = false;
  }
  if (operation->complete()) futures_.push_back(operation);
  less_to_do_.notify_all();
  // A hook may wait for what is there to do.
  if (!successes.empty() && has_work()) wake();
  lock.unlock();
  operation->report();
  lock.lock();
  --callbacks_;
  less_to_do_.notify_all();
}

/// Has a thread look for what there is to do; false if the system has no room for one. The lock is held.
bool Group::wake() {
  if (comes_) return true;
  if (idle_ > 0) {
    work_there_.notify_one();
  } else {
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++threads_;
  }
  comes_ = true;
  return true;
}

void Group::work() {
  is_waited_for();
  std::unique_lock<std::mutex> lock(mutex_);
  comes_ = false;
  while (true) {
    if (has_work()) {
      do_next(lock);
    } else if (closed_ || idle_ > 0) {
      break;  // one that waits is enough
    } else {
      ++idle_;
      auto why = work_there_.wait_for(lock, idle_patience);
      --idle_;
      comes_ = false;
      if (why == std::cv_status::timeout && !has_work()) break;
    }
  }
  --threads_;
  less_to_do_.notify_all();
}

void Group::shut_down() {
  if (!is_ours()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  auto collectives_over = [this] { return !turn_taken_ && waiting_.empty(); };
  less_to_do_.wait(lock, collectives_over);
  // Sends go on as long as others take them in, one after the other.
  bool taken_in = true;
  while (taken_in && sends_ > 0) {
    int before = sends_;
    less_to_do_.wait_for(lock, send_patience(), [&] { return sends_ < before; });
    // What a send that was taken in is told may come after the collective whose ranks had it before.
    bool waited = !collectives_over();
    less_to_do_.wait(lock, collectives_over);
    taken_in = waited || sends_ < before;
  }
  // The last messages, and what other ranks still do, come to their end meanwhile.
  if (taken_in) less_to_do_.wait_for(lock, message_patience, [this] { return receives_ == 0; });
  leave(lock);
  // Not for those that have called this.
  int own = InCallback::count(*this);
  leaving_ += own;
  less_to_do_.notify_all();
  less_to_do_.wait_for(lock, exit_patience, [this] { return callbacks_ <= leaving_; });
  leaving_ -= own;
  lock.unlock();
  stay_if_over();
}

/// How long the next of the sends under way may take to end. Nobody sees how much of one has gone.
Milliseconds Group::send_patience() const {
  Milliseconds patience = message_patience + Milliseconds(sent_bytes_ / slow_bytes_per_ms);
  return std::min(patience, Milliseconds(milliseconds(timeout_ms)));
}

void Group::abort() {
  if (!is_ours() || gone_) return;
  aborted_ = true;
  ccl().CommRevoke(comm, 0);
}

void Group::leave(std::chrono::steady_clock::time_point end) {
  if (!is_ours()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  // Other ranks may still take in what this one has sent, which an abort would end.
  auto only_messages = [this] { return !turn_taken_ && waiting_.empty() && has_messages(); };
  less_to_do_.wait_until(lock, end, [&] { return !only_messages(); });
  leave(lock);
  less_to_do_.wait_for(lock, exit_patience, [this] { return threads_ == 0 && callbacks_ == 0; });
}

/// Ends what is under way: an operation would keep the communicator otherwise.
void Group::leave(std::unique_lock<std::mutex>& lock) {
  closed_ = true;
  bool busy = turn_taken_ || !waiting_.empty() || has_messages();
  work_there_.notify_all();
  lock.unlock();
  if (!gone_.exchange(true)) busy ? ccl().CommAbort(comm) : ccl().CommDestroy(comm);
  lock.lock();
}

void Group::leave_all() {
  ends_process = true;
  stay_until = std::chrono::steady_clock::now() + exit_patience;
  is_over = true;
  std::vector<std::shared_ptr<Group>> live;
  {
    auto& known = groups();
    std::lock_guard<std::mutex> lock(known.mutex);
    for (auto& group : known.all)
      if (auto there = group.lock()) live.push_back(std::move(there));
  }
  auto end = std::chrono::steady_clock::now() + message_patience;
  for (auto& group : live) group->leave(end);
  stay_until = std::chrono::steady_clock::now() + exit_patience;
}

void Group::stay_if_over() {
  if (!is_over || ends_process || waited_for) return;
  while (Py_IsFinalizing() || std::chrono::steady_clock::now() < stay_until.load()) std::this_thread::sleep_for(exit_pause);
}

void Group::is_waited_for() { waited_for = true; }

cclStream_t Group::take_stream(bool receives, size_t bytes) {
  check_process();
  std::lock_guard<std::mutex> lock(mutex_);
  cclStream_t stream = nullptr;
  // One is given back by the callback that is the last thing in it. Until that has returned, a message would begin later there than
  // the next one in another stream.
  auto over = [](cclStream_t stream) { return ccl().StreamQuery(stream) == cclSuccess; };
  auto found = std::find_if(streams_.rbegin(), streams_.rend(), over);
  if (found == streams_.rend()) {
    stream = new_stream();
  } else {
    stream = *found;
    streams_.erase(std::next(found).base());
  }
  ++(receives ? receives_ : sends_);
  if (!receives) sent_bytes_ += bytes;
  ++callbacks_;
  return stream;
}

/// A stream that has its thread for callbacks already: without room for one, a message that was posted could not be taken back.
cclStream_t Group::new_stream() const {
  cclStream_t stream = nullptr;
  check("stream", ccl().StreamCreate(&stream));
  cclResult_t result = ccl().StreamAddCallback(stream, [](void*, cclResult_t) {}, nullptr);
  if (result == cclSuccess) result = ccl().StreamSynchronize(stream);
  if (result != cclSuccess) {
    auto why = failure("stream", result);
    ccl().StreamDestroy(stream);
    std::rethrow_exception(why);
  }
  return stream;
}

void Group::message_over(bool receives, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  --(receives ? receives_ : sends_);
  if (!receives) sent_bytes_ -= bytes;
  less_to_do_.notify_all();
}

void Group::give_stream(cclStream_t stream, bool failed) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed || closed_ || streams_.size() >= streams_kept) {
    // A stream tells of its first failure for ever.
    ccl().StreamDestroy(stream);
  } else {
    streams_.push_back(stream);
  }
  --callbacks_;
  less_to_do_.notify_all();
}

void Group::set_deadline(Milliseconds timeout) {
  int wanted = milliseconds(timeout.count() < 0 ? timeout_ms.load() : timeout.count());
  if (deadline_ms_ == wanted) return;
  std::lock_guard<std::mutex> lock(mutex_);
  bool alone = turn_taken_ + sends_ + receives_ <= 1;
  if (!alone && wanted < deadline_ms_) return;
  if (deadline_ms_.exchange(wanted) != wanted) ccl().CommSetTimeout(comm, wanted);
}

void Group::check(const char* operation, cclResult_t result) const {
  if (result != cclSuccess) std::rethrow_exception(failure(operation, result));
}

std::exception_ptr Group::stopped(const char* operation) const {
  cclResult_t state = cclSuccess;
  cclResult_t result = ccl().CommGetAsyncError(comm, &state);
  if (result == cclSuccess) result = state;
  return result == cclSuccess ? nullptr : failure(operation, result);
}

void Group::report_failure() const {
  if (failures.empty() || gone_ || aborted_ || !stopped("hooks")) return;
  stay_if_over();
  failures.call();
}

std::exception_ptr Group::failure(const char* operation, cclResult_t result) const {
  std::string where = c10::str("ccl ", operation, ", rank ", rank, " of group '", name_, "'");
  if (!global_ranks_.empty()) {
    where += " (its ranks are ";
    for (size_t i = 0; i < global_ranks_.size(); ++i) where += c10::str(i == 0 ? "" : ", ", global_ranks_[i]);
    where += " of all)";
  }
  std::string what;
  if (gone_ && comm != nullptr) {
    what = "the group was aborted or destroyed";
  } else {
    const char* text = ccl().GetLastError(comm);
    what = *text != '\0' ? text : ccl().GetLastError(nullptr);
  }
  // What programs, and PyTorch's own tests, look for.
  if (result == cclTimeout) what = "Timed out waiting: " + what;
  c10::SourceLocation here = {__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (result == cclInvalidArgument && !gone_)
    return std::make_exception_ptr(c10::ValueError(here, where + ": " + what));
  return std::make_exception_ptr(c10::DistBackendError(here, where + ": " + what));
}

void Group::check_process() const {
  if (!is_ours())
    C10_THROW_ERROR(
        DistBackendError,
        c10::str(
            "ccl: group '", name_, "' belongs to process ", process_, ", of which this one was forked: ",
            "it needs a group of its own"));
}

bool Group::is_ours() const { return getpid() == process_; }

}  // namespace ccl_torch
