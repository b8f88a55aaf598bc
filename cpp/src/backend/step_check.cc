#include "backend/step_check.h"

#include <span>
#include <string>

#include "trtc/errors.h"

namespace trtc {
namespace {

[[noreturn]] void fail(const std::string& problem) { throw ExecutorError("step refused: " + problem); }

void check_range(std::span<const std::int32_t> values, std::int32_t end, const char* name) {
  for (const std::int32_t value : values) {
    if (value < 0 || value >= end) {
      fail(std::string(name) + " holds " + std::to_string(value) + ", expected 0 to " + std::to_string(end - 1));
    }
  }
}

void check_size(std::size_t got, std::size_t expected, const char* name) {
  if (got != expected) {
    fail(std::string(name) + " has " + std::to_string(got) + " elements, expected " + std::to_string(expected));
  }
}

void check_count(std::size_t got, std::int32_t most, const char* name) {
  if (got > static_cast<std::size_t>(most)) {
    fail(std::to_string(got) + " " + name + ", the engine's limit is " + std::to_string(most));
  }
}

// Query lengths, context lengths and the blocks that hold each context.
void check_sequence(const StepInputs& inputs, std::size_t seq, const ModelInfo& info, std::int32_t num_blocks) {
  const std::int64_t queries = std::int64_t{inputs.query_start[seq + 1]} - inputs.query_start[seq];
  const std::int32_t context = inputs.context_lens[seq];
  if (queries < 1 || context < queries || context > info.max_seq_len) {
    fail("sequence " + std::to_string(seq) + " has " + std::to_string(queries) + " new tokens and context length " +
         std::to_string(context) + ", expected 1 <= new <= context <= " + std::to_string(info.max_seq_len));
  }
  const std::int32_t blocks = (context - 1) / info.tokens_per_block + 1;
  if (blocks > inputs.max_blocks) {
    fail("sequence " + std::to_string(seq) + " needs " + std::to_string(blocks) + " blocks, block_table has " +
         std::to_string(inputs.max_blocks) + " columns");
  }
  const std::size_t row = seq * static_cast<std::size_t>(inputs.max_blocks);
  check_range(inputs.block_table.subspan(row, static_cast<std::size_t>(blocks)), num_blocks, "block_table");
}

void check_logit_rows(std::span<const std::int32_t> rows, std::size_t tokens) {
  check_range(rows, static_cast<std::int32_t>(tokens), "logit_rows");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i] <= rows[i - 1]) fail("logit_rows is not ascending");
  }
}

}  // namespace

void check_step(const StepInputs& inputs, std::size_t logits_size, const ModelInfo& info, std::int32_t num_blocks) {
  const std::size_t tokens = inputs.input_ids.size();
  const std::size_t seqs = inputs.context_lens.size();
  if (num_blocks < 1) fail("allocate_kv_cache was not called");
  if (tokens == 0 || seqs == 0) fail("no tokens");
  check_count(tokens, info.max_num_tokens, "tokens");
  check_count(seqs, info.max_batch_size, "sequences");
  check_count(inputs.logit_rows.size(), info.max_logit_rows, "rows of logits");
  check_size(inputs.position_ids.size(), tokens, "position_ids");
  check_size(inputs.query_start.size(), seqs + 1, "query_start");
  if (inputs.max_blocks < 1) fail("block_table has no columns");
  check_size(inputs.block_table.size(), seqs * static_cast<std::size_t>(inputs.max_blocks), "block_table");
  check_size(logits_size, inputs.logit_rows.size() * static_cast<std::size_t>(info.vocab_size), "logits");
  check_range(inputs.input_ids, info.vocab_size, "input_ids");
  check_range(inputs.position_ids, info.max_seq_len, "position_ids");
  if (inputs.query_start.front() != 0 || inputs.query_start.back() != static_cast<std::int32_t>(tokens)) {
    fail("query_start does not run from 0 to the number of tokens");
  }
  for (std::size_t seq = 0; seq < seqs; ++seq) check_sequence(inputs, seq, info, num_blocks);
  check_logit_rows(inputs.logit_rows, tokens);
}

}  // namespace trtc
