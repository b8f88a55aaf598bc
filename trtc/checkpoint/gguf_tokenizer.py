"""The tokenizer in a GGUF file's metadata, written as Hugging Face's tokenizer files.

Two kinds, by ``tokenizer.ggml.model``: "gpt2" is byte-level BPE with merges; "llama" is SentencePiece, whose merges
follow from the scores of its pieces. Where the metadata says less than a tokenizer.json, the model family decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtc.checkpoint.gguf_pretokenizers import bpe_style
from trtc.checkpoint.hf_directory import write_json
from trtc.errors import CheckpointError

if TYPE_CHECKING:
    import tokenizers

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # tokenizer.ggml.token_type
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's visible space
_END_OF_TURN = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>")
_SPECIAL_IDS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


@dataclass(frozen=True)
class GgufTokenizer:
    """Writes tokenizer.json and its companions from ``metadata``."""

    path: Path
    metadata: Mapping[str, Any]

    def write(self, directory: Path) -> None:
        self.build().save(str(directory / "tokenizer.json"))
        write_json(directory / "tokenizer_config.json", self.config())
        write_json(directory / "generation_config.json", self.generation_config())
        template = self.metadata.get("tokenizer.chat_template")
        if isinstance(template, str) and template:
            (directory / "chat_template.jinja").write_text(template, "utf-8")

    def build(self) -> tokenizers.Tokenizer:
        """The tokenizer itself. Raises CheckpointError when the metadata does not describe one."""
        kind = self._get("model")
        builders = {"gpt2": self._byte_level, "llama": self._sentencepiece}
        if not isinstance(kind, str) or kind not in builders:
            raise CheckpointError(f"{self.path}: tokenizer {kind!r} is not supported; supported: {', '.join(builders)}")
        try:
            tokenizer = builders[kind]()
        except CheckpointError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{self.path}: the tokenizer metadata is inconsistent: {error}") from error
        self._add_tokens(tokenizer)
        self._add_post_processor(tokenizer)
        return tokenizer

    def config(self) -> dict[str, Any]:
        """The tokenizer_config.json."""
        names = {name: token for name in _SPECIAL_IDS if (token := self._special(name)) is not None}
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": self._adds("bos"),
            "add_eos_token": self._adds("eos"),
            "clean_up_tokenization_spaces": False,
            **names,
        }

    def generation_config(self) -> dict[str, Any]:
        """Every token that ends an answer: the file's EOS, and the end-of-turn token of chat models."""
        ids = [self._special_id(name) for name in ("eos", "eot", "eom")]
        tokens = self._tokens
        ids += [i for i, kind in enumerate(self._types) if kind == _CONTROL and tokens[i] in _END_OF_TURN]
        eos = list(dict.fromkeys(i for i in ids if i is not None))
        bos = self._special_id("bos")
        config: dict[str, Any] = {} if bos is None else {"bos_token_id": bos}
        return config | ({"eos_token_id": eos[0] if len(eos) == 1 else eos} if eos else {})

    def _byte_level(self) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer, decoders, models, normalizers

        merges = self._get("merges")
        if not isinstance(merges, list):
            raise CheckpointError(f"{self.path}: tokenizer.ggml.merges is missing, which byte-level BPE needs")
        pairs = [tuple(merge.split(" ")) for merge in merges]
        if bad := next((merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2), None):
            raise CheckpointError(f"{self.path}: the merge {bad!r} is not two tokens with a space between")
        style = bpe_style(self._get("pre"), self._architecture())
        tokenizer = Tokenizer(models.BPE(vocab=self._vocab(), merges=pairs, ignore_merges=style.ignore_merges))
        if style.normalize_nfc:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = style.pre_tokenizer()
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def _sentencepiece(self) -> tokenizers.Tokenizer:
        """As the Llama and Gemma tokenizer.json files do it; the dummy prefix space opens every stretch of text."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        gemma = self._architecture().startswith("gemma")
        vocab = self._vocab(visible_spaces=gemma)
        unknown = self._special("unk_token")
        tokenizer = Tokenizer(
            models.BPE(vocab=vocab, merges=self._merges(vocab), unk_token=unknown, fuse_unk=True, byte_fallback=True)
        )
        prefix = bool(self._get("add_space_prefix", not gemma))
        to_visible = normalizers.Replace(" ", _SPACE)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), to_visible]) if prefix else to_visible
        if gemma:
            tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
        return tokenizer

    def _merges(self, vocab: dict[str, int]) -> list[tuple[str, str]]:
        """Every way to join two pieces into a third, best first: by score, in Gemma by place in the vocabulary."""
        scores = self._get("scores")
        if not isinstance(scores, list) or len(scores) != len(self._tokens):
            raise CheckpointError(f"{self.path}: tokenizer.ggml.scores is missing or does not fit the tokens")
        types = self._types
        by_place = self._architecture().startswith("gemma")
        ranked: list[tuple[float, int, int, str, str]] = []
        for piece, token_id in vocab.items():
            if types[token_id] in (_UNKNOWN, _CONTROL, _BYTE):
                continue
            rank = float(token_id) if by_place else -scores[token_id]
            for at in range(1, len(piece)):
                if piece[:at] in vocab and piece[at:] in vocab:
                    ranked.append((rank, -at, at - len(piece), piece[:at], piece[at:]))
        ranked.sort(key=lambda merge: merge[:3])
        return [(left, right) for *_, left, right in ranked]

    def _vocab(self, visible_spaces: bool = False) -> dict[str, int]:
        """Pieces to ids. Gemma's files spell runs of spaces as themselves; merging needs them visible."""
        vocab: dict[str, int] = {}
        for token_id, token in enumerate(self._tokens):
            if visible_spaces and token and not token.strip(" "):
                token = _SPACE * len(token)
            vocab.setdefault(token, token_id)
        return vocab

    def _add_tokens(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Control tokens as special, user-defined ones as added tokens: both are matched whole in a text."""
        from tokenizers import AddedToken

        tokens, special_ids = self._tokens, {self._special_id(key) for key in _SPECIAL_IDS.values()}
        phi3 = self._architecture() == "phi3" and self._get("model") == "llama"
        special, plain = [], []
        for token_id, kind in enumerate(self._types):
            token = tokens[token_id]
            if kind in (_CONTROL, _UNKNOWN) or token_id in special_ids:
                swallows_space = phi3 and token not in ("<unk>", "<s>", "<|endoftext|>")
                special.append(AddedToken(token, special=True, normalized=False, rstrip=swallows_space))
            elif kind == _USER_DEFINED and tokenizer.token_to_id(token) == token_id:
                plain.append(AddedToken(token, normalized=False))
        tokenizer.add_special_tokens(special)
        tokenizer.add_tokens(plain)

    def _add_post_processor(self, tokenizer: tokenizers.Tokenizer) -> None:
        from tokenizers.processors import TemplateProcessing

        bos = self._special("bos_token") if self._adds("bos") else None
        eos = self._special("eos_token") if self._adds("eos") else None
        added = [(token, tokenizer.token_to_id(token)) for token in (bos, eos) if token is not None]
        template = " ".join(part for part in (bos, "$A", eos) if part is not None)
        if added:
            tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=added)

    def _adds(self, which: str) -> bool:
        """Whether encoding adds BOS or EOS: the file's word, else the family's habit."""
        stated = self._get(f"add_{which}_token")
        if isinstance(stated, bool):
            return stated
        if which == "eos":
            return False
        return self._get("model") == "llama" or bpe_style(self._get("pre"), self._architecture()).add_bos

    def _special(self, name: str) -> str | None:
        token_id = self._special_id(_SPECIAL_IDS[name])
        return None if token_id is None else self._tokens[token_id]

    def _special_id(self, key: str) -> int | None:
        token_id, count = self._get(f"{key}_token_id"), len(self._tokens)
        if token_id is None:
            return None
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < count:
            raise CheckpointError(f"{self.path}: {key}_token_id is {token_id!r}, but the vocabulary has {count} tokens")
        return token_id

    @cached_property
    def _tokens(self) -> list[str]:
        tokens = self._get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{self.path}: tokenizer.ggml.tokens is missing or not a list of strings")
        return tokens

    @cached_property
    def _types(self) -> list[int]:
        tokens = self._tokens
        types = self._get("token_type", [_NORMAL] * len(tokens))
        if not isinstance(types, list) or len(types) != len(tokens):
            raise CheckpointError(f"{self.path}: tokenizer.ggml.token_type does not fit the tokens")
        return types

    def _architecture(self) -> str:
        return str(self.metadata.get("general.architecture"))

    def _get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)
