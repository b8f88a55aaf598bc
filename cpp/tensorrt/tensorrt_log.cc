#include "tensorrt_log.h"

#include <algorithm>

#include "trtc/errors.h"

namespace trtc::tensorrt {
namespace {

constexpr std::size_t kMostErrors = 3;  // the first ones; what follows them is their consequence

}  // namespace

void Log::log(Severity severity, nvinfer1::AsciiChar const* message) noexcept {
  if (severity > Severity::kERROR || message == nullptr) return;
  try {
    const std::lock_guard lock(mutex_);
    if (errors_.size() < kMostErrors && std::find(errors_.begin(), errors_.end(), message) == errors_.end()) {
      errors_.emplace_back(message);
    }
  } catch (...) {  // no memory for the reason: the error itself is reported all the same
  }
}

std::string Log::take(const std::string& otherwise) {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const std::string& error : errors_) text += (text.empty() ? "" : "; ") + error;
  errors_.clear();
  return text.empty() ? otherwise : text;
}

void Log::check(bool succeeded, const std::string& action) {
  if (!succeeded) throw ExecutorError(action + " failed: " + take("TensorRT gave no reason"));
}

}  // namespace trtc::tensorrt
