// The error tree of libtrtc; each class has one Python twin in trtc/errors.py.
// A message says what was got, what was expected and what to do.
#pragma once

#include <stdexcept>
#include <string>

// Libraries loaded at run time throw these too, and their types must be the same in all of them.
#define TRTC_EXPORTED __attribute__((visibility("default")))

namespace trtc {

// Base of all errors that trtc throws on purpose.
class TRTC_EXPORTED TrtcError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Weights cannot be quantized or packed as asked.
class TRTC_EXPORTED BuildError : public TrtcError {
 public:
  using TrtcError::TrtcError;
};

// An engine file is damaged, incomplete or made for another version or machine.
class TRTC_EXPORTED EngineError : public TrtcError {
 public:
  using TrtcError::TrtcError;
};

// A request is malformed or can never be served; the message names the field.
class TRTC_EXPORTED RequestError : public TrtcError {
 public:
  using TrtcError::TrtcError;
};

// The executor failed while running, or was used after shutdown.
class TRTC_EXPORTED ExecutorError : public TrtcError {
 public:
  using TrtcError::TrtcError;
};

}  // namespace trtc
