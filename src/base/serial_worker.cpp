#include "base/serial_worker.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "base/log.h"

namespace strata {

struct SerialWorker::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool stopping = false;
};

SerialWorker::SerialWorker() : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_] { run(*state); });
}

SerialWorker::~SerialWorker() {
  stop();
}

void SerialWorker::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_one();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void SerialWorker::post(std::function<void()> function) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopping) return;
    state_->work.push_back(std::move(function));
  }
  state_->changed.notify_one();
}

void SerialWorker::run(State& state) {
  for (;;) {
    std::function<void()> function;
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.stopping || !state.work.empty(); });
      if (state.work.empty()) return;
      function = std::move(state.work.front());
      state.work.pop_front();
    }
    try {
      function();
    } catch (const std::exception& caught) {
      log_error("background work failed: {}", caught.what());
    }
  }
}

}  // namespace strata
