// Sampler, generator and stop criteria, for tests.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "sampling/log_probs.h"
#include "sampling/philox.h"
#include "sampling/sampler.h"
#include "sampling/stop_criteria.h"

namespace py = pybind11;

namespace trtc::bindings {

using namespace sampling;

namespace {

using LogitRow = py::array_t<float, py::array::c_style | py::array::forcecast>;  // [vocab]

std::span<const float> view(const LogitRow& logits) { return {logits.data(), static_cast<std::size_t>(logits.size())}; }

// The next token after tokens, the first prompt_tokens of which are the request's prompt.
std::pair<TokenIdType, std::optional<executor::TokenLogProbs>> sample(const LogitRow& logits,
                                                                      const executor::Request& request,
                                                                      const VecTokens& output,
                                                                      std::int32_t sequence_index) {
  const SamplingParams params = make_sampling_params(request);
  VecTokens tokens = request.input_token_ids;
  TokenCounts counts;
  counts.add_prompt(tokens);
  for (const TokenIdType token : output) counts.add_output(token);
  tokens.insert(tokens.end(), output.begin(), output.end());
  const auto prompt_tokens = static_cast<std::int32_t>(request.input_token_ids.size());
  Sampler sampler(static_cast<std::int32_t>(logits.size()));
  SampledToken token = sampler.sample(view(logits), params, {tokens, prompt_tokens, sequence_index, &counts});
  return {token.id, std::move(token.log_probs)};
}

}  // namespace

void bind_test_sampling(py::module_& module) {
  module.def("sample", &sample, py::arg("logits"), py::arg("request"), py::arg("output") = VecTokens{},
             py::arg("sequence_index") = 0);
  module.def("prompt_log_probs", [](const LogitRow& logits, TokenIdType token, std::int32_t top_n) {
    return Sampler(static_cast<std::int32_t>(logits.size())).prompt_log_probs(view(logits), token, top_n);
  });
  module.def("philox4x32", &philox4x32, py::arg("counter"), py::arg("key"));
  module.def("uniform_draw", &uniform_draw, py::arg("seed"), py::arg("sequence_index"), py::arg("position"));
  module.def("finish_reason", [](const executor::Request& request, const VecTokens& output) {
    const SamplingParams params = make_sampling_params(request);
    return finish_reason({params.end_ids, request.stop_words, params.min_tokens, request.max_tokens}, output);
  });
}

}  // namespace trtc::bindings
