"""``trtc inspect``: what is in an engine directory, and whether this machine can run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtc.cli.tensorrt_tables import needed_gpu, tensorrt_tables
from trtc.cli.terminal import command, human_bytes, pairs_table, print_json, stage_progress, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from trtc.engine.manifest import Manifest
    from trtc.engine.plan import Plan
    from trtc.engine.reader import Engine


@command
def inspect(
    engine: Annotated[Path, typer.Argument(metavar="ENGINE", help="Engine directory.", show_default=False)],
    graph: Annotated[bool, typer.Option("--graph", help="List the kernel calls of a step.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the hash of every weight.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what ENGINE holds: model, precision, memory, limits, provenance, hashes."""
    from trtc.engine.reader import open_engine
    from trtc.errors import ConfigError

    opened = open_engine(engine)
    if graph and opened.manifest.tensorrt is not None:
        raise ConfigError("--graph lists kernel calls of CPU engines; those of this engine are TensorRT's to choose")
    if verify:
        with stage_progress(not as_json) as show:
            opened.verify_weights(None if show is None else lambda done, total: show("verify weights", done, total))
    if as_json:
        print_json(_as_json(opened, graph, verify))
        return
    for table in _tables(opened, verify):
        stdout().print(table)
        stdout().print()
    if graph:
        for plan in opened.plans:
            stdout().print(_call_listing(plan), markup=False, soft_wrap=True)


def _tables(engine: Engine, verified: bool) -> list[Table]:
    manifest = engine.manifest
    return [
        pairs_table("Model", _model_rows(manifest)),
        pairs_table("Precision", list(manifest.precision.items())),
        pairs_table("Memory", _memory_rows(manifest)),
        pairs_table("Limits", _limit_rows(manifest)),
        pairs_table("Target", _target_rows(engine)),
        *([] if manifest.tensorrt is None else tensorrt_tables(manifest.tensorrt)),
        pairs_table("Provenance", _provenance_rows(manifest)),
        pairs_table("Hashes" + (", weights verified" if verified else ""), _hash_rows(manifest)),
    ]


def _model_rows(manifest: Manifest) -> list[tuple[str, str]]:
    model = manifest.model
    heads = f"{model.num_heads} of {model.head_dim} channels, {model.num_kv_heads} for keys and values"
    windows = sorted({window for window in model.layer_windows if window is not None})
    return [
        ("type", model.model_type),
        ("layers", str(model.num_layers)),
        ("hidden", f"{model.hidden_size}, MLP {model.intermediate_size}"),
        ("heads", heads),
        *([("window", ", ".join(f"{window} tokens" for window in windows))] if windows else []),
        ("vocabulary", f"{model.vocab_size}" + (", embedding tied to logits" if model.tie_word_embeddings else "")),
        ("end tokens", ", ".join(map(str, manifest.generation.eos_token_ids)) or "none"),
    ]


def _memory_rows(manifest: Manifest) -> list[tuple[str, str]]:
    memory, config = manifest.memory, manifest.build_config
    sequence = memory.kv_bytes_per_token * manifest.limits.max_seq_len
    return [
        ("weights", human_bytes(memory.weight_bytes)),
        *[(f"  {group}", human_bytes(size)) for group, size in memory.weight_bytes_by_group.items()],
        ("activations", _activations(manifest)),
        ("logits", human_bytes(memory.logits_bytes)),
        ("KV cache", f"{memory.kv_bytes_per_token} bytes per token, {config.resolved_kv_dtype}"),
        ("", f"{human_bytes(sequence)} for one sequence of full length"),
    ]


def _activations(manifest: Manifest) -> str:
    if manifest.tensorrt is not None:
        return "TensorRT decides when it loads the plan"
    memory = manifest.memory
    return f"{human_bytes(memory.arena_bytes)} ({human_bytes(memory.arena_bytes_without_reuse)} unshared)"


def _limit_rows(manifest: Manifest) -> list[tuple[str, str]]:
    limits = manifest.limits
    return [
        ("sequence", f"{limits.max_seq_len} tokens, prompt and output"),
        ("batch", f"{limits.max_batch_size} sequences per step"),
        ("step", f"{limits.max_num_tokens} tokens"),
        ("logits", f"{limits.max_logit_rows} rows per step"),
        ("KV block", f"{limits.tokens_per_block} tokens"),
    ]


def _target_rows(engine: Engine) -> list[tuple[str, str]]:
    manifest = engine.manifest
    needs = f"{manifest.required_isa} or better" if manifest.tensorrt is None else needed_gpu(manifest.tensorrt)
    return [("target", manifest.target), ("needs", needs), ("this machine", _this_machine(engine))]


def _this_machine(engine: Engine) -> str:
    from trtc import _core
    from trtc.errors import EngineError

    if not engine.runs_here:
        return "cannot run it: this build of trtc has no TensorRT backend"
    if engine.manifest.tensorrt is not None:
        return f"runs it where such a GPU is: this build of trtc has the {engine.manifest.tensorrt.flavour} runtime"
    try:
        return f"runs it with {_core.selected_isa()} kernels"
    except EngineError as error:  # TRTC_CPU_ISA asks for what is not there
        return str(error)


def _provenance_rows(manifest: Manifest) -> list[tuple[str, str]]:
    made = manifest.provenance
    return [
        ("source", made.source),
        ("fingerprint", made.fingerprint),
        ("built", f"{made.created} by trtc {made.trtc_version}"),
    ]


def _hash_rows(manifest: Manifest) -> list[tuple[str, str]]:
    ranks = [(rank.name, f"{rank.engine_hash}  {human_bytes(rank.bytes)}") for rank in manifest.ranks]
    return ranks + [(file.name, f"{file.sha256}  {human_bytes(file.bytes)}") for file in manifest.files]


def _call_rows(plan: Plan) -> list[dict[str, Any]]:
    """The kernel calls of one step, operands and parameters by name."""
    from trtc.engine.operators import OP_SPECS
    from trtc.engine.plan import describe_operand

    rows = []
    for call in plan.calls:
        spec = OP_SPECS[call.op]
        operands = {
            slot.name: described
            for slot, operand in zip(spec.slots, call.operands, strict=True)
            if (described := describe_operand(operand, plan)) != "-"
        }
        parameters = dict(zip((*spec.ints, *spec.floats), (*call.ints, *call.floats), strict=True))
        rows.append(
            {
                "op": call.op.name.lower(),
                "rows": call.rows.name.lower(),
                "name": call.name,
                "operands": operands,
                "parameters": parameters,
            }
        )
    return rows


def _call_listing(plan: Plan) -> str:
    """One line for each call, however long: ``index  op  rows  name  operand=...  parameter=...``."""
    lines = [("", "op", "rows", "name", "operands and parameters")]
    for index, row in enumerate(_call_rows(plan)):
        operands = [f"{slot}={operand}" for slot, operand in row["operands"].items()]
        parameters = [f"{name}={value:.6g}" for name, value in row["parameters"].items()]
        lines.append((str(index), row["op"], row["rows"], row["name"], "  ".join((*operands, *parameters))))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    padded = ["  ".join((*map(str.ljust, cells, widths), cells[-1])) for cells in lines]
    return "\n".join(("Kernel calls of a step", *padded))


def _as_json(engine: Engine, graph: bool, verified: bool) -> dict[str, Any]:
    values = {
        **engine.manifest.model_dump(mode="json"),
        "this_machine": _this_machine(engine),
        "weights_verified": verified,
    }
    if graph:
        values["kernel_calls"] = [_call_rows(plan) for plan in engine.plans]
    return values
