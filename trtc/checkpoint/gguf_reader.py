"""A ``.gguf`` file as a checkpoint with Hugging Face's names, layouts and config fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtc.checkpoint.checkpoint import Checkpoint, fingerprint_of
from trtc.checkpoint.gguf_config import config_from_gguf
from trtc.checkpoint.gguf_file import GgufFile, GgufTensorInfo, read_gguf
from trtc.checkpoint.gguf_names import ARCHITECTURES, Architecture
from trtc.checkpoint.gguf_tensors import GgufTensor, MinusOne, UnpermutedRows, same_bytes
from trtc.checkpoint.gguf_tokenizer import GgufTokenizer
from trtc.checkpoint.tensor_handle import Array, TensorHandle, Transposed
from trtc.errors import CheckpointError


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file. Raises CheckpointError when it is damaged or its architecture or a tensor is not supported."""
    file = read_gguf(path)
    name = file.metadata.get("general.architecture")
    architecture = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if architecture is None:
        raise CheckpointError(
            f"{path}: architecture {name!r} is not supported; supported: {', '.join(sorted(ARCHITECTURES))}"
        )
    if file.metadata.get("split.count", 0) not in (0, 1):
        raise CheckpointError(f"{path} is one part of a split GGUF; join the parts with llama-gguf-split --merge")
    factors = _factors(file, architecture)
    names = frozenset(tensor.name for tensor in file.tensors)
    config = config_from_gguf(file.metadata, str(name), names, factors)
    tensors = {
        handle.name: handle
        for info in file.tensors
        if info.name not in architecture.factor_tensors
        for handle in [_handle(file, info, architecture, config)]
    }
    _tie_duplicate_head(tensors, config)
    header = file.mapping[: file.header_bytes].tobytes()
    return Checkpoint(
        path=path,
        source=str(file.metadata.get("general.name") or path.stem),
        config=config,
        tensors=tensors,
        fingerprint=fingerprint_of([b"gguf", json.dumps(config, sort_keys=True).encode(), header], [path]),
        tokenizer=GgufTokenizer(path, file.metadata),
        mappings=(file.mapping,),
    )


def _factors(file: GgufFile, architecture: Architecture) -> dict[str, Array]:
    return {
        info.name: GgufTensor(info.name, info, file.mapping).read()
        for info in file.tensors
        if info.name in architecture.factor_tensors
    }


def _handle(file: GgufFile, info: GgufTensorInfo, architecture: Architecture, config: dict[str, Any]) -> TensorHandle:
    hf_name = architecture.hf_name(info.name)
    if hf_name is None:
        raise CheckpointError(
            f"{file.path}: tensor {info.name} {list(info.shape)} is unknown in architecture "
            f"{file.metadata['general.architecture']}; use the Hugging Face checkpoint"
        )
    tensor = GgufTensor(hf_name, info, file.mapping)
    leaf = info.name.split(".", 2)[-1]
    if architecture.norms_plus_one and info.name.endswith("norm.weight"):
        return MinusOne(tensor)
    if leaf in architecture.transposed:
        return Transposed(tensor)
    if architecture.interleaved_heads and leaf.startswith(("attn_q.", "attn_k.")):
        heads = config["num_attention_heads" if leaf.startswith("attn_q.") else "num_key_value_heads"]
        if heads <= 0 or info.shape[0] % (2 * heads):
            raise CheckpointError(
                f"{file.path}: tensor {info.name} {list(info.shape)} does not divide into {heads} heads"
            )
        return UnpermutedRows(tensor, heads)
    return tensor


def _tie_duplicate_head(tensors: dict[str, TensorHandle], config: dict[str, Any]) -> None:
    """llama.cpp writes GPT-2's tied embedding a second time as the output matrix; hold it once."""
    if config["model_type"] != "gpt2" or "lm_head.weight" not in tensors:
        return
    if same_bytes(tensors["lm_head.weight"], tensors["transformer.wte.weight"]):
        del tensors["lm_head.weight"]
        config["tie_word_embeddings"] = True
