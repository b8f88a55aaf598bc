"""Llama 1 to 3 and models of the same shape (transformers' LlamaForCausalLM): GQA, SwiGLU, RoPE with any scaling."""

from __future__ import annotations

import onnx_ir as ir

from trtc.blocks.decoder import llama_family
from trtc.checkpoint.model_config import ModelConfig
from trtc.checkpoint.weight_map import WeightMap
from trtc.graph.builder import GraphBuilder


def build(g: GraphBuilder, cfg: ModelConfig, w: WeightMap) -> ir.Model:
    return llama_family(g, cfg, w)
