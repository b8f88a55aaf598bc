#include "sampling/stop_criteria.h"

#include <algorithm>

namespace trtc::sampling {

executor::FinishReason finish_reason(const StopCriteria& criteria, std::span<const executor::TokenIdType> output) {
  using executor::FinishReason;
  if (std::ranges::find(criteria.end_ids, output.back()) != criteria.end_ids.end()) return FinishReason::kEND_ID;
  if (std::ssize(output) >= criteria.min_tokens) {
    for (const executor::VecTokens& word : criteria.stop_words) {
      if (output.size() >= word.size() && std::ranges::equal(output.last(word.size()), word)) {
        return FinishReason::kSTOP_WORDS;
      }
    }
  }
  return std::ssize(output) >= criteria.max_tokens ? FinishReason::kLENGTH : FinishReason::kNOT_FINISHED;
}

}  // namespace trtc::sampling
