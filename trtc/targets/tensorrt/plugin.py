"""The build half of the plugin trtc::PagedAttention: its fields, its shapes and types, and what it serializes.

The run half is another class of the same name in another language: a GPU machine loads it, and it reads the same
fields. Inputs, with T the engine's dtype:

    query                 T [tokens, num_heads * head_dim], not yet rotated
    key, value            T [tokens, num_kv_heads * head_dim], not yet rotated
    kv_cache              T [blocks, 2, num_kv_heads, block_size, head_dim]
    position_ids          int32 [tokens]
    query_start           int32 [seqs + 1]
    context_lens          int32 [seqs]
    block_table           int32 [seqs, max_blocks]
    cos, sin              float32 [positions, rotary_dim / 2], absent where nothing rotates

Outputs: the attended rows, as query; the KV cache, in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plugins.kernels.launch import ALIGNMENT
from plugins.kernels.shape import AttentionShape
from trtc.targets.tensorrt.flavour import Module

NAME, VERSION, NAMESPACE = "PagedAttention", "1", "trtc"
KV_CACHE_INPUT = 3
KV_CACHE_OUTPUT = 1
ROTATED_INPUTS = 10  # eight without rotation

_INTS = (
    "layer",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "rotary_dim",
    "window",
    "block_size",
    "compute_dtype",
    "cache_dtype",
    "sm",
    "workspace_rows",
)
_FLOATS = ("scale", "softcap")
_KERNELS = "kernels"
FIELDS = (*_INTS, *_FLOATS, _KERNELS)
_COMPUTE_DTYPES = ("float16", "bfloat16")  # by their numbers in the field
_CACHE_DTYPES = ("auto", "float8_e4m3")


@dataclass(frozen=True)
class PluginFields:
    """What a plugin layer is made from and what the engine stores of it.

    ``kernels`` is a KernelBundle's bytes. ``workspace_rows`` rows, each as often as its context has splits, may be
    split among programs. The workspace holds, one after the other, each aligned to 256 bytes: with rotation,
    rotated_query T [tokens, num_heads * head_dim]; partial_output float32 [workspace_rows, num_heads, head_dim];
    partial_state float32 [workspace_rows, num_heads, 2].
    """

    layer: int
    shape: AttentionShape
    sm: int
    workspace_rows: int
    kernels: bytes

    def workspace_bytes(self, max_tokens: int) -> int:
        """For steps of at most ``max_tokens``."""
        shape = self.shape
        rows, row = self.workspace_rows * shape.num_heads, shape.num_heads * shape.head_dim
        parts = [max_tokens * row * 2 if shape.rotary_dim else 0, rows * shape.head_dim * 4, rows * 2 * 4]
        return sum(-(-part // ALIGNMENT) * ALIGNMENT for part in parts)

    def values(self) -> dict[str, int | float | bytes]:
        """By name, in the order of ``FIELDS``."""
        shape = self.shape
        numbers: dict[str, int | float | bytes] = {
            "compute_dtype": _COMPUTE_DTYPES.index(shape.compute_dtype),
            "cache_dtype": _CACHE_DTYPES.index(shape.cache_dtype),
            "layer": self.layer,
            "sm": self.sm,
            "workspace_rows": self.workspace_rows,
            _KERNELS: self.kernels,
        }
        return {name: numbers[name] if name in numbers else getattr(shape, name) for name in FIELDS}

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> PluginFields:
        """Raises ValueError naming a field that is missing or out of range."""
        missing = [name for name in FIELDS if name not in values]
        if missing:
            raise ValueError(f"{NAMESPACE}::{NAME} lacks the field {missing[0]}")
        ints = {name: int(values[name]) for name in _INTS}
        for name, known in (("compute_dtype", _COMPUTE_DTYPES), ("cache_dtype", _CACHE_DTYPES)):
            if not 0 <= ints[name] < len(known):
                raise ValueError(f"{NAMESPACE}::{NAME} has {name} {ints[name]}, expected 0 to {len(known) - 1}")
        sizes = ("num_heads", "num_kv_heads", "head_dim", "block_size", "rotary_dim", "window")
        shape = AttentionShape(
            **{name: ints[name] for name in sizes},
            scale=float(values["scale"]),
            softcap=float(values["softcap"]),
            compute_dtype=_COMPUTE_DTYPES[ints["compute_dtype"]],
            cache_dtype=_CACHE_DTYPES[ints["cache_dtype"]],
        )
        return PluginFields(ints["layer"], shape, ints["sm"], ints["workspace_rows"], bytes(values[_KERNELS]))


def register(trt: Module) -> Any:
    """Make the creator known to TensorRT and return it: it must live as long as plugins are made."""
    creator = make_creator(trt)
    registry = trt.get_plugin_registry()
    if not registry.register_creator(creator, NAMESPACE):
        raise RuntimeError(f"TensorRT did not register the plugin {NAMESPACE}::{NAME}")
    return creator


def make_creator(trt: Module) -> Any:
    """The creator of ``PagedAttention`` plugins; its base classes are TensorRT's, so it is made for one flavour."""
    plugin_class = _plugin_class(trt)

    class Creator(trt.IPluginCreatorV3One):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
            empty = [_field(trt, name, np.array([], _numpy_type(name))) for name in FIELDS]
            self.field_names = trt.PluginFieldCollection(empty)

        def create_plugin(self, _name: str, fields: Iterable[Any], _phase: Any) -> Any:
            return self.make(PluginFields.from_values({field.name: _value(field) for field in fields}))

        def make(self, fields: PluginFields) -> Any:
            return plugin_class(fields)

    return Creator()


