// Makes pybind11 raise the Python twin (trtc/errors.py) of each C++ error.
#pragma once

#include <pybind11/pybind11.h>

#include "trtc/errors.h"

namespace trtc::bindings {

// Call once from each extension module's init function.
inline void register_errors() {
  pybind11::register_local_exception_translator([](std::exception_ptr pending) {
    const auto raise = [](const char* name, const std::exception& error) {
      const pybind11::object type = pybind11::module_::import("trtc.errors").attr(name);
      PyErr_SetString(type.ptr(), error.what());
    };
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const BuildError& error) {
      raise("BuildError", error);
    } catch (const EngineError& error) {
      raise("EngineError", error);
    } catch (const RequestError& error) {
      raise("RequestError", error);
    } catch (const ExecutorError& error) {
      raise("ExecutorError", error);
    } catch (const TrtcError& error) {
      raise("TrtcError", error);
    }
  });
}

}  // namespace trtc::bindings
