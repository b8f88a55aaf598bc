"""Phi-3, 3.5 and 4 dense (transformers' Phi3ForCausalLM): the Llama layer with fused QKV and gate/up matrices,
partial rotary and longrope. Long or short factors are chosen once per engine, see ``trtc.blocks.rope.rope_cos_sin``.
"""

from __future__ import annotations

import onnx_ir as ir

from trtc.blocks.attention import fused_qkv
from trtc.blocks.decoder import llama_family
from trtc.blocks.mlp import fused_gated_mlp
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder


def build(g: GraphBuilder, cfg: ModelConfig, w: WeightMap) -> ir.Model:
    return llama_family(g, cfg, w, project=fused_qkv, mlp=fused_gated_mlp)
