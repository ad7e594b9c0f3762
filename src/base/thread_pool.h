// A pool for short parallel steps. The caller is one of the workers. Workers spin for a bounded
// time after a batch, then sleep on a futex; a busy neighbour costs its share of the CPU and no
// more, because parts are claimed one by one and nobody waits for a thread that claimed nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>

namespace strata {

class ThreadPool {
 public:
  // What runs a part: a view of a function that lives as long as the call it is given to. (A thread
  // that joins a batch waits for each cache line it must fetch, so there are no wrappers.)
  class Body {
   public:
    template <class Function>
      requires(!std::same_as<Function, Body> && std::invocable<const Function&, std::size_t>)
    Body(const Function& function)  // NOLINT(google-explicit-constructor)
        : object_(&function), call_([](const void* object, std::size_t part) {
            (*static_cast<const Function*>(object))(part);
          }) {}
    void operator()(std::size_t part) const { call_(object_, part); }
    const void* object() const { return object_; }

   private:
    const void* object_;
    void (*call_)(const void* object, std::size_t part);
  };

  // `threads` counts the caller: 1 means no worker threads at all. 0 means one per usable core
  // (working_threads() in topology.h).
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const;

  // Calls body(part) once for each part in [0, parts), in any order and on any thread, and returns
  // when all calls have returned. Bodies must not call run() of the same pool and must not throw.
  // One batch at a time: run() from two threads at once is serialised.
  void run(std::size_t parts, Body body);

  // As run(), for parts that lie side by side in memory: there is a share for each thread, worked
  // through in order; who is done with one helps with the others, from their ends.
  void run_near(std::size_t parts, Body body);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// CPUs this process may really use: affinity and cgroup v2/v1 quota, at least 1.
std::size_t usable_cpus();

}  // namespace strata
