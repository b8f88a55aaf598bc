// Python classes for the plain structs of trtc/executor.h. Constructors take keywords only; values are checked where
// they are used: by enqueue_request and by the Executor's constructor.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "trtc/executor.h"

namespace py = pybind11;

namespace trtc::bindings {

using namespace executor;

namespace {

void bind_enums(py::module_& module) {
  py::enum_<FinishReason>(module, "FinishReason")
      .value("NOT_FINISHED", FinishReason::kNOT_FINISHED)
      .value("END_ID", FinishReason::kEND_ID)
      .value("STOP_WORDS", FinishReason::kSTOP_WORDS)
      .value("LENGTH", FinishReason::kLENGTH)
      .value("TIMED_OUT", FinishReason::kTIMED_OUT)
      .value("CANCELLED", FinishReason::kCANCELLED);
  py::enum_<CapacitySchedulerPolicy>(module, "CapacitySchedulerPolicy")
      .value("GUARANTEED_NO_EVICT", CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT);
}

void bind_sampling_config(py::module_& module) {
  py::class_<SamplingConfig>(module, "SamplingConfig")
      .def(py::init([](std::int32_t num_return_sequences, std::optional<float> temperature,
                       std::optional<std::int32_t> top_k, std::optional<float> top_p, std::optional<float> min_p,
                       std::optional<float> repetition_penalty, std::optional<float> presence_penalty,
                       std::optional<float> frequency_penalty, std::optional<std::int32_t> min_tokens,
                       std::optional<std::uint64_t> seed) {
             return SamplingConfig{
                 num_return_sequences, temperature,       top_k,      top_p, min_p, repetition_penalty,
                 presence_penalty,     frequency_penalty, min_tokens, seed};
           }),
           py::kw_only(), py::arg("num_return_sequences") = 1, py::arg("temperature") = py::none(),
           py::arg("top_k") = py::none(), py::arg("top_p") = py::none(), py::arg("min_p") = py::none(),
           py::arg("repetition_penalty") = py::none(), py::arg("presence_penalty") = py::none(),
           py::arg("frequency_penalty") = py::none(), py::arg("min_tokens") = py::none(), py::arg("seed") = py::none())
      .def_readwrite("num_return_sequences", &SamplingConfig::num_return_sequences)
      .def_readwrite("temperature", &SamplingConfig::temperature)
      .def_readwrite("top_k", &SamplingConfig::top_k)
      .def_readwrite("top_p", &SamplingConfig::top_p)
      .def_readwrite("min_p", &SamplingConfig::min_p)
      .def_readwrite("repetition_penalty", &SamplingConfig::repetition_penalty)
      .def_readwrite("presence_penalty", &SamplingConfig::presence_penalty)
      .def_readwrite("frequency_penalty", &SamplingConfig::frequency_penalty)
      .def_readwrite("min_tokens", &SamplingConfig::min_tokens)
      .def_readwrite("seed", &SamplingConfig::seed);
}

void bind_output_config(py::module_& module) {
  py::class_<OutputConfig>(module, "OutputConfig")
      .def(py::init([](std::optional<std::int32_t> log_probs, std::optional<std::int32_t> prompt_log_probs,
                       bool return_context_logits, bool return_generation_logits, bool exclude_input_from_output) {
             return OutputConfig{log_probs, prompt_log_probs, return_context_logits, return_generation_logits,
                                 exclude_input_from_output};
           }),
           py::kw_only(), py::arg("log_probs") = py::none(), py::arg("prompt_log_probs") = py::none(),
           py::arg("return_context_logits") = false, py::arg("return_generation_logits") = false,
           py::arg("exclude_input_from_output") = true)
      .def_readwrite("log_probs", &OutputConfig::log_probs)
      .def_readwrite("prompt_log_probs", &OutputConfig::prompt_log_probs)
      .def_readwrite("return_context_logits", &OutputConfig::return_context_logits)
      .def_readwrite("return_generation_logits", &OutputConfig::return_generation_logits)
      .def_readwrite("exclude_input_from_output", &OutputConfig::exclude_input_from_output);
}

void bind_request(py::module_& module) {
  py::class_<Request>(module, "Request")
      .def(py::init([](VecTokens input_token_ids, std::int32_t max_tokens, bool streaming,
                       SamplingConfig sampling_config, OutputConfig output_config, std::optional<TokenIdType> end_id,
                       VecTokens stop_token_ids, std::vector<VecTokens> stop_words, std::vector<VecTokens> bad_words,
                       std::optional<std::string> cache_salt) {
             return Request{std::move(input_token_ids),
                            max_tokens,
                            streaming,
                            std::move(sampling_config),
                            std::move(output_config),
                            end_id,
                            std::move(stop_token_ids),
                            std::move(stop_words),
                            std::move(bad_words),
                            std::move(cache_salt)};
           }),
           py::kw_only(), py::arg("input_token_ids"), py::arg("max_tokens") = 16, py::arg("streaming") = false,
           py::arg("sampling_config") = SamplingConfig{}, py::arg("output_config") = OutputConfig{},
           py::arg("end_id") = py::none(), py::arg("stop_token_ids") = VecTokens{},
           py::arg("stop_words") = std::vector<VecTokens>{}, py::arg("bad_words") = std::vector<VecTokens>{},
           py::arg("cache_salt") = py::none())
      .def_readwrite("input_token_ids", &Request::input_token_ids)
      .def_readwrite("max_tokens", &Request::max_tokens)
      .def_readwrite("streaming", &Request::streaming)
      .def_readwrite("sampling_config", &Request::sampling_config)
      .def_readwrite("output_config", &Request::output_config)
      .def_readwrite("end_id", &Request::end_id)
      .def_readwrite("stop_token_ids", &Request::stop_token_ids)
      .def_readwrite("stop_words", &Request::stop_words)
      .def_readwrite("bad_words", &Request::bad_words)
      .def_readwrite("cache_salt", &Request::cache_salt);
}

// float32 [rows, vocab] that views the result's memory, or None when there are no rows.
template <Logits Result::* member>
py::object logits_array(const py::object& self) {
  const Logits& logits = self.cast<const Result&>().*member;
  if (logits.values.empty()) return py::none();
  const auto rows = static_cast<py::ssize_t>(logits.values.size()) / logits.vocab_size;
  return py::array_t<float>({rows, static_cast<py::ssize_t>(logits.vocab_size)}, logits.values.data(), self);
}

void bind_response(py::module_& module) {
  py::class_<TokenLogProbs>(module, "TokenLogProbs")
      .def_readonly("ids", &TokenLogProbs::ids)
      .def_readonly("values", &TokenLogProbs::values)
      .def_readonly("chosen_rank", &TokenLogProbs::chosen_rank);
  py::class_<Result>(module, "Result")
      .def_readonly("sequence_index", &Result::sequence_index)
      .def_readonly("is_sequence_final", &Result::is_sequence_final)
      .def_readonly("is_final", &Result::is_final)
      .def_readonly("output_token_ids", &Result::output_token_ids)
      .def_readonly("log_probs", &Result::log_probs)
      .def_readonly("prompt_log_probs", &Result::prompt_log_probs)
      .def_property_readonly("context_logits", &logits_array<&Result::context_logits>)
      .def_property_readonly("generation_logits", &logits_array<&Result::generation_logits>)
      .def_readonly("cum_log_prob", &Result::cum_log_prob)
      .def_readonly("finish_reason", &Result::finish_reason)
      .def_readonly("reused_tokens", &Result::reused_tokens);
  py::class_<Response>(module, "Response")
      .def_readonly("request_id", &Response::request_id)
      .def_readonly("error", &Response::error)
      .def_property_readonly("has_error", [](const Response& self) { return self.error.has_value(); })
      .def_readonly("result", &Response::result);
}

void bind_config(py::module_& module) {
  py::class_<KvCacheConfig>(module, "KvCacheConfig")
      .def(py::init([](bool enable_block_reuse, std::optional<std::int64_t> max_tokens,
                       std::optional<std::int64_t> max_bytes, double free_memory_fraction) {
             return KvCacheConfig{enable_block_reuse, max_tokens, max_bytes, free_memory_fraction};
           }),
           py::kw_only(), py::arg("enable_block_reuse") = true, py::arg("max_tokens") = py::none(),
           py::arg("max_bytes") = py::none(), py::arg("free_memory_fraction") = 0.5)
      .def_readwrite("enable_block_reuse", &KvCacheConfig::enable_block_reuse)
      .def_readwrite("max_tokens", &KvCacheConfig::max_tokens)
      .def_readwrite("max_bytes", &KvCacheConfig::max_bytes)
      .def_readwrite("free_memory_fraction", &KvCacheConfig::free_memory_fraction);
  py::class_<SchedulerConfig>(module, "SchedulerConfig")
      .def(py::init([](CapacitySchedulerPolicy policy, bool enable_chunked_prefill,
                       std::optional<std::int32_t> max_batch_size, std::optional<std::int32_t> max_num_tokens) {
             return SchedulerConfig{policy, enable_chunked_prefill, max_batch_size, max_num_tokens};
           }),
           py::kw_only(), py::arg("policy") = CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT,
           py::arg("enable_chunked_prefill") = true, py::arg("max_batch_size") = py::none(),
           py::arg("max_num_tokens") = py::none())
      .def_readwrite("policy", &SchedulerConfig::policy)
      .def_readwrite("enable_chunked_prefill", &SchedulerConfig::enable_chunked_prefill)
      .def_readwrite("max_batch_size", &SchedulerConfig::max_batch_size)
      .def_readwrite("max_num_tokens", &SchedulerConfig::max_num_tokens);
  py::class_<ExecutorConfig>(module, "ExecutorConfig")
      .def(py::init([](SchedulerConfig scheduler_config, KvCacheConfig kv_cache_config, std::int32_t num_threads,
                       std::int32_t iter_stats_max_iterations, std::int32_t max_queue_size) {
             return ExecutorConfig{std::move(scheduler_config), std::move(kv_cache_config), num_threads,
                                   iter_stats_max_iterations, max_queue_size};
           }),
           py::kw_only(), py::arg("scheduler_config") = SchedulerConfig{}, py::arg("kv_cache_config") = KvCacheConfig{},
           py::arg("num_threads") = 0, py::arg("iter_stats_max_iterations") = 1000, py::arg("max_queue_size") = 16384)
      .def_readwrite("scheduler_config", &ExecutorConfig::scheduler_config)
      .def_readwrite("kv_cache_config", &ExecutorConfig::kv_cache_config)
      .def_readwrite("num_threads", &ExecutorConfig::num_threads)
      .def_readwrite("iter_stats_max_iterations", &ExecutorConfig::iter_stats_max_iterations)
      .def_readwrite("max_queue_size", &ExecutorConfig::max_queue_size);
}

void bind_stats(py::module_& module) {
  py::class_<KvCacheStats>(module, "KvCacheStats")
      .def_readonly("max_num_blocks", &KvCacheStats::max_num_blocks)
      .def_readonly("free_num_blocks", &KvCacheStats::free_num_blocks)
      .def_readonly("used_num_blocks", &KvCacheStats::used_num_blocks)
      .def_readonly("cached_num_blocks", &KvCacheStats::cached_num_blocks)
      .def_readonly("tokens_per_block", &KvCacheStats::tokens_per_block)
      .def_readonly("reused_blocks", &KvCacheStats::reused_blocks)
      .def_readonly("missed_blocks", &KvCacheStats::missed_blocks);
  py::class_<IterationStats>(module, "IterationStats")
      .def_readonly("iter", &IterationStats::iter)
      .def_readonly("iter_latency_ms", &IterationStats::iter_latency_ms)
      .def_readonly("num_active_requests", &IterationStats::num_active_requests)
      .def_readonly("num_queued_requests", &IterationStats::num_queued_requests)
      .def_readonly("num_completed_requests", &IterationStats::num_completed_requests)
      .def_readonly("num_context_tokens", &IterationStats::num_context_tokens)
      .def_readonly("num_generation_tokens", &IterationStats::num_generation_tokens)
      .def_readonly("kv_cache_stats", &IterationStats::kv_cache_stats);
}

}  // namespace

void bind_executor_types(py::module_& module) {
  bind_enums(module);
  bind_sampling_config(module);
  bind_output_config(module);
  bind_request(module);
  bind_response(module);
  bind_config(module);
  bind_stats(module);
}

}  // namespace trtc::bindings
