#include "plugins/attention_kernels.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>

#include "plugins/kernel_bundle.h"
#include "trtc/errors.h"

namespace trtc::plugins {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kSharedWithoutAttribute = 48 << 10;  // bytes that every kernel may use
constexpr std::uintptr_t kAlign = 16;                   // of pointers, which the kernels were compiled for

// Every argument of a step; parameters point into it.
struct Arguments {
  std::array<const void*, kNumPointers> pointers{};
  std::array<std::int32_t, kNumArguments - kNumPointers> numbers{};

  void* address(Argument argument) {
    const auto index = static_cast<std::size_t>(argument);
    return index < kNumPointers ? static_cast<void*>(&pointers[index]) : &numbers[index - kNumPointers];
  }
  const void*& pointer(Argument argument) { return pointers[static_cast<std::size_t>(argument)]; }
};

Arguments arguments_of(const AttentionFields& fields, const StepShape& step, std::int32_t splits,
                       const StepPointers& given, const Workspace& workspace) {
  Arguments arguments;
  std::copy(given.inputs.begin(), given.inputs.end(), arguments.pointers.begin());
  arguments.numbers = {step.tokens, step.seqs, step.max_blocks};
  const auto scratch = [&given](std::size_t offset) { return static_cast<const std::byte*>(given.workspace) + offset; };
  const void* query = arguments.pointer(Argument::kQuery);
  arguments.pointer(Argument::kOutput) = given.output;
  arguments.pointer(Argument::kRotatedQuery) = scratch(workspace.rotated_query);
  arguments.pointer(Argument::kPartialOutput) = scratch(workspace.partial_output);
  arguments.pointer(Argument::kPartialState) = scratch(workspace.partial_state);
  if (fields.rotary_dim == 0) {  // the query serves as it is, and the tables are not read
    for (const Argument unused : {Argument::kRotatedQuery, Argument::kCos, Argument::kSin}) {
      arguments.pointer(unused) = query;
    }
  }
  if (splits == 1) {  // not read
    arguments.pointer(Argument::kPartialOutput) = given.output;
    arguments.pointer(Argument::kPartialState) = given.output;
  }
  return arguments;
}

void check_pointers(const Arguments& arguments) {
  for (std::size_t i = 0; i < kNumPointers; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(arguments.pointers[i]);
    if (address != 0 && address % kAlign == 0) continue;
    throw ExecutorError("attention got the pointer " + std::to_string(address) + " for " +
                        std::string(argument_name(static_cast<Argument>(i))) + ", expected a multiple of 16");
  }
}

}  // namespace

AttentionKernels::AttentionKernels(const CudaDriver& driver, const AttentionFields& fields)
    : driver_(driver), fields_(fields) {
  const KernelBundle bundle = parse_kernel_bundle(*fields_.kernels);
  constants_ = launch_constants(fields_, bundle);
  try {
    for (std::size_t i = 0; i < kernels_.size(); ++i) load(bundle.kernel(roles()[i].role), kernels_[i]);
  } catch (...) {
    unload();
    throw;
  }
}

AttentionKernels::~AttentionKernels() { unload(); }

void AttentionKernels::load(const KernelImage& image, Kernel& kernel) {
  const std::string role(image.role), entry(image.entry);
  // In the bundle a cubin lies at any address; the allocator aligns the copy.
  const std::vector<std::byte> cubin(image.cubin.begin(), image.cubin.end());
  driver_.check(driver_.load_module(&kernel.module, cubin.data()),
                ("loading the kernel " + role + " for SM " + std::to_string(fields_.sm)).c_str());
  driver_.check(driver_.get_function(&kernel.function, kernel.module, entry.c_str()),
                ("finding " + entry + " in the kernel " + role).c_str());
  if (image.shared_bytes > kSharedWithoutAttribute) {
    driver_.check(
        driver_.set_function_attribute(kernel.function, CudaDriver::kMaxDynamicSharedSizeBytes,
                                       static_cast<int>(image.shared_bytes)),
        ("giving the kernel " + role + " " + std::to_string(image.shared_bytes) + " bytes of shared memory").c_str());
  }
  kernel.threads = kWarp * image.num_warps;
  kernel.shared_bytes = image.shared_bytes;
}

// Errors are ignored: at the end of a process the context may be gone, and its modules with it.
void AttentionKernels::unload() {
  for (Kernel& kernel : kernels_) {
    if (kernel.module != nullptr) driver_.unload_module(kernel.module);
    kernel = {};
  }
}

void AttentionKernels::launch(const StepShape& step, const StepPointers& pointers, CudaDriver::Stream stream) const {
  if (step.tokens < 1 || step.seqs < 1 || step.max_blocks < 1) {
    throw ExecutorError("attention got a step of " + std::to_string(step.tokens) + " tokens, " +
                        std::to_string(step.seqs) + " sequences and " + std::to_string(step.max_blocks) +
                        " blocks, expected at least 1 of each");
  }
  const std::int32_t splits = split_count(fields_, constants_.split, step);
  Arguments arguments = arguments_of(fields_, step, splits, pointers, workspace_layout(fields_, step.tokens));
  check_pointers(arguments);
  const std::array<Grid, 3> grids = launch_grids(constants_, step, splits);
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const RoleSpec& spec = roles()[i];
    if (splits == 1 && spec.role == "combine_splits") continue;
    std::array<void*, kNumArguments + 2> parameters{};
    std::size_t count = 0;
    for (const Argument argument : spec.parameters) parameters[count++] = arguments.address(argument);
    void* no_scratch = nullptr;  // which Triton's compiler adds as two more parameters
    parameters[count++] = &no_scratch;
    parameters[count++] = &no_scratch;
    const Kernel& kernel = kernels_[i];
    const int result = driver_.launch_kernel(kernel.function, grids[i].x, grids[i].y, grids[i].z, kernel.threads, 1, 1,
                                             kernel.shared_bytes, stream, parameters.data(), nullptr);
    if (result != 0) driver_.check(result, ("launching the kernel " + std::string(spec.role)).c_str());
  }
}

std::shared_ptr<const AttentionKernels> shared_kernels(const CudaDriver& driver, const AttentionFields& fields) {
  struct Loaded {
    CudaDriver::Context context;
    AttentionFields fields;
    std::weak_ptr<const AttentionKernels> kernels;
  };
  static std::mutex mutex;
  static std::vector<Loaded> all;

  CudaDriver::Context context = nullptr;
  driver.check(driver.get_current_context(&context), "asking for the CUDA context");
  if (context == nullptr) throw ExecutorError("attention kernels cannot be loaded: this thread has no CUDA context");
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const Loaded& loaded) { return loaded.kernels.expired(); });
  for (const Loaded& loaded : all) {
    if (loaded.context != context || !same_kernels(loaded.fields, fields)) continue;
    if (auto kernels = loaded.kernels.lock()) return kernels;
  }
  auto kernels = std::make_shared<const AttentionKernels>(driver, fields);
  all.push_back({context, fields, kernels});
  return kernels;
}

}  // namespace trtc::plugins
