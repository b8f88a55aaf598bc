"""What each TensorRT builds for each GPU architecture: settings beyond it are refused before any work is done."""

from __future__ import annotations

from dataclasses import dataclass

from trtc.config import PER_CHANNEL, BuildConfig, QuantAlgo
from trtc.errors import ConfigError

_DTYPES = ("float16", "bfloat16")
_QUANTS = (QuantAlgo.NONE, QuantAlgo.W8A16, QuantAlgo.W4A16)
_INT4_GROUPS = (32, 64, 128)


@dataclass(frozen=True)
class Capability:
    """What one TensorRT builds for one SM."""

    dtypes: tuple[str, ...] = _DTYPES
    quants: tuple[QuantAlgo, ...] = _QUANTS


CAPABILITIES: dict[str, dict[int, Capability]] = {
    "tensorrt-rtx": {sm: Capability() for sm in (80, 86, 89, 120)},
    "tensorrt": {sm: Capability() for sm in (80, 86, 89, 90, 100, 120)},
}


def check_settings(config: BuildConfig) -> None:
    """Raises ConfigError naming the setting that this target and SM cannot have, and what would work."""
    known = CAPABILITIES[config.target]
    if config.sm is None:
        raise ConfigError(f"target {config.target} needs sm, the GPU's architecture; choose {_list(known)}")
    if config.sm not in known:
        raise ConfigError(_unknown_sm(config.target, config.sm))
    capability = known[config.sm]
    where = f"target {config.target} on sm {config.sm}"
    if config.dtype not in capability.dtypes:
        raise ConfigError(f"{where} has no dtype {config.dtype}; choose {_list(capability.dtypes)}")
    if config.resolved_kv_dtype != config.dtype:
        raise ConfigError(
            f"{where} keeps the KV cache in the engine's dtype: kv_cache_dtype is {config.kv_cache_dtype}, "
            f"dtype {config.dtype}; use kv_cache_dtype auto"
        )
    if config.quant.quant_algo not in capability.quants:
        names = _list(algo.value for algo in capability.quants)
        raise ConfigError(f"{where} has no quantization {config.quant.quant_algo.value}; choose {names}")
    _check_quantization(config, where)


def _check_quantization(config: BuildConfig, where: str) -> None:
    quant = config.quant
    if quant.quant_algo is QuantAlgo.NONE:
        return
    if quant.has_zero_point or quant.quantize_vocabulary:
        wrong = "has_zero_point" if quant.has_zero_point else "quantize_vocabulary"
        raise ConfigError(f"{where} has symmetric linear layers alone quantized: {wrong} must be False or left out")
    if quant.quant_algo is QuantAlgo.W8A16 and quant.group_size != PER_CHANNEL:
        raise ConfigError(
            f"{where} keeps int8 weights by output channel (int8 in groups would be stored as {config.dtype}); "
            "leave out the group size, or use w4a16"
        )
    if quant.quant_algo is QuantAlgo.W4A16 and quant.group_size not in _INT4_GROUPS:
        raise ConfigError(f"{where} has int4 weights in groups of {_list(_INT4_GROUPS)}, not by output channel")


def _unknown_sm(target: str, sm: int) -> str:
    others = [name for name, sms in CAPABILITIES.items() if sm in sms]
    message = f"target {target} cannot build for sm {sm}; it builds for {_list(CAPABILITIES[target])}"
    return message + (f", and target {others[0]} for sm {sm}" if others else "")


def _list(values: object) -> str:
    names = [str(value) for value in values]  # type: ignore[attr-defined]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
