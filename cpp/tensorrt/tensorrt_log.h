// TensorRT's log: what it calls an error becomes the reason of the next exception.
#pragma once

#include <NvInferRuntime.h>

#include <mutex>
#include <string>
#include <vector>

namespace trtc::tensorrt {

class Log final : public nvinfer1::ILogger {
 public:
  // TensorRT calls it from any thread.
  void log(Severity severity, nvinfer1::AsciiChar const* message) noexcept override;

  // What was logged since the last call, in one sentence; `otherwise` when that is nothing.
  std::string take(const std::string& otherwise);

  // Throws ExecutorError saying what was tried, and what was logged meanwhile, unless `succeeded`.
  void check(bool succeeded, const std::string& action);

 private:
  std::mutex mutex_;
  std::vector<std::string> errors_;
};

}  // namespace trtc::tensorrt
