"""``Tokenizer``: text to token ids and back, from the files an engine carries.

Needs the tokenizers library, and jinja2 for chat templates; never transformers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtc.errors import EngineError, RequestError
from trtc.runtime.chat import ChatTemplate, Message
from trtc.runtime.token_spelling import TokenSpelling

if TYPE_CHECKING:
    import tokenizers

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class Tokenizer:
    """Encodes, decodes and renders chats. Immutable after loading, so threads may share one."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        config: dict[str, Any] | None = None,
        generation_config: dict[str, Any] | None = None,
        chat_template: str | None = None,
    ) -> None:
        self.backend = backend
        self.generation_config = generation_config or {}
        self.special_tokens = _special_tokens(config or {})
        self.chat_template = ChatTemplate(chat_template, self.special_tokens) if chat_template else None
        self.vocab_size: int = backend.get_vocab_size()
        self.bos_token_id = self._special_id("bos_token")
        self.pad_token_id = self._special_id("pad_token")
        self.eos_token_ids = self._eos_token_ids()
        backend.no_truncation()
        backend.no_padding()
        self._set_bos_and_eos(config or {})
        self._spelling = TokenSpelling(backend)

    @classmethod
    def from_directory(cls, directory: str | Path) -> Tokenizer:
        """Load tokenizer.json and, where present, tokenizer_config.json, generation_config.json and
        chat_template.jinja. Raises EngineError when a file is missing or damaged."""
        import tokenizers

        directory = Path(directory)
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise EngineError(f"{directory} has no tokenizer.json; text needs one, token ids alone do not")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise EngineError(f"{path} is not a tokenizer that the tokenizers library reads: {error}") from error
        config = _read_object(directory / "tokenizer_config.json")
        template_path = directory / "chat_template.jinja"
        template = template_path.read_text("utf-8") if template_path.is_file() else config.get("chat_template")
        return cls(backend, config, _read_object(directory / "generation_config.json"), template)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``. A text that already begins with the BOS token does not get a second one."""
        if not isinstance(text, str):
            raise RequestError(f"prompt: got {type(text).__name__}, expected text")
        try:
            ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise RequestError("prompt: not valid Unicode text (it holds half of a surrogate pair)") from error
        if add_special_tokens and ids[:2] == [self.bos_token_id] * 2 and self._writes_bos(text):
            return ids[1:]
        return ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD, ids without a token give nothing."""
        data = b"".join(self._spelling.token_bytes(i, skip_special_tokens) for i in ids)
        text = data.decode("utf-8", "replace")
        leading = len(text) - len(text.lstrip(" "))
        return text[min(leading, self.leading_spaces_to_strip) :]

    def token_bytes(self, token_id: int, skip_special_tokens: bool = True) -> bytes:
        """The bytes that ``token_id`` adds to a text: empty for a skipped special token and for no token at all."""
        return self._spelling.token_bytes(token_id, skip_special_tokens)

    @property
    def leading_spaces_to_strip(self) -> int:
        """Spaces that decoding drops at the start of a text: SentencePiece's dummy prefix, else 0."""
        return self._spelling.leading_spaces_to_strip

    def apply_chat_template(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Prompt text of ``messages``. Raises RequestError when the model has no template or it refuses them."""
        if self.chat_template is None:
            raise RequestError(
                "messages: this model has no chat template; send a plain prompt, "
                "or put a chat_template.jinja beside its tokenizer.json"
            )
        return self.chat_template.render(messages, add_generation_prompt=add_generation_prompt, **variables)

    def encode_chat(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any
    ) -> list[int]:
        """Token ids of ``messages``. The template writes every special token, BOS included, so none is added."""
        text = self.apply_chat_template(messages, add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False)

    def _writes_bos(self, text: str) -> bool:
        bos = self.special_tokens.get("bos_token")
        return bos is not None and text.startswith(bos)

    def _special_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        token_id: int | None = None if token is None else self.backend.token_to_id(token)
        return token_id

    def _eos_token_ids(self) -> tuple[int, ...]:
        """generation_config.json decides, as in transformers; without it the tokenizer's own EOS token."""
        eos = self.generation_config.get("eos_token_id")
        if eos is None:
            eos = self._special_id("eos_token")
        if eos is None:
            return ()
        ids = eos if isinstance(eos, list) else [eos]
        if not all(isinstance(i, int) for i in ids):
            raise EngineError(f"generation_config.json: eos_token_id is {eos!r}, expected a token id or a list of them")
        return tuple(ids)

    def _set_bos_and_eos(self, config: dict[str, Any]) -> None:
        """add_bos_token and add_eos_token overrule the post-processor of tokenizer.json, as in transformers."""
        flags = [config.get("add_bos_token"), config.get("add_eos_token")]
        if all(flag is None for flag in flags):
            return
        from tokenizers.processors import TemplateProcessing

        names = [self.special_tokens.get("bos_token"), self.special_tokens.get("eos_token")]
        bos, eos = (name if flag and name is not None else None for flag, name in zip(flags, names, strict=True))
        added = [(name, self.backend.token_to_id(name)) for name in (bos, eos) if name is not None]
        for name, token_id in added:
            if token_id is None:
                raise EngineError(f"tokenizer_config.json adds the token {name!r}, which tokenizer.json does not have")
        template = " ".join(part for part in (bos, "$A", eos) if part is not None)
        self.backend.post_processor = TemplateProcessing(single=template, special_tokens=added)


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Names of the special tokens; old files spell a token as an object with its content."""
    tokens = {}
    for name in _SPECIAL_TOKENS:
        token = config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            tokens[name] = token
    return tokens


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise EngineError(f"{path} holds a JSON {type(value).__name__}, expected an object")
    return value
