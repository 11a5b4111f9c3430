// What the C++ examples share beside ranks.h: handles that are given back by themselves, and failures as exceptions.
#ifndef CCL_EXAMPLES_RANKS_HPP
#define CCL_EXAMPLES_RANKS_HPP

#include "ranks.h"
#include <memory>
#include <stdexcept>
#include <string>

// Throws what the library says, unless the call succeeded.
inline void expect(cclResult_t result) {
    if (result != cclSuccess) {
        throw std::runtime_error(std::string(cclGetErrorString(result)) + ": " + cclGetLastError(nullptr));
    }
}

// Throws this text, unless it is so.
inline void ensure(bool is_so, const char *otherwise) {
    if (!is_so) throw std::runtime_error(otherwise);
}

class Communicator {
    struct Destroy {
        void operator()(cclComm *handle) const { cclCommDestroy(handle); }
    };
    std::unique_ptr<cclComm, Destroy> handle;
    int number = 0, count = 0;

  public:
    explicit Communicator(cclComm_t handle) : handle(handle) {
        expect(cclCommUserRank(handle, &number));
        expect(cclCommCount(handle, &count));
    }
    int rank() const { return number; }
    int ranks() const { return count; }
    operator cclComm_t() const { return handle.get(); }
};

class Stream {
    struct Destroy {
        void operator()(void *handle) const { cclStreamDestroy(handle); }
    };
    std::unique_ptr<void, Destroy> handle;

  public:
    Stream() {
        cclStream_t made = nullptr;
        expect(cclStreamCreate(&made));
        handle.reset(made);
    }
    void synchronize() const { expect(cclStreamSynchronize(handle.get())); }
    operator cclStream_t() const { return handle.get(); }
};

#endif