def _plugin_class(trt: Module) -> Any:
    int32, float32 = trt.int32, trt.float32
    compute_types = {"float16": trt.float16, "bfloat16": trt.bfloat16}

    class PagedAttention(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime):  # type: ignore[misc]  # fmt: skip
        """TensorRT calls these; the names are its own."""

        def __init__(self, fields: PluginFields) -> None:
            for base in (trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime):
                base.__init__(self)
            self.plugin_name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
            self.num_outputs = 2
            self.fields = fields
            self._arrays = [_array(name, value) for name, value in fields.values().items()]  # TensorRT reads them later

        def get_capability_interface(self, _kind: Any) -> Any:
            return self

        def clone(self) -> Any:
            return PagedAttention(self.fields)

        def get_fields_to_serialize(self) -> Any:
            pairs = zip(FIELDS, self._arrays, strict=True)
            return trt.PluginFieldCollection([_field(trt, name, array) for name, array in pairs])

        def get_output_data_types(self, inputs: list[Any]) -> list[Any]:
            return [inputs[0], inputs[KV_CACHE_INPUT]]

        def get_output_shapes(self, inputs: list[Any], _shape_inputs: list[Any], _builder: Any) -> list[Any]:
            return [inputs[0], inputs[KV_CACHE_INPUT]]

        def supports_format_combination(self, position: int, tensors: list[Any], num_inputs: int) -> bool:
            described = tensors[position].desc
            return bool(
                described.format == trt.TensorFormat.LINEAR and described.type == self._type(position, num_inputs)
            )

        def _type(self, position: int, num_inputs: int) -> Any:
            compute = compute_types[self.fields.shape.compute_dtype]
            cache = compute if self.fields.shape.cache_dtype == "auto" else trt.fp8
            inputs = [compute, compute, compute, cache, int32, int32, int32, int32, float32, float32]
            return [*inputs[:num_inputs], compute, cache][position]

        def get_aliased_input(self, output: int) -> int:
            return KV_CACHE_INPUT if output == KV_CACHE_OUTPUT else -1

        def get_workspace_size(self, inputs: list[Any], _outputs: list[Any]) -> int:
            return self.fields.workspace_bytes(max_tokens=inputs[0].max[0])

        def configure_plugin(self, _inputs: list[Any], _outputs: list[Any]) -> None:
            pass

        def get_valid_tactics(self) -> list[int]:
            return []

        def set_tactic(self, _tactic: int) -> int:
            return 0

        def on_shape_change(self, _inputs: list[Any], _outputs: list[Any]) -> int:
            return 0

        def attach_to_context(self, _context: Any) -> Any:
            return self.clone()

        def enqueue(self, *_: Any) -> int:
            return 1  # only the run half can

    return PagedAttention


def _numpy_type(name: str) -> type[np.generic]:
    return np.int8 if name == _KERNELS else np.float32 if name in _FLOATS else np.int32


def _array(name: str, value: int | float | bytes) -> npt.NDArray[Any]:
    return np.frombuffer(value, np.int8) if isinstance(value, bytes) else np.array([value], _numpy_type(name))


def _field(trt: Module, name: str, array: npt.NDArray[Any]) -> Any:
    kinds = {
        np.int8: trt.PluginFieldType.CHAR,
        np.float32: trt.PluginFieldType.FLOAT32,
        np.int32: trt.PluginFieldType.INT32,
    }
    return trt.PluginField(name, array, kinds[_numpy_type(name)])


def _value(field: Any) -> Any:
    """One number, or the bytes of the kernels."""
    data = np.asarray(field.data)
    if field.name == _KERNELS:
        return data.view(np.uint8).tobytes()
    return data.reshape(-1)[0]
