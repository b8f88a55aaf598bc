"""``trtc build``: checkpoint to engine."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trtc.cli.terminal import command, human_bytes, pairs_table, print_json, stage_progress, stdout

if TYPE_CHECKING:
    from trtc.build import BuildReport
    from trtc.config import BuildConfig

_MODEL = "What to build"
_PRECISION = "Precision"
_LIMITS = "Limits"
_DEBUG = "Looking inside"


@command
def build(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Hugging Face directory, .gguf file or hub id.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Engine directory to make.", rich_help_panel=_MODEL)],
    target: Annotated[
        Literal["cpu", "tensorrt-rtx", "tensorrt"], typer.Option(help="What runs the engine.", rich_help_panel=_MODEL)
    ] = "cpu",
    sm: Annotated[
        int | None,
        typer.Option(
            help="With a TensorRT target: the GPU's architecture, 89 for compute capability 8.9.",
            rich_help_panel=_MODEL,
            show_default=False,
        ),
    ] = None,
    tp_size: Annotated[int, typer.Option(min=1, help="Ranks that share the model.", rich_help_panel=_MODEL)] = 1,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"],
        typer.Option(help="Unquantized weights; on TensorRT also activations.", rich_help_panel=_PRECISION),
    ] = "bfloat16",
    kv_cache_dtype: Annotated[
        Literal["auto", "float32", "float16", "bfloat16"],
        typer.Option(help="auto: as --dtype.", rich_help_panel=_PRECISION),
    ] = "auto",
    quant: Annotated[
        Literal["none", "w8a16", "w8a8", "w4a16", "w4a8"],
        typer.Option(help="Bits of weights (w) and activations (a).", rich_help_panel=_PRECISION),
    ] = "none",
    group_size: Annotated[
        Literal["32", "64", "128"] | None,
        typer.Option(
            help="Input channels that share a scale; default 32, on TensorRT 64 for int4 and all for int8.",
            rich_help_panel=_PRECISION,
            show_default=False,
        ),
    ] = None,
    max_batch_size: Annotated[int, typer.Option(min=1, help="Sequences in one step.", rich_help_panel=_LIMITS)] = 16,
    max_num_tokens: Annotated[int, typer.Option(min=1, help="Tokens in one step.", rich_help_panel=_LIMITS)] = 512,
    max_seq_len: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prompt and output of a sequence, in tokens; default the model's, at most 8192.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    tokens_per_block: Annotated[
        Literal["16", "32", "64", "128"], typer.Option(help="Size of a KV cache block.", rich_help_panel=_LIMITS)
    ] = "32",
    dump_graph: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHASE",
            help="Save the graph after a phase as ONNX: recipe, fold, fuse, quantize or clean. Repeatable.",
            rich_help_panel=_DEBUG,
            show_default=False,
        ),
    ] = None,
    dump_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the graphs go; default beside the engine.", rich_help_panel=_DEBUG, show_default=False
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.", rich_help_panel=_DEBUG)] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, without progress.", rich_help_panel=_DEBUG)
    ] = False,
) -> None:
    """Compile MODEL into an engine directory.

    The engine holds weights, plan, tokenizer and chat template: it is all that running needs.
    """
    from trtc.config import BuildConfig

    config = BuildConfig(  # plain values: pydantic checks them
        **{
            "target": target,
            "sm": sm,
            "mapping": {"tp_size": tp_size},
            "dtype": dtype,
            "kv_cache_dtype": kv_cache_dtype,
            "quant": {"quant_algo": quant, **({"group_size": int(group_size)} if group_size else {})},
            "max_batch_size": max_batch_size,
            "max_num_tokens": max_num_tokens,
            "max_seq_len": max_seq_len,
            "tokens_per_block": int(tokens_per_block),
        }
    )
    report = _build(model, output, config, _dump_paths(output, dump_graph or [], dump_dir), quiet or as_json)
    if as_json:
        print_json(_as_json(report))
    elif not quiet:
        _print_report(report)


def _build(model: str, output: Path, config: BuildConfig, dumps: dict[str, Path], silent: bool) -> BuildReport:
    from trtc.build import build_engine

    with stage_progress(not silent) as progress:
        return build_engine(model, output, config, progress=progress, dump_graph=dumps)


def _dump_paths(output: Path, phases: list[str], directory: Path | None) -> dict[str, Path]:
    """Graph files carry the engine's name, so that dumps of several engines can lie side by side."""
    engine = output.absolute()
    return {phase: (directory or engine.parent) / f"{engine.name}.{phase}.onnx" for phase in phases}


def _print_report(report: BuildReport) -> None:
    rows = [
        ("engine", str(report.path)),
        ("size", f"{human_bytes(report.engine_bytes)}, of it weights {human_bytes(report.weight_bytes)}"),
        *([("activations", human_bytes(report.arena_bytes))] if report.arena_bytes else []),
        ("KV cache", f"{human_bytes(report.kv_bytes_per_token)} per token"),
        ("build memory", f"{human_bytes(report.peak_rss_bytes)} at its peak"),
        ("time", f"{sum(report.seconds.values()):.1f} s"),
    ]
    stdout().print(pairs_table("Built", rows))
    path = shlex.quote(str(report.path))
    if report.target == "cpu":
        how = "--chat" if (report.path / "chat_template.jinja").is_file() else "--prompt TEXT"
        then = f"Try it:  trtc run {path} {how}"
    else:
        then = f"Look at it:  trtc inspect {path}"
    stdout().print(f"\n{then}", markup=False, soft_wrap=True)


def _as_json(report: BuildReport) -> dict[str, Any]:
    return {**asdict(report), "path": str(report.path)}
