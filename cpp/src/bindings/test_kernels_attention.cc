#include "bindings/test_arrays.h"

namespace trtc::bindings {
namespace {

namespace py = pybind11;
using kernels::KernelTable;

// float32 or (as uint16) bfloat16 [blocks, 2, kv_heads, block_size, head_dim].
kernels::KvPool pool_of(const py::array& pool) {
  if (pool.ndim() != 5) throw std::invalid_argument("expected a pool [blocks, 2, kv_heads, block_size, head_dim]");
  const bool f32 = pool.dtype().is(py::dtype::of<float>());
  if (!f32 && !pool.dtype().is(py::dtype::of<std::uint16_t>())) throw std::invalid_argument("pool has another dtype");
  return {.data = const_cast<void*>(pool.data()),
          .dtype = f32 ? kernels::KvDtype::kF32 : kernels::KvDtype::kBf16,
          .kv_heads = static_cast<int>(pool.shape(2)),
          .block_size = static_cast<int>(pool.shape(3)),
          .head_dim = static_cast<int>(pool.shape(4))};
}

kernels::RaggedRows ragged_of(const py::array& query_start, const py::array& context_lens,
                              const py::array& block_table) {
  const auto table = rows_of<std::int32_t>(block_table);
  return {.seqs = table.rows,
          .query_start = rows_of<std::int32_t>(query_start).data,
          .context_lens = rows_of<std::int32_t>(context_lens).data,
          .block_table = table.data,
          .max_blocks = table.stride};
}

}  // namespace

void bind_test_attention(py::module_& module) {
  module.def(
      "kv_write",
      [](const std::string& isa, const py::array& key, const py::array& value, const py::array& pool,
         const py::array& query_start, const py::array& context_lens, const py::array& block_table, int threads) {
        const auto keys = rows_of<float>(key), values = rows_of<float>(value);
        const kernels::KvWriteArgs args{.ragged = ragged_of(query_start, context_lens, block_table),
                                        .pool = pool_of(pool),
                                        .key = keys.data,
                                        .key_stride = keys.stride,
                                        .value = values.data,
                                        .value_stride = values.stride};
        run_kernel(isa, threads, &KernelTable::kv_write, args);
      },
      py::arg("isa"), py::arg("key"), py::arg("value"), py::arg("pool"), py::arg("query_start"),
      py::arg("context_lens"), py::arg("block_table"), py::kw_only(), py::arg("threads") = 1);
  module.def(
      "paged_attention",
      [](const std::string& isa, const py::array& query, const py::array& pool, const py::array& query_start,
         const py::array& context_lens, const py::array& block_table, const py::array& y, float scale, int window,
         float softcap, int threads) {
        const auto queries = rows_of<float>(query), out = rows_of<float>(y);
        const kernels::KvPool kv = pool_of(pool);
        const kernels::PagedAttentionArgs args{.ragged = ragged_of(query_start, context_lens, block_table),
                                               .pool = kv,
                                               .heads = static_cast<int>(queries.cols / kv.head_dim),
                                               .scale = scale,
                                               .window = window,
                                               .softcap = softcap,
                                               .query = queries.data,
                                               .query_stride = queries.stride,
                                               .y = out.data,
                                               .y_stride = out.stride};
        run_kernel(isa, threads, &KernelTable::paged_attention, args);
      },
      py::arg("isa"), py::arg("query"), py::arg("pool"), py::arg("query_start"), py::arg("context_lens"),
      py::arg("block_table"), py::arg("y"), py::kw_only(), py::arg("scale"), py::arg("window") = 0,
      py::arg("softcap") = 0.0f, py::arg("threads") = 1);
}

}  // namespace trtc::bindings
