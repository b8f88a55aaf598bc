"""Small tokenizers of the two families that engines meet: byte-level BPE, and SentencePiece with byte fallback."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.text_corpus import TEXTS

SPECIAL = ("<s>", "</s>", "<|user|>")
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}


def byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE trained on the corpus: merges that cross and split UTF-8 characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS * 2,
        trainers.BpeTrainer(
            vocab_size=420, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer


def sentencepiece() -> tokenizers.Tokenizer:
    """Llama 2's shape: prefix space, byte fallback, one leading space stripped again."""
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"abcdefghilnorstuwyHT,.!", "▁t", "he", "▁the", "▁▁", "in", "or", "ld", "日", "é"]
    merges: list[tuple[str, str]] = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "▁"), ("i", "n"), ("o", "r")]
    model = models.BPE({piece: at for at, piece in enumerate(pieces)}, merges, byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


def metaspace() -> tokenizers.Tokenizer:
    """As ``sentencepiece``, with the Metaspace pre-tokenizer and decoder."""
    tokenizer = sentencepiece()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return tokenizer


KINDS: dict[str, Any] = {"byte_level": byte_level, "sentencepiece": sentencepiece}
