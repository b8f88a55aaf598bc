// A file mapped read-only: its pages are read when they are first touched.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace trtc::engine {

class MappedFile {
 public:
  // Throws EngineError when the file is missing, empty or cannot be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trtc::engine
