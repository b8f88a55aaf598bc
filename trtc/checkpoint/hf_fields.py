"""Reading ``config.json`` field by field: what nobody asked for in the end is an error that names the field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from trtc.errors import ConfigError

INT32_MAX = 2**31 - 1
# What a float32 holds at full precision: numbers beyond these would become infinite or zero in an engine.
FLOAT32_MAX, FLOAT32_TINY = 3.4028234e38, 1.1754944e-38

# Fields that leave the mathematics of a forward pass alone: bookkeeping, training and generation settings.
_NEUTRAL_NAMES = """
    model_type architectures dtype torch_dtype transformers_version auto_map use_cache cache_implementation
    initializer_range pretraining_tp attn_implementation tokenizer_class problem_type task_specific_params
    finetuning_task id2label label2id num_labels torchscript return_dict output_hidden_states output_attentions
    output_scores return_dict_in_generate use_bfloat16 tf_legacy_loss chunk_size_feed_forward remove_invalid_values
    is_decoder max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature
    top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
    bad_words_ids num_return_sequences sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens prefix n_ctx reorder_and_upcast_attn
    attention_dropout attn_pdrop resid_pdrop embd_pdrop hidden_dropout attn_dropout gradient_checkpointing
    transformers.js_config is_llama_config
"""
NEUTRAL = frozenset(_NEUTRAL_NAMES.split())
NEUTRAL_PATTERN = re.compile(r"_.*|summary_.*|unsloth_.*")


class Fields:
    """The fields of one JSON object. ``where`` names the object in messages, as in ``config.json``."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._asked: set[str] = set()
        self.where = where

    def get(self, name: str, default: Any = None) -> Any:
        """The value; ``default`` when it is absent or null."""
        self._asked.add(name)
        value = self._values.get(name)
        return default if value is None else value

    def require(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise ConfigError(f"{self.where}: field {name!r} is missing")
        return value

    def size(self, name: str, default: int | None = None, most: int = INT32_MAX) -> int:
        """A positive integer up to ``most``: what a size makes us allocate is bounded before anything is allocated."""
        value = self.require(name) if default is None else self.get(name, default)
        if not _is_integer(value) or not 0 < value <= most:
            raise self.wrong(name, value, f"a positive integer up to {most}")
        size: int = value
        return size

    def optional_size(self, name: str) -> int | None:
        """A positive integer, or None when the field is absent or null."""
        return None if self.get(name) is None else self.size(name)

    def optional_integer(self, name: str) -> int | None:
        """An integer of 32 bits, or None when the field is absent or null."""
        value = self.get(name)
        if value is not None and (not _is_integer(value) or abs(value) > INT32_MAX):
            raise self.wrong(name, value, "an integer")
        integer: int | None = value
        return integer

    def token_id(self, name: str) -> int | None:
        """A token id; None when the field is absent, null or -1, which old configurations write for no token."""
        ids = self.token_ids(name)
        if len(ids) > 1 or isinstance(self.get(name), list):
            raise self.wrong(name, self.get(name), "a token id")
        return ids[0] if ids else None

    def token_ids(self, name: str) -> tuple[int, ...]:
        """A token id or a list of them; -1 stands for none."""
        value = self.get(name, [])
        ids = value if isinstance(value, list) else [value]
        if not all(_is_integer(item) and -1 <= item <= INT32_MAX for item in ids):
            raise self.wrong(name, value, "a token id or a list of them")
        return tuple(item for item in ids if item != -1)

    def number(self, name: str, default: float | None = None) -> float:
        """A number within float32's range."""
        value = self.require(name) if default is None else self.get(name, default)
        if not _is_number(value):
            raise self.wrong(name, value, "a number within the range of float32")
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """A number above zero."""
        value = self.number(name, default)
        if value < FLOAT32_TINY:
            raise self.wrong(name, value, "a positive number within the range of float32")
        return value

    def positive_or(self, name: str, default: float) -> float:
        """A number above zero; ``default`` when it is absent, null or zero."""
        return default if self.number(name, 0.0) == 0 else self.positive(name)

    def optional_positive(self, name: str) -> float | None:
        """A number above zero, or None when the field is absent or null."""
        return None if self.get(name) is None else self.positive(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """One of ``choices``."""
        value = self.require(name) if default is None else self.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, value, f"one of {', '.join(choices)}")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object, a copy; empty when the field is absent or null."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return dict(value)

    def positives(self, name: str, count: int) -> tuple[float, ...]:
        """A list of ``count`` numbers above zero."""
        value = self.require(name)
        if (
            not isinstance(value, list)
            or len(value) != count
            or not all(_is_number(item) and item >= FLOAT32_TINY for item in value)
        ):
            raise self.wrong(name, value, f"a list of {count} positive numbers")
        return tuple(float(item) for item in value)

    def wrong(self, name: str, value: Any, expected: str) -> ConfigError:
        return ConfigError(f"{self.where}: field {name!r} is {_shown(value)}, expected {expected}")

    def finish(self, neutral: frozenset[str] = frozenset()) -> None:
        """Raises ConfigError for a field that was neither asked for nor known to be neutral.

        An unknown field that is null, false or empty is off and passes.
        """
        for name, value in self._values.items():
            known = name in self._asked or name in neutral
            if known or value is None or value is False or value in ("", [], {}):
                continue
            if name == "quantization_config":
                method = value.get("quant_method", "unknown method") if isinstance(value, dict) else _shown(value)
                raise ConfigError(
                    f"{self.where}: field 'quantization_config' ({method}): "
                    "pre-quantized checkpoints are not supported; use the original and quantize with --quant"
                )
            raise ConfigError(
                f"{self.where}: field {name!r} = {_shown(value)} is not handled and may change the model's "
                "mathematics; use a model without it, or remove the field if you know it has no effect"
            )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Of JSON's kinds, and within float32's range."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= FLOAT32_MAX


def _shown(value: object) -> str:
    """``value`` short enough for a sentence."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return "an enormous integer"  # Python refuses to spell some of them
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
