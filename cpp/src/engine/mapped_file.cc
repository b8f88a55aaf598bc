#include "engine/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trtc/errors.h"

namespace trtc::engine {
namespace {

// Closes the descriptor; a mapping outlives it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& path, const char* action) {
  throw EngineError(path + " cannot be " + action + ": " + std::strerror(errno) +
                    "; pass an engine directory made by `trtc build`");
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(path, "opened");
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail(path, "read");
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    throw EngineError(path + " is empty or not a file; copy or build the engine again");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) fail(path, "mapped");
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace trtc::engine
