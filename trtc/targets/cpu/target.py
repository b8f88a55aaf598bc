"""``CpuTarget``: packed weights and a kernel-call plan that any x86-64 machine, or portable C++, runs."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from trtc.checkpoint.model_config import ModelConfig
from trtc.config import BuildConfig
from trtc.engine.format import KvDtype, Rows, WeightFormat
from trtc.engine.operators import Op
from trtc.engine.plan import KvLayer, ModelFacts, Plan, WeightEntry, encode_plan, plan_bytes
from trtc.errors import BuildError, ConfigError
from trtc.targets.base import PACK_WEIGHTS, Artifact, Progress, max_logit_rows
from trtc.targets.cpu.lower import lower_graph
from trtc.targets.cpu.lowering import LoweringOptions
from trtc.targets.cpu.pack_weights import layout_weights, write_weights
from trtc.targets.cpu.program import Program

_ELEMENT_BYTES = {KvDtype.F32: 4, KvDtype.BF16: 2}


class CpuTarget:
    """See :class:`trtc.targets.base.Target`."""

    name = "cpu"
    stage = PACK_WEIGHTS

    def check(self, config: BuildConfig) -> None:
        """Raises ConfigError for a setting that is another target's."""
        if config.sm is not None:
            raise ConfigError(f"sm is {config.sm}, a GPU architecture: target cpu has none; leave it out")
        for name in ("dtype", "kv_cache_dtype"):
            if getattr(config, name) == "float16":
                raise ConfigError(f"target cpu has no {name} float16; choose float32 or bfloat16")
        bits = config.quant.quant_algo.weight_bits
        fixed = {"has_zero_point": bits != 4, "quantize_vocabulary": bits is None, "group_size": bits is None}
        for name, free in fixed.items():
            if not free and not getattr(config.quant, name):
                raise ConfigError(
                    f"target cpu has no quantization with {name} {getattr(config.quant, name)}; leave it out"
                )

    def lower(
        self,
        model: ir.Model,
        model_config: ModelConfig,
        config: BuildConfig,
        rank_path: Path,
        progress: Progress | None = None,
    ) -> Artifact:
        """Lower the graph, then stream its weights and write the plan. Raises BuildError, CheckpointError, OSError."""
        max_seq_len = config.max_seq_len or model_config.max_position_embeddings
        program = lower_graph(model, _options(config, max_seq_len))
        logit_rows = max_logit_rows(config, model_config.vocab_size)
        max_rows = {Rows.TOKENS: config.max_num_tokens, Rows.LOGIT_ROWS: logit_rows}
        calls, memory = program.place(max_rows)
        kv_layers = _kv_layers(program, model_config.num_layers)
        facts = ModelFacts(
            vocab_size=model_config.vocab_size,
            num_layers=model_config.num_layers,
            max_batch_size=config.max_batch_size,
            max_num_tokens=config.max_num_tokens,
            max_seq_len=max_seq_len,
            max_logit_rows=logit_rows,
            tokens_per_block=config.tokens_per_block,
            kv_bytes_per_block=sum(_kv_bytes(layer, config.tokens_per_block) for layer in kv_layers),
            arena_bytes=memory.arena_bytes,
        )
        entries = tuple(layout_weights(program.weights, 0))
        plan = Plan(facts, kv_layers, entries, calls)
        plan = _write_rank_file(rank_path, plan, program, progress or _ignore)
        groups = _layer_groups(plan)
        return Artifact(
            path=rank_path,
            bytes=rank_path.stat().st_size,
            engine_hash=plan.engine_hash,
            facts=facts,
            required_isa="portable",
            weight_bytes=plan.weight_bytes,
            arena_bytes_without_reuse=memory.bytes_without_reuse,
            weight_bytes_by_group={group: sum(w.size for w in members) for group, members in groups.items()},
            precision={group: _precision(members) for group, members in groups.items()},
        )


def _options(config: BuildConfig, max_seq_len: int) -> LoweringOptions:
    matrix_format = WeightFormat.PACKED_F32 if config.dtype == "float32" else WeightFormat.PACKED_BF16
    kv_dtype = KvDtype.F32 if config.resolved_kv_dtype == "float32" else KvDtype.BF16
    return LoweringOptions(matrix_format, kv_dtype, max_seq_len)


def _kv_layers(program: Program, num_layers: int) -> tuple[KvLayer, ...]:
    missing = [layer for layer in range(num_layers) if layer not in program.kv_layers]
    if missing or len(program.kv_layers) != num_layers:
        raise BuildError(f"the graph attends in layers {sorted(program.kv_layers)}, expected 0 to {num_layers - 1}")
    return tuple(program.kv_layers[layer] for layer in range(num_layers))


def _kv_bytes(layer: KvLayer, block_size: int) -> int:
    return 2 * layer.kv_heads * layer.head_dim * block_size * _ELEMENT_BYTES[layer.dtype]


def _write_rank_file(path: Path, plan: Plan, program: Program, progress: Progress) -> Plan:
    """Weights first, since the plan holds their hashes; then the plan in the space left before them."""
    start = plan_bytes(plan)

    def packed(_: str, done: int, total: int) -> None:
        progress(PACK_WEIGHTS, done, total)

    entries = [replace(entry, offset=entry.offset + start) for entry in plan.weights]
    with path.open("wb") as file:
        descriptor = file.fileno()
        _reserve(descriptor, max((entry.offset + entry.size for entry in entries), default=start))
        finished = write_weights(
            descriptor, program.weights, entries, lambda _, done, total: progress(PACK_WEIGHTS, done, total)
        )
        plan = replace(plan, weights=tuple(finished))
        data = encode_plan(plan)
        assert len(data) == start, "the plan's size changed while packing"
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return replace(plan, engine_hash=_engine_hash(data))


def _reserve(descriptor: int, size: int) -> None:
    """Claim the disk space now, so that a full disk fails at once and not after minutes of packing."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(descriptor, size)


def _engine_hash(data: bytes) -> str:
    from trtc.engine.format import HEADER

    digest: bytes = HEADER.unpack(data)["engine_hash"]
    return digest.hex()


def _layer_groups(plan: Plan) -> dict[str, list[WeightEntry]]:
    """Weights by what people call them, in the order of the step."""
    logits = {call.operands[3].index for call in plan.calls if call.op is Op.LINEAR and call.rows is Rows.LOGIT_ROWS}
    tables = {call.operands[1].index for call in plan.calls if call.op is Op.EMBEDDING}
    groups: dict[str, list[WeightEntry]] = {}
    for index, weight in enumerate(plan.weights):
        if index in logits | tables:
            group = "embedding and logits"
        elif weight.format is WeightFormat.ROWS_F32:
            group = "norms, biases and tables"
        else:
            group = "attention" if "attn" in weight.name else "mlp"
        groups.setdefault(group, []).append(weight)
    return groups


def _precision(weights: list[WeightEntry]) -> str:
    names = {
        WeightFormat.PACKED_F32: "float32",
        WeightFormat.PACKED_BF16: "bfloat16",
        WeightFormat.PACKED_I8: "int8",
        WeightFormat.PACKED_I4: "int4",
        WeightFormat.ROWS_F32: "float32",
    }
    counts = Counter(names[w.format] + (f" (groups of {w.group})" if w.group else "") for w in weights)
    return ", ".join(counts)


def _ignore(stage: str, done: int, total: int) -> None:
    pass
