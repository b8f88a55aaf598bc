"""How byte-level BPE text is cut before merging, by GGUF's ``tokenizer.ggml.pre``.

The expressions are those of the models' own tokenizer.json files; llama.cpp's ``llama-vocab.cpp`` maps the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtc.errors import CheckpointError

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PUNCTUATION = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PUNCTUATION_SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _PUNCTUATION
_QWEN2 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _PUNCTUATION
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}" + _PUNCTUATION_SLASH
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    r"|\p{N}{1,3}" + _PUNCTUATION_SLASH
)


@dataclass(frozen=True)
class BpeStyle:
    """``splits`` are applied in turn, each to the pieces of the one before."""

    splits: tuple[str, ...]
    normalize_nfc: bool = False
    ignore_merges: bool = False  # a piece that is a token is taken whole
    add_bos: bool = False  # when the file does not say

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        from tokenizers import Regex, pre_tokenizers

        cuts = [pre_tokenizers.Split(Regex(split), "isolated") for split in self.splits]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_STYLES: dict[BpeStyle, tuple[str, ...]] = {
    BpeStyle((_GPT2,)): ("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4"),
    BpeStyle((r"\p{N}", _GPT2)): ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    BpeStyle((_LLAMA3,), ignore_merges=True, add_bos=True): (
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "pixtral",
        "midm-2.0",
    ),
    BpeStyle((_LLAMA3,)): ("dbrx", "smaug-bpe"),
    BpeStyle((_QWEN2,), normalize_nfc=True): ("qwen2", "deepseek-r1-qwen"),
    BpeStyle((_TEKKEN,), ignore_merges=True, add_bos=True): ("tekken",),
    BpeStyle((_GPT4O,)): ("gpt-4o",),
    BpeStyle((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")): ("default",),
}
_BY_NAME = {name: style for style, names in _STYLES.items() for name in names}
_WHEN_UNNAMED = {"gpt2": "gpt-2", "qwen2": "qwen2", "qwen3": "qwen2"}


def bpe_style(name: str | None, architecture: str) -> BpeStyle:
    """The style of ``tokenizer.ggml.pre``; old files lack it, and the architecture decides.

    Raises CheckpointError for an unknown name: guessing would silently change every prompt.
    """
    if name is None:
        name = _WHEN_UNNAMED.get(architecture, "default")
    if name not in _BY_NAME:
        raise CheckpointError(
            f"GGUF metadata tokenizer.ggml.pre {name!r} is not supported; supported: {', '.join(sorted(_BY_NAME))}"
        )
    return _BY_NAME[name]
