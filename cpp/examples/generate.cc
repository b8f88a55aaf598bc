// Continues token ids with an engine, from C++ alone: generate ENGINE TOKEN_ID...
// Prints the ids of the continuation as they come.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "trtc/errors.h"
#include "trtc/executor.h"

int main(int argc, char** argv) try {
  using namespace trtc::executor;
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s ENGINE TOKEN_ID...\n", argv[0]);
    return 2;
  }
  Executor executor(argv[1], ExecutorConfig{});
  Request request;
  for (int i = 2; i < argc; ++i) request.input_token_ids.push_back(std::atoi(argv[i]));
  request.streaming = true;
  const IdType id = executor.enqueueRequest(request);
  for (bool done = false; !done;) {
    for (const Response& response : executor.awaitResponses(id)) {
      if (response.error) throw trtc::RequestError(*response.error);
      for (const TokenIdType token : response.result.output_token_ids) std::printf("%d\n", token);
      std::fflush(stdout);
      done = response.result.is_final;
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
