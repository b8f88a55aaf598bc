"""The bytes each token adds to a text, read off the decoder of a tokenizer.json.

Byte-level BPE spells bytes with printable characters (GPT-2's table); SentencePiece kinds spell a space as U+2581 and
a raw byte as ``<0xAB>``. Both give every token a spelling that does not depend on its neighbours. Text is as the
tokenizers library decodes it, except that valid characters beside invalid bytes are kept.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from trtc.errors import EngineError

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenSpelling:
    """Spellings are made when first asked for and kept."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._added: dict[int, bytes] = {i: token.content.encode() for i, token in added.items()}
        self._special = frozenset(i for i, token in added.items() if token.special)
        self._known: dict[int, bytes] = {}
        self._byte_level = False
        self._byte_fallback = False
        self._replaced: list[tuple[str, str]] = []
        self.leading_spaces_to_strip = 0
        for step in _decoder_steps(backend):
            self._read_step(step)

    def token_bytes(self, token_id: int, skip_special_tokens: bool) -> bytes:
        if skip_special_tokens and token_id in self._special:
            return b""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id]
        token: str | None = self._backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        if token is None:
            return b""
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for pattern, content in self._replaced:
            token = token.replace(pattern, content)
        if self._byte_level and all(char in BYTE_OF_CHAR for char in token):
            return bytes(BYTE_OF_CHAR[char] for char in token)
        return token.encode()

    def _read_step(self, step: dict[str, Any]) -> None:
        kind = step["type"]
        if kind == "ByteLevel":
            self._byte_level = True
        elif kind == "ByteFallback":
            self._byte_fallback = True
        elif kind == "Replace" and "String" in step["pattern"]:
            self._replaced.append((step["pattern"]["String"], step["content"]))
        elif kind == "Strip" and step["content"] == " " and step["stop"] == 0:
            self.leading_spaces_to_strip = step["start"]
        elif kind == "Metaspace":
            self._replaced.append((step["replacement"], " "))
            self.leading_spaces_to_strip = 0 if step["prepend_scheme"] == "never" else 1
        elif kind != "Fuse":
            raise EngineError(
                f"tokenizer.json decodes with {step}, expected steps of byte-level BPE or SentencePiece; "
                "this tokenizer is not supported"
            )


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if backend.decoder is None:
        raise EngineError("tokenizer.json has no decoder, so tokens cannot become text; export the tokenizer again")
    decoder = json.loads(backend.decoder.__getstate__())
    steps: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return steps


def _bytes_of_chars() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the other bytes for U+0100 onwards, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


BYTE_OF_CHAR = _bytes_of_chars()
