"""``TensorRtTarget``: a TensorRT plan per rank, attention as the plugin trtc::PagedAttention with its own kernels."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from plugins.kernels.launch import workspace_rows
from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.plan import ModelFacts
from trtc.engine.tensorrt_facts import TensorRtFacts
from trtc.errors import BuildError
from trtc.targets.base import Artifact, Progress, max_logit_rows
from trtc.targets.tensorrt import kernel_bundle, plugin
from trtc.targets.tensorrt.attention import AttentionLayer, attention_layers
from trtc.targets.tensorrt.capabilities import check_settings
from trtc.targets.tensorrt.child import build_in_child
from trtc.targets.tensorrt.flavour import FLAVOURS, Flavour
from trtc.targets.tensorrt.job import WEIGHTS, Job, save_job
from trtc.targets.tensorrt.kernels import Compile, compile_layers
from trtc.targets.tensorrt.profiles import Limits
from trtc.targets.tensorrt.weight_file import ATTENTION, MLP, SMALL, VOCABULARY, StoredWeight, write_weights

_ELEMENT_BYTES = 2  # of both dtypes
_GROUPS = (VOCABULARY, SMALL, ATTENTION, MLP)


class TensorRtTarget:
    """See :class:`trtc.targets.base.Target`. ``compile_bundle`` makes the attention kernels of a shape and SM."""

    stage = "build plan"

    def __init__(self, name: str, compile_bundle: Compile | None = None) -> None:
        self.name = name
        self._compile = compile_bundle or kernel_bundle.compile_bundle

    @property
    def flavour(self) -> Flavour:
        return FLAVOURS[self.name]

    def check(self, config: BuildConfig) -> None:
        """Raises ConfigError for a setting this target cannot have, BuildError when its TensorRT is not installed."""
        check_settings(config)
        self.flavour.require()

    def lower(
        self,
        model: ir.Model,
        model_config: ModelConfig,
        config: BuildConfig,
        rank_path: Path,
        progress: Progress | None = None,
    ) -> Artifact:
        """Compile the kernels, write the weights for the building process, and let it write the plan.

        Raises BuildError, CheckpointError, OSError.
        """
        assert config.sm is not None
        layers = attention_layers(model, config.tokens_per_block, config.dtype)
        _check_layers(layers, model_config.num_layers)
        limits = _limits(config, model_config)
        bundles, kernels = compile_layers(layers, config.sm, self._compile)
        rows = max(workspace_rows(layer.shape, limits.max_num_tokens, limits.max_blocks) for layer in layers)
        with tempfile.TemporaryDirectory(dir=rank_path.parent, prefix=".plan-") as scratch:
            folder = Path(scratch)
            weights = write_weights(model, config.dtype, folder / WEIGHTS, progress)
            job = Job(self.name, config.sm, config.dtype, limits, rank_path, tuple(weights), bundles, rows)
            save_job(job, model, folder)
            built = build_in_child(folder, self.flavour, progress, self.stage)
        facts = TensorRtFacts(
            **dict(built.facts),
            sm=config.sm,
            plugin=f"{plugin.NAMESPACE}::{plugin.NAME} version {plugin.VERSION}",
            plugin_layers=len(layers),
            kernels=kernels,
        )
        artifact = _artifact(rank_path, facts, _model_facts(model_config, limits, layers), weights)
        return replace(artifact, child_peak_rss_bytes=built.peak_rss_bytes)


def _limits(config: BuildConfig, model_config: ModelConfig) -> Limits:
    return Limits(
        max_batch_size=config.max_batch_size,
        max_num_tokens=config.max_num_tokens,
        max_seq_len=config.max_seq_len or model_config.max_position_embeddings,
        max_logit_rows=max_logit_rows(config, model_config.vocab_size),
        tokens_per_block=config.tokens_per_block,
    )


def _check_layers(layers: list[AttentionLayer], count: int) -> None:
    found = sorted(layer.index for layer in layers)
    if found != list(range(count)):
        raise BuildError(f"the graph attends in layers {found}, expected 0 to {count - 1}")


def _model_facts(model_config: ModelConfig, limits: Limits, layers: list[AttentionLayer]) -> ModelFacts:
    shapes = [layer.shape for layer in layers]
    elements = sum(2 * shape.num_kv_heads * shape.head_dim * shape.block_size for shape in shapes)
    return ModelFacts(
        vocab_size=model_config.vocab_size,
        num_layers=model_config.num_layers,
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        max_logit_rows=limits.max_logit_rows,
        tokens_per_block=limits.tokens_per_block,
        kv_bytes_per_block=elements * _ELEMENT_BYTES,
        arena_bytes=0,  # TensorRT decides when it loads the plan
    )


def _artifact(path: Path, facts: TensorRtFacts, model: ModelFacts, weights: list[StoredWeight]) -> Artifact:
    groups = {name: [weight for weight in weights if weight.group == name] for name in _GROUPS}
    groups = {name: members for name, members in groups.items() if members}
    return Artifact(
        path=path,
        bytes=path.stat().st_size,
        engine_hash=facts.plan_hash,
        facts=model,
        required_isa=f"sm_{facts.sm}",
        weight_bytes=sum(weight.bytes for weight in weights),
        arena_bytes_without_reuse=0,
        weight_bytes_by_group={name: sum(weight.bytes for weight in members) for name, members in groups.items()},
        precision={name: _precision(members) for name, members in groups.items()},
        tensorrt=facts,
    )


def _precision(weights: list[StoredWeight]) -> str:
    """The types of the matrices; scales of integers go without saying."""
    integers = {weight.name.removesuffix(".q") for weight in weights if weight.dtype.startswith("int")}
    dtypes = Counter(weight.dtype for weight in weights if weight.name.removesuffix(".scale") not in integers)
    return ", ".join(dtypes)
