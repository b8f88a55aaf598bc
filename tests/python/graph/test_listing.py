from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir

from tests.python.graph.graphs import toy_graph
from trtc.graph.listing import format_listing, graph_listing, save_onnx
from trtc.graph.verify import verify


def test_listing_has_a_row_per_node_with_types_and_attributes() -> None:
    rows = graph_listing(toy_graph())
    assert [row["name"] for row in rows][:3] == ["embed", "layers.0.k", "layers.0.attention"]
    attention = rows[2]
    assert attention["op"] == "trtc.PagedAttention"
    assert attention["attributes"]["num_heads"] == 2
    assert attention["inputs"][4] == {"name": "query_start", "type": "int32[seqs + 1]"}
    assert attention["outputs"][0]["type"] == "float[tokens, 8]"


def test_text_listing_has_a_line_per_node() -> None:
    lines = format_listing(toy_graph()).splitlines()
    assert " ".join(lines[-1].split()) == "lm_head Gemm(wanted_rows, table) {transB=1} -> float[logit_rows, 11]"


def test_saved_onnx_passes_the_checker_and_reads_back_verified(tmp_path: Path) -> None:
    path = tmp_path / "toy.onnx"
    save_onnx(toy_graph(), path)
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    assert {(entry.domain, entry.version) for entry in proto.opset_import} == {("", 24), ("trtc", 1)}
    verify(ir.load(path), "reload")
