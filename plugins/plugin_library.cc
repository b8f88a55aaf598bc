// The library's entry points: IPluginRegistry::loadLibrary, trtexec and polygraphy find the plugin's creator by them.
#include <NvInferRuntime.h>

#include "plugins/paged_attention_plugin.h"

extern "C" __attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder* /*finder*/) {
}  // getLogger() is enough

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const* getCreators(
    int32_t& count) {
  static trtc::plugins::PagedAttentionCreator creator;
  static nvinfer1::IPluginCreatorInterface* const creators[] = {&creator};
  count = 1;
  return creators;
}
