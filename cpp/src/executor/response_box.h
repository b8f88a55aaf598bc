// Where responses wait to be fetched. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "trtc/executor.h"

namespace trtc::executor {

class ResponseBox {
 public:
  // A request whose responses will come. Its memory goes when its final response is fetched.
  void open(IdType id);

  void push(std::vector<Response> responses);

  // No more will be pushed: waiting calls return.
  void close();

  // As Executor::awaitResponses.
  std::vector<Response> await(std::optional<IdType> id, std::optional<std::chrono::milliseconds> timeout);

  std::int32_t num_ready(std::optional<IdType> id) const;

 private:
  using Boxes = std::map<IdType, std::vector<Response>>;

  bool something_for(std::optional<IdType> id) const;
  void take(Boxes::iterator box, std::vector<Response>& responses);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Boxes boxes_;              // by open request
  std::set<IdType> filled_;  // requests whose box holds something
  std::int32_t num_ready_ = 0;
  bool closed_ = false;
};

}  // namespace trtc::executor
