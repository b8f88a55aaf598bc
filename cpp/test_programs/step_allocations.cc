// Counts what operator new is asked for inside steps of the CPU backend, on any thread: step_allocations ENGINE THREADS
// Prints one line for each kind of step, "NAME COUNT".
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "backend/cpu_backend.h"

namespace {

std::atomic<long> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(size, 1)) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

// The array and nothrow forms call these.
void* operator new(std::size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

// `seqs` sequences of `context` tokens, of which the last `queries` are new; sequence i owns block column i.
struct Step {
  Step(const trtc::ModelInfo& info, std::int32_t seqs, std::int32_t queries, std::int32_t context) {
    const std::int32_t blocks = (context + info.tokens_per_block - 1) / info.tokens_per_block;
    query_start.push_back(0);
    for (std::int32_t seq = 0; seq < seqs; ++seq) {
      for (std::int32_t position = context - queries; position < context; ++position) {
        input_ids.push_back((seq + position) % info.vocab_size);
        position_ids.push_back(position);
      }
      query_start.push_back(static_cast<std::int32_t>(input_ids.size()));
      context_lens.push_back(context);
      for (std::int32_t block = 0; block < blocks; ++block) block_table.push_back(seq * blocks + block);
      logit_rows.push_back(static_cast<std::int32_t>(input_ids.size()) - 1);
    }
    inputs = {input_ids, position_ids, query_start, context_lens, block_table, blocks, logit_rows};
    logits.resize(logit_rows.size() * static_cast<std::size_t>(info.vocab_size));
  }

  std::vector<std::int32_t> input_ids, position_ids, query_start, context_lens, block_table, logit_rows;
  trtc::StepInputs inputs;
  std::vector<float> logits;
};

void count(const char* name, trtc::ModelBackend& backend, Step step) {
  backend.run(step.inputs, step.logits);  // warm-up
  const long before = allocations.load();
  for (int i = 0; i < 3; ++i) backend.run(step.inputs, step.logits);
  std::printf("%s %ld\n", name, allocations.load() - before);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const long at_start = allocations.load();
  const std::unique_ptr<trtc::ModelBackend> backend = trtc::load_cpu_engine(argv[1], std::atoi(argv[2]));
  const trtc::ModelInfo& info = backend->info();
  const std::int32_t seqs = std::min(4, info.max_batch_size);
  const std::int32_t prompt = std::min(info.max_num_tokens / seqs, info.max_seq_len - 1);
  backend->allocate_kv_cache(seqs * (prompt / info.tokens_per_block + 1));
  std::printf("load %ld\n", allocations.load() - at_start);  // shows that counting works
  count("prefill", *backend, Step(info, seqs, prompt, prompt));
  count("decode", *backend, Step(info, seqs, 1, prompt + 1));
  count("one", *backend, Step(info, 1, 1, prompt + 1));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
