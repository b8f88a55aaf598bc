// The executor: in-flight batching over a paged KV cache. Names follow TensorRT-LLM's C++ executor API.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trtc {
class ModelBackend;
}

namespace trtc::executor {

using IdType = std::uint64_t;
using TokenIdType = std::int32_t;
using VecTokens = std::vector<TokenIdType>;

enum class FinishReason : std::int32_t {
  kNOT_FINISHED = 0,
  kEND_ID = 1,
  kSTOP_WORDS = 2,
  kLENGTH = 3,
  kTIMED_OUT = 4,
  kCANCELLED = 5,
};

enum class CapacitySchedulerPolicy : std::int32_t { kGUARANTEED_NO_EVICT = 0 };

// Unset fields mean "off". temperature 0, or top_k 1, or none of temperature, top_k, top_p and min_p set, is greedy.
struct SamplingConfig {
  std::int32_t num_return_sequences = 1;
  std::optional<float> temperature;
  std::optional<std::int32_t> top_k;  // 0: off
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;  // over prompt and output
  std::optional<float> presence_penalty;    // over output
  std::optional<float> frequency_penalty;   // over output
  std::optional<std::int32_t> min_tokens;   // until then end ids are masked and stop words do not stop
  std::optional<std::uint64_t> seed;        // unset: 0
};

struct OutputConfig {
  std::optional<std::int32_t> log_probs;         // top-n of each output token, the chosen one always included
  std::optional<std::int32_t> prompt_log_probs;  // likewise for prompt tokens 1..
  bool return_context_logits = false;            // float32 [prompt, vocab]
  bool return_generation_logits = false;         // float32 [output, vocab], before penalties
  bool exclude_input_from_output = true;
};

struct Request {
  VecTokens input_token_ids;
  std::int32_t max_tokens = 16;
  bool streaming = false;
  SamplingConfig sampling_config;
  OutputConfig output_config;
  std::optional<TokenIdType> end_id;
  VecTokens stop_token_ids;           // further end ids; an end id stays in the output
  std::vector<VecTokens> stop_words;  // token sequences; the match stays in the output
  std::vector<VecTokens> bad_words;
  std::optional<std::string> cache_salt;  // prefixes are shared only between equal salts; unset equals ""
};

// Log-probabilities (natural log, of the distribution after penalties and before temperature) at one position.
struct TokenLogProbs {
  std::vector<TokenIdType> ids;  // the chosen token, then the top ones by rank (the chosen one again if among them)
  std::vector<float> values;     // of ids
  std::int32_t chosen_rank = 1;  // 1: the most likely
};

// Rows of logits, row-major [rows, vocab_size].
struct Logits {
  std::int32_t vocab_size = 0;
  std::vector<float> values;
};

// One increment (streaming) or the whole output of one sequence of a request. Every sequence ends with exactly one
// result that has is_sequence_final, and the last of them has is_final.
struct Result {
  std::int32_t sequence_index = 0;
  bool is_sequence_final = false;
  bool is_final = false;                        // every sequence of the request is done
  VecTokens output_token_ids;                   // after the prompt, on the first result, unless that is excluded
  std::vector<TokenLogProbs> log_probs;         // per generated token of this result
  std::vector<TokenLogProbs> prompt_log_probs;  // of prompt tokens 1.., once, on the first result of sequence 0
  Logits context_logits;                        // once, on the first result of sequence 0
  Logits generation_logits;                     // per generated token of this result
  float cum_log_prob = 0.0f;                    // valid when log_probs were asked for
  FinishReason finish_reason = FinishReason::kNOT_FINISHED;
  std::int32_t reused_tokens = 0;  // prompt tokens found in the prefix cache
};

struct Response {
  IdType request_id = 0;
  std::optional<std::string> error;  // set: the request ended with this error; result holds only is_final
  Result result;
};

struct KvCacheConfig {
  bool enable_block_reuse = true;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> max_bytes;
  double free_memory_fraction = 0.5;
};

// Each limit may lower, never raise, the engine's own. max_num_tokens also bounds the batch: every running sequence
// takes one token of each step.
struct SchedulerConfig {
  CapacitySchedulerPolicy policy = CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT;
  bool enable_chunked_prefill = true;
  std::optional<std::int32_t> max_batch_size;
  std::optional<std::int32_t> max_num_tokens;
};

struct ExecutorConfig {
  SchedulerConfig scheduler_config;
  KvCacheConfig kv_cache_config;
  std::int32_t num_threads = 0;  // 0: one per usable core
  std::int32_t iter_stats_max_iterations = 1000;
  std::int32_t max_queue_size = 16384;  // requests that may wait to start; enqueueing more is refused
};

struct KvCacheStats {
  std::int32_t max_num_blocks = 0;     // free + used + cached
  std::int32_t free_num_blocks = 0;    // neither owned nor cached
  std::int32_t used_num_blocks = 0;    // owned by running requests
  std::int32_t cached_num_blocks = 0;  // only the prefix tree holds them
  std::int32_t tokens_per_block = 0;
  std::int64_t reused_blocks = 0;  // since start
  std::int64_t missed_blocks = 0;
};

struct IterationStats {
  std::int64_t iter = 0;
  double iter_latency_ms = 0.0;
  std::int32_t num_active_requests = 0;
  std::int32_t num_queued_requests = 0;
  std::int32_t num_completed_requests = 0;
  std::int32_t num_context_tokens = 0;
  std::int32_t num_generation_tokens = 0;
  KvCacheStats kv_cache_stats;
};

// Threads may share one. It does not survive fork(): in a child process cancelRequest, shutdown and the destructor do
// nothing and all else throws ExecutorError, so a forking server loads its model in the children.
class Executor {
 public:
  // engine_path: an engine directory. Throws EngineError or ExecutorError.
  Executor(const std::string& engine_path, const ExecutorConfig& config);
  // Over any backend (backend/model_backend.h); the executor owns it.
  Executor(std::unique_ptr<ModelBackend> backend, const ExecutorConfig& config);
  ~Executor();  // shutdown()
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Checks the request against the engine's limits at once: RequestError names the field and the numbers.
  // ExecutorError when the queue is full, after shutdown or a worker failure. enqueueRequests takes all or none.
  IdType enqueueRequest(const Request& request);
  std::vector<IdType> enqueueRequests(const std::vector<Request>& requests);

  // Responses of one request, or of any, in order; waits until one is there or the time-out (none: no limit) passes,
  // and returns none after a time-out or when the executor has stopped and nothing is left. RequestError for an id
  // that was never given out or whose final response was fetched already.
  std::vector<Response> awaitResponses(std::optional<IdType> request_id = std::nullopt,
                                       std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  std::int32_t getNumResponsesReady(std::optional<IdType> request_id = std::nullopt) const;

  // The request ends with kCANCELLED; unknown or finished ids are ignored.
  void cancelRequest(IdType request_id);

  std::vector<IterationStats> getLatestIterationStats();
  KvCacheStats getKvCacheStats() const;

  // Pending requests end with kCANCELLED, the worker stops, waiting awaitResponses calls return what is left. May be
  // called again.
  void shutdown();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trtc::executor
