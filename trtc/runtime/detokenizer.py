"""Token ids to text, a few tokens at a time.

Every token has a fixed spelling in bytes (:meth:`Tokenizer.token_bytes`), so text is the UTF-8 decoding of a
concatenation: the work per token is constant, and the text is the same however the tokens are grouped.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trtc.errors import RequestError

if TYPE_CHECKING:
    from trtc.runtime.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Text of one growing token sequence.

    ``push`` gives text that is final: whole characters only, and nothing that may turn out to begin a stop string.
    Bytes that are not UTF-8 become U+FFFD. With stop strings, the text ends before the one that completes first (of
    several, the one that starts first), or after it with ``include_stop``; ``stopped`` then names it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        stop: Iterable[str] = (),
        include_stop: bool = False,
    ) -> None:
        self.stopped: str | None = None
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strippable = tokenizer.leading_spaces_to_strip
        self._stop = StopStrings(stop, include_stop)
        self._finished = False

    def push(self, ids: Iterable[int]) -> str:
        """Take the next tokens and give the text they settle. After a stop string, always empty."""
        if self._finished or self.stopped is not None:
            return ""
        tokenizer, skip = self._tokenizer, self._skip_special_tokens
        return self._emit(self._decoder.decode(b"".join(tokenizer.token_bytes(i, skip) for i in ids)))

    def finish(self) -> str:
        """The text held back so far; an unfinished character becomes U+FFFD. Further calls give nothing."""
        if self._finished or self.stopped is not None:
            return ""
        text = self._emit(self._decoder.decode(b"", final=True))
        self._finished = True
        return text if self.stopped is not None else text + self._stop.flush()

    def _emit(self, text: str) -> str:
        while self._strippable and text:
            if text[0] != " ":
                self._strippable = 0
                break
            text = text[1:]
            self._strippable -= 1
        settled, self.stopped = self._stop.push(text)
        return settled


class StopStrings:
    """Finds the first stop string in text that arrives in pieces, holding back what may begin one."""

    def __init__(self, stop: Iterable[str], include: bool = False) -> None:
        self._stop = tuple(dict.fromkeys([stop] if isinstance(stop, str) else stop))
        self._include = include
        self._held = ""
        if any(not isinstance(word, str) or not word for word in self._stop):
            raise RequestError(f"stop: got {list(self._stop)!r}, expected non-empty strings")

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is settled, the stop string found or None)."""
        if not self._stop or not text:
            return text, None
        text = self._held + text
        found = min(
            ((at + len(word), at, word) for word in self._stop if (at := text.find(word)) >= 0),
            default=None,
        )
        if found is not None:
            end, start, word = found
            self._held = ""
            return text[: end if self._include else start], word
        keep = max(self._overlap(text, word) for word in self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """The text held back, now that no more will come."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, word: str) -> int:
        """Length of the longest proper beginning of ``word`` that ``text`` ends with."""
        start = max(0, len(text) - len(word) + 1)
        while (start := text.find(word[0], start)) >= 0:
            if word.startswith(text[start:]):
                return len(text) - start
            start += 1
        return 0
