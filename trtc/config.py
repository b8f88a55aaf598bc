"""User-facing settings. They enter here, are checked here, and unknown keys are errors."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from trtc.errors import ConfigError, TrtcError


class Settings(BaseModel):
    """Frozen; unknown keys forbidden. Raises ``invalid`` naming the field that is wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    invalid: ClassVar[type[TrtcError]] = ConfigError

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise self.invalid(_describe(type(self).__name__, error)) from None


def _describe(owner: str, error: ValidationError) -> str:
    """One sentence per wrong field of ``owner``: its name, what was got and what was expected."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        field = str(detail["loc"][0]) if detail["loc"] else ""
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            message = "no such field; check the spelling, or it is not supported"
        elif detail["type"] != "value_error":
            message = f"got {detail['input']!r}; {message[0].lower()}{message[1:]}"
        found.setdefault(field, f"{owner}.{field}: {message}" if field else f"{owner}: {message}")
    return "; ".join(found.values())


class QuantAlgo(str, Enum):
    """What is stored (W) and what multiplies it (A). Names follow TensorRT-LLM.

    On the CPU target: ``W8A16``/``W4A16`` dequantize weights to float32 and multiply float32 activations;
    ``W8A8``/``W4A8`` quantize activations to int8 per token and group and multiply in exact int32 inside a group.
    On the TensorRT targets: ``W8A16``/``W4A16`` dequantize weights to the engine's dtype.
    """

    NONE = "none"
    W8A16 = "w8a16"
    W8A8 = "w8a8"
    W4A16 = "w4a16"
    W4A8 = "w4a8"

    @classmethod
    def _missing_(cls, value: object) -> QuantAlgo | None:
        """TensorRT-LLM writes the names in capitals."""
        lower = value.lower() if isinstance(value, str) else value
        return None if lower == value else cls(lower)

    @property
    def weight_bits(self) -> int | None:
        return {"none": None, "w8a16": 8, "w8a8": 8, "w4a16": 4, "w4a8": 4}[self.value]

    @property
    def int8_activations(self) -> bool:
        return self.value.endswith("a8")


PER_CHANNEL = 0  # group_size: one scale for all input channels of an output channel


class QuantConfig(Settings):
    """Weight quantization by groups of ``group_size`` input channels, ``PER_CHANNEL`` for whole rows.

    int8 is symmetric. int4 has a zero point per group with ``has_zero_point``, which need not be an integer, and is
    symmetric without. ``quantize_vocabulary``: the embedding and logits matrix is int8, also under 4-bit algorithms;
    else it is not quantized. What a BuildConfig is not told is filled in for its target.
    """

    quant_algo: QuantAlgo = QuantAlgo.NONE
    group_size: Literal[0, 32, 64, 128] = 32
    has_zero_point: bool = True
    quantize_vocabulary: bool = True

    def for_target(self, target: str) -> QuantConfig:
        """The same with the target's own defaults for the fields that were not given."""
        if target == "cpu":
            return self
        group_size = 64 if self.quant_algo.weight_bits == 4 else PER_CHANNEL
        defaults = {"group_size": group_size, "has_zero_point": False, "quantize_vocabulary": False}
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return QuantConfig(**{**defaults, **given})


class Mapping(Settings):
    """How ranks share the model."""

    tp_size: int = Field(1, ge=1)


TargetName = Literal["cpu", "tensorrt-rtx", "tensorrt"]
Dtype = Literal["float32", "float16", "bfloat16"]


class BuildConfig(Settings):
    """What ``trtc build`` fixes in an engine. Counts are tokens or sequences."""

    target: TargetName = "cpu"
    sm: int | None = Field(None, ge=10, le=999)  # GPU architecture of a TensorRT engine: 89 is compute capability 8.9
    dtype: Dtype = "bfloat16"
    kv_cache_dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    quant: QuantConfig = QuantConfig()
    mapping: Mapping = Mapping()
    max_batch_size: int = Field(16, ge=1, le=4096)
    max_num_tokens: int = Field(512, ge=1, le=131072)
    max_seq_len: int | None = Field(None, ge=1, lt=2**31)  # None: the model's max_position_embeddings, at most 8192
    tokens_per_block: Literal[16, 32, 64, 128] = 32

    @field_validator("quant")
    @classmethod
    def _defaults_of_target(cls, quant: QuantConfig, info: ValidationInfo) -> QuantConfig:
        return quant.for_target(info.data.get("target", "cpu"))

    @model_validator(mode="after")
    def _batch_fits_step(self) -> BuildConfig:
        if self.max_batch_size > self.max_num_tokens:
            raise ValueError(
                f"max_batch_size {self.max_batch_size} exceeds max_num_tokens {self.max_num_tokens}: "
                "every running sequence needs one token per step"
            )
        return self

    @property
    def resolved_kv_dtype(self) -> Dtype:
        return self.dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype


class KvCacheConfig(Settings):
    """Size and reuse of the KV cache; the smallest of the given limits holds.

    TensorRT-LLM's names ``max_gpu_total_bytes`` and ``free_gpu_memory_fraction`` are taken too.
    """

    enable_block_reuse: bool = True
    max_tokens: int | None = Field(None, ge=1, lt=2**63)
    max_bytes: int | None = Field(
        None, ge=1, lt=2**63, validation_alias=AliasChoices("max_bytes", "max_gpu_total_bytes")
    )
    free_memory_fraction: float = Field(  # of the memory available at load
        0.5, gt=0.0, le=1.0, validation_alias=AliasChoices("free_memory_fraction", "free_gpu_memory_fraction")
    )


class SchedulerConfig(Settings):
    """Batching limits at run time; each may lower, never raise, the engine's own."""

    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT"] = "GUARANTEED_NO_EVICT"
    enable_chunked_prefill: bool = True
    max_batch_size: int | None = Field(None, ge=1, lt=2**31)
    max_num_tokens: int | None = Field(None, ge=1, lt=2**31)
