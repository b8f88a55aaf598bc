"""GGUF tensor names to Hugging Face's, and how llama.cpp's layout differs, by architecture.

Mirrors llama.cpp's conversion scripts; transformers' ``modeling_gguf_pytorch_utils`` undoes the same changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")

_DECODER_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_DECODER_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_BLOCK = {
    **_DECODER_BLOCK,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GPT2_TOP = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
_GPT2_BLOCK = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


@dataclass(frozen=True)
class Architecture:
    """Names and layout of one value of ``general.architecture``."""

    top: dict[str, str]
    block: dict[str, str]
    layers: str = "model.layers"
    interleaved_heads: bool = False  # rows of attn_q and attn_k are permuted
    norms_plus_one: bool = False
    transposed: frozenset[str] = frozenset()  # leaves of Conv1D weights
    factor_tensors: frozenset[str] = frozenset()  # rotary factors, which belong in the config

    def hf_name(self, name: str) -> str | None:
        """Hugging Face's name of the GGUF tensor ``name``, or None when the architecture has no such tensor."""
        stem, dot, kind = name.rpartition(".")
        if not dot or kind not in ("weight", "bias"):
            return None
        match = _BLOCK.fullmatch(stem)
        if match is None:
            return f"{self.top[stem]}.{kind}" if stem in self.top else None
        leaf = self.block.get(match[2])
        return None if leaf is None else f"{self.layers}.{int(match[1])}.{leaf}.{kind}"


_DECODER = Architecture(_DECODER_TOP, _DECODER_BLOCK)

ARCHITECTURES = {
    "llama": Architecture(
        _DECODER_TOP, _DECODER_BLOCK, interleaved_heads=True, factor_tensors=frozenset({"rope_freqs.weight"})
    ),
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "gemma3": Architecture(_DECODER_TOP, _GEMMA3_BLOCK, norms_plus_one=True),
    "phi3": Architecture(
        _DECODER_TOP,
        {**_DECODER_BLOCK, "ffn_up": "mlp.gate_up_proj"},
        factor_tensors=frozenset({"rope_factors_long.weight", "rope_factors_short.weight"}),
    ),
    "gpt2": Architecture(
        _GPT2_TOP,
        _GPT2_BLOCK,
        layers="transformer.h",
        transposed=frozenset({"attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"}),
    ),
}
