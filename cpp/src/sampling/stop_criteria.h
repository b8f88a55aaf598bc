// When a sequence ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trtc/executor.h"

namespace trtc::sampling {

struct StopCriteria {
  executor::VecTokens end_ids;
  std::vector<executor::VecTokens> stop_words;
  std::int32_t min_tokens = 0;
  std::int32_t max_tokens = 0;
};

// Looks at the output after its last token came. End ids come before stop words before the length.
executor::FinishReason finish_reason(const StopCriteria& criteria, std::span<const executor::TokenIdType> output);

}  // namespace trtc::sampling
