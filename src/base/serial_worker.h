// A thread that runs functions one at a time and in order, for work that belongs to no other
// thread.
#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace strata {

class SerialWorker {
 public:
  SerialWorker();
  ~SerialWorker();  // stop(); may be the work of its own thread
  SerialWorker(const SerialWorker&) = delete;
  SerialWorker& operator=(const SerialWorker&) = delete;

  // Dropped after stop().
  void post(std::function<void()> function);
  // Finishes what was posted; then nothing runs any more.
  void stop();

 private:
  struct State;
  static void run(State& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace strata
