// Zeroed memory straight from the system: page-aligned, and taken only as it is touched.
#pragma once

#include <cstddef>
#include <string>

namespace trtc {

class AnonymousMemory {
 public:
  AnonymousMemory() = default;
  // `purpose` is for the message. Throws ExecutorError when the system refuses.
  AnonymousMemory(std::size_t bytes, const std::string& purpose);
  ~AnonymousMemory();
  AnonymousMemory(AnonymousMemory&& other) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept;
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trtc
