// One of several processes that use one folder of saved conversations.
//
//   engine_conversation_worker FOLDER SEED MILLISECONDS BUDGET    exit 1 if anything loaded is
//   wrong
#include <cstdio>

#include "conversation_fixture.h"

int main(int count, char** arguments) {
  using namespace strata;
  if (count != 5) return 2;
  ConversationFilesOptions options;
  options.folder = arguments[1];
  options.budget_bytes = std::strtoull(arguments[4], nullptr, 10);
  options.shape = conversations::small_shape();
  options.rescan_after = std::chrono::milliseconds(5);
  options.retry_after = std::chrono::milliseconds(5);
  const auto store = ConversationFiles::open(options);
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    return 3;
  }
  const std::chrono::milliseconds duration(std::strtoull(arguments[3], nullptr, 10));
  const bool right =
      conversations::work_at_random(**store, std::strtoull(arguments[2], nullptr, 10), duration);
  const auto counters = (*store)->counters();
  // saved, loaded, evicted, damaged
  std::printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(counters.saved),
              static_cast<unsigned long long>(counters.loaded),
              static_cast<unsigned long long>(counters.evicted),
              static_cast<unsigned long long>(counters.damaged));
  return right ? 0 : 1;
}
