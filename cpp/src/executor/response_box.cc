#include "executor/response_box.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "trtc/errors.h"

namespace trtc::executor {

void ResponseBox::open(IdType id) {
  const std::lock_guard lock(mutex_);
  boxes_.try_emplace(id);
}

void ResponseBox::push(std::vector<Response> responses) {
  if (responses.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    for (Response& response : responses) {
      filled_.insert(response.request_id);
      boxes_.at(response.request_id).push_back(std::move(response));
    }
    num_ready_ += static_cast<std::int32_t>(responses.size());
  }
  changed_.notify_all();
}

void ResponseBox::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

std::vector<Response> ResponseBox::await(std::optional<IdType> id, std::optional<std::chrono::milliseconds> timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);  // far more would overflow the clock
  std::unique_lock lock(mutex_);
  if (id && !boxes_.contains(*id)) {
    throw RequestError("request id " + std::to_string(*id) +
                       " is unknown: it was never given out, or its final response was fetched already");
  }
  const auto ready = [&] { return closed_ || something_for(id); };
  if (timeout) {
    changed_.wait_for(lock, std::clamp(*timeout, std::chrono::milliseconds(0), kLongest), ready);
  } else {
    changed_.wait(lock, ready);
  }
  std::vector<Response> responses;
  if (id) {
    if (const auto box = boxes_.find(*id); box != boxes_.end()) take(box, responses);
  } else {
    while (!filled_.empty()) take(boxes_.find(*filled_.begin()), responses);
  }
  return responses;
}

std::int32_t ResponseBox::num_ready(std::optional<IdType> id) const {
  const std::lock_guard lock(mutex_);
  if (!id) return num_ready_;
  const auto box = boxes_.find(*id);
  return box == boxes_.end() ? 0 : static_cast<std::int32_t>(box->second.size());
}

// Also true when another caller fetched the request's final response meanwhile: there is nothing to wait for.
bool ResponseBox::something_for(std::optional<IdType> id) const {
  return id ? filled_.contains(*id) || !boxes_.contains(*id) : !filled_.empty();
}

void ResponseBox::take(Boxes::iterator box, std::vector<Response>& responses) {
  filled_.erase(box->first);
  num_ready_ -= static_cast<std::int32_t>(box->second.size());
  const bool final = !box->second.empty() && box->second.back().result.is_final;
  std::move(box->second.begin(), box->second.end(), std::back_inserter(responses));
  box->second.clear();
  if (final) boxes_.erase(box);
}

}  // namespace trtc::executor
