"""Reading ``config.json`` field by field: what nobody asked for in the end is an error that names the field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trtc.errors import ConfigError

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

    def size(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.require(name) if default is None else self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self.wrong(name, value, "a positive integer")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.require(name) if default is None else self.get(name, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or value != value
            or abs(value) == float("inf")
        ):
            raise self.wrong(name, value, "a number")
        return float(value)

    def positive(self, name: str, default: float | None = None) -> float:
        """A number above zero."""
        value = self.number(name, default)
        if value <= 0:
            raise self.wrong(name, value, "a positive number")
        return value

    def optional_positive(self, name: str) -> float | None:
        """A number above zero, or None when the field is absent or null."""
        return None if self.get(name) is None else self.positive(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """A list of ``count`` numbers."""
        value = self.require(name)
        ok = isinstance(value, list) and len(value) == count
        if not ok or any(isinstance(item, bool) or not isinstance(item, (int, float)) for item in value):
            raise self.wrong(name, value, f"a list of {count} numbers")
        return tuple(float(item) for item in value)

    def wrong(self, name: str, value: Any, expected: str) -> ConfigError:
        return ConfigError(f"{self.where}: field {name!r} is {value!r}, expected {expected}")

    def finish(self, neutral: frozenset[str] = frozenset()) -> None:
        """Raises ConfigError for a field that was neither asked for nor known to be neutral.

        An unknown field that is null, false or empty is off and passes.
        """
        for name, value in self._values.items():
            known = name in self._asked or name in neutral
            if known or value is None or value is False or value in ("", [], {}):
                continue
            if name == "quantization_config":
                raise ConfigError(
                    f"{self.where}: field 'quantization_config' ({value.get('quant_method', 'unknown method')}): "
                    "pre-quantized checkpoints are not supported; use the original and quantize with --quant"
                )
            raise ConfigError(
                f"{self.where}: field {name!r} = {value!r} is not handled and may change the model's mathematics; "
                "use a model without it, or remove the field if you know it has no effect"
            )
