// Functions that others want called.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <c10/util/Logging.h>

namespace ccl_torch {

/// A table of them by ids. They are called without its lock: one may come back to it, or wait for who does.
template <typename... Arguments>
class Hooks {
 public:
  using Hook = std::function<void(Arguments...)>;

  void add(int64_t id, Hook hook) {
    change([&, added = std::make_shared<const Hook>(std::move(hook))](Table& table) { table[id] = added; });
  }
  void remove(int64_t id) {
    change([&](Table& table) { table.erase(id); });
  }
  bool empty() const { return now()->empty(); }
  /// One that is removed meanwhile may still be called.
  void call(Arguments... arguments) const {
    auto table = now();
    for (const auto& [id, hook] : *table) {
      try {
        (*hook)(arguments...);
      } catch (const std::exception& error) {
        LOG(ERROR) << "ccl: a hook failed: " << error.what();
      }
    }
  }

 private:
  /// Of pointers: to copy a hook, or to drop it, may take the interpreter, whose owner may wait for the lock.
  using Table = std::map<int64_t, std::shared_ptr<const Hook>>;

  std::shared_ptr<const Table> now() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return table_;
  }
  template <typename Change>
  void change(Change apply) {
    std::shared_ptr<const Table> before;  // it goes with the lock off
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = std::make_shared<Table>(*table_);
    apply(*after);
    before = std::exchange(table_, std::move(after));
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_ = std::make_shared<Table>();
};

}  // namespace ccl_torch
