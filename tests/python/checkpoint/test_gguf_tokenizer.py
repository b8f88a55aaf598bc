"""Tokenizers rebuilt from GGUF metadata encode as transformers' and as the models' own tokenizer.json files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.text_corpus import DIGIT_TEXTS, TEXTS
from trtc.checkpoint.gguf_file import read_gguf
from trtc.checkpoint.gguf_pretokenizers import bpe_style
from trtc.checkpoint.gguf_tokenizer import GgufTokenizer
from trtc.checkpoint.reader import open_checkpoint
from trtc.errors import CheckpointError
from trtc.runtime.tokenizer import Tokenizer

SMOLLM2_SPECIAL = "<|im_start|>user\nHi <|im_end|>\n<|endoftext|> <file_sep><repo_name>"


@pytest.fixture(scope="module")
def smollm2_metadata(smollm2: Path) -> dict[str, Any]:
    return read_gguf(smollm2).metadata


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("smollm2")
    open_checkpoint(smollm2).write_tokenizer(directory)
    return Tokenizer.from_directory(directory)


@pytest.fixture(scope="module")
def smollm2_of_transformers(smollm2: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2.parent, gguf_file=smollm2.name)


def test_smollm2_encodes_text_as_transformers_does(smollm2_tokenizer: Tokenizer, smollm2_of_transformers: Any) -> None:
    for text in (*TEXTS[:-1], SMOLLM2_SPECIAL):  # the last has digits in the wide sense
        assert smollm2_tokenizer.encode(text) == smollm2_of_transformers.encode(text), text


def test_smollm2_decodes_as_transformers_does(smollm2_tokenizer: Tokenizer, smollm2_of_transformers: Any) -> None:
    for text in (*TEXTS, *DIGIT_TEXTS, SMOLLM2_SPECIAL):
        ids = smollm2_tokenizer.encode(text)
        for skip in (True, False):
            theirs = smollm2_of_transformers.decode(ids, skip_special_tokens=skip)
            assert smollm2_tokenizer.decode(ids, skip_special_tokens=skip) == theirs, text
        if text != SMOLLM2_SPECIAL:
            assert smollm2_tokenizer.decode(ids) == text


@pytest.mark.parametrize("key", ["bos", "eos", "eot", "eom", "unknown", "padding"])
@pytest.mark.parametrize("token_id", ["x", [1], -1, 49152, True, 1.5])
def test_a_special_token_that_is_no_token_is_named(
    smollm2_metadata: dict[str, Any], tmp_path: Path, key: str, token_id: object
) -> None:
    metadata = {**smollm2_metadata, f"tokenizer.ggml.{key}_token_id": token_id}
    with pytest.raises(CheckpointError, match=f"{key}_token_id is .*, but the vocabulary has 49152 tokens"):
        GgufTokenizer(tmp_path / "x.gguf", metadata).write(tmp_path)


def test_smollm2_cuts_every_digit_apart(smollm2_tokenizer: Tokenizer) -> None:
    """SmolLM2's tokenizer.json has Digits(individual_digits=True); transformers' GGUF path loses that."""
    pieces = [smollm2_tokenizer.backend.id_to_token(i) for i in smollm2_tokenizer.encode("In 2024, 1234567")]
    assert pieces == ["In", "Ġ", "2", "0", "2", "4", ",", "Ġ", "1", "2", "3", "4", "5", "6", "7"]


def test_smollm2_with_digits_joined_is_gpt2_style(
    smollm2_metadata: dict[str, Any], smollm2_of_transformers: Any
) -> None:
    joined = GgufTokenizer(Path("x.gguf"), smollm2_metadata | {"tokenizer.ggml.pre": "gpt-2"}).build()
    for text in (*TEXTS, *DIGIT_TEXTS):
        assert joined.encode(text).ids == smollm2_of_transformers.encode(text), text


def test_smollm2_chat_is_written_as_transformers_writes_it(
    smollm2_tokenizer: Tokenizer, smollm2_of_transformers: Any
) -> None:
    messages = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Spain?"},
    ]
    text = smollm2_tokenizer.apply_chat_template(messages)
    assert text == smollm2_of_transformers.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert smollm2_tokenizer.encode_chat(messages) == smollm2_of_transformers.encode(text, add_special_tokens=False)
    assert smollm2_tokenizer.eos_token_ids == (2,)


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken", "gpt-4o"])
def test_pre_tokenizers_cut_as_transformers_expressions_do(pre: str) -> None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    expression = tokenizers.Regex(GGUF_PRE_TOKENIZER_SPLITS[pre])
    theirs = tokenizers.pre_tokenizers.Split(expression, "isolated")
    ours = tokenizers.pre_tokenizers.Split(tokenizers.Regex(bpe_style(pre, "llama").splits[0]), "isolated")
    for text in (*TEXTS, *DIGIT_TEXTS):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), text


def test_gpt2_style_cuts_as_the_tokenizers_library_does() -> None:
    theirs = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    ours = bpe_style("gpt-2", "gpt2").pre_tokenizer()
    for text in (*TEXTS, *DIGIT_TEXTS):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), text


def test_smollm_style_cuts_as_digits_then_byte_level() -> None:
    parts = tokenizers.pre_tokenizers
    theirs = parts.Sequence([parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)])
    ours = bpe_style("smollm", "llama").pre_tokenizer()
    for text in (*TEXTS, *DIGIT_TEXTS):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), text


def test_default_style_keeps_punctuation_runs_and_cuts_numbers_by_three() -> None:
    ours = bpe_style("default", "llama").pre_tokenizer()
    assert [piece for piece, _ in ours.pre_tokenize_str("a==b 12345")] == ["a", "==", "b", "Ġ", "123", "45"]


def test_files_without_a_style_take_their_architecture_s() -> None:
    assert bpe_style(None, "qwen3") == bpe_style("qwen2", "qwen3")
    assert bpe_style(None, "gpt2") == bpe_style("gpt-2", "gpt2")


def test_unknown_style_is_refused_by_name() -> None:
    with pytest.raises(
        CheckpointError, match=r"tokenizer\.ggml\.pre 'martian' is not supported; supported: codeshell, "
    ):
        bpe_style("martian", "llama")


# --- SentencePiece kinds -------------------------------------------------------------------------------------------


def sentencepiece_metadata(architecture: str) -> dict[str, Any]:
    """A vocabulary of raw bytes, letters and the pairs that a small text merges to, scored by frequency order."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3, *[6] * 256]
    letters = sorted(set("▁abcdefghijklmnopqrstuvwxyzTHEIéüñ.,!?'0123456789日本語"))
    words = [
        "▁th",
        "he",
        "in",
        "er",
        "▁the",
        "an",
        "▁a",
        "on",
        "ing",
        "▁and",
        "▁w",
        "▁hello",
        "ll",
        "hell",
        "ello",
        "hello",
    ]
    words += ["ello", "hello", "el", "hel", "or", "▁wor", "ld", "▁world", "▁▁", "▁▁▁▁", "日本", "日本語", "12", "123"]
    normal = list(dict.fromkeys([*words, *letters]))
    special = ["<|user|>", "<|end|>", "<mask>"]
    pieces += normal + special
    types += [1] * len(normal) + [3, 3, 4]
    scores = [0.0] * 259 + [-float(at) for at in range(len(normal))] + [0.0] * 3
    return {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def transformers_twin(metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    from transformers.integrations.gguf import convert_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING

    names = GGUF_TOKENIZER_MAPPING["tokenizer"]
    described = {new: metadata[f"tokenizer.{old}"] for old, new in names.items() if f"tokenizer.{old}" in metadata}
    return convert_gguf_tokenizer(metadata["general.architecture"], described)[0]


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "phi3"])
def test_sentencepiece_kinds_encode_as_transformers_does(architecture: str) -> None:
    metadata = sentencepiece_metadata(architecture)
    ours, theirs = GgufTokenizer(Path("x.gguf"), metadata).build(), transformers_twin(metadata)
    for text in (*TEXTS, *DIGIT_TEXTS, "hello<|user|>hello<|end|> the world<mask>"):
        if architecture == "llama" and (text.startswith((" ", "▁")) or "<|" in text or not text):
            continue  # transformers omits the prefix space there, SentencePiece and llama.cpp do not
        if architecture == "phi3" and "<|" in text:
            continue
        mine = ours.encode(text, add_special_tokens=False).tokens
        assert mine == theirs.encode(text, add_special_tokens=False).tokens, text


def tokens_of(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    return [tokenizer.id_to_token(i) for i in tokenizer.encode(text, add_special_tokens=False).ids]


def test_llama_opens_every_stretch_of_text_with_the_prefix_space() -> None:
    """As Llama 2's tokenizer.json and llama.cpp: also before a space, also after a special token."""
    tokenizer = GgufTokenizer(Path("x.gguf"), sentencepiece_metadata("llama")).build()
    assert tokens_of(tokenizer, " hello</s>hello") == ["▁", "▁hello", "</s>", "▁hello"]


def test_phi3_special_tokens_swallow_the_space_after_them() -> None:
    tokenizer = GgufTokenizer(Path("x.gguf"), sentencepiece_metadata("phi3")).build()
    assert tokens_of(tokenizer, "<|user|>\nhello<|end|>\n") == ["<|user|>", "▁hello", "<|end|>"]


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "phi3"])
def test_sentencepiece_text_survives_a_round_trip(architecture: str, tmp_path: Path) -> None:
    GgufTokenizer(Path("x.gguf"), sentencepiece_metadata(architecture)).write(tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path)
    for text in (*TEXTS, *DIGIT_TEXTS):
        if "▁" in text:
            continue  # SentencePiece's space itself comes back as a space
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bos_is_added_once_and_by_default_for_sentencepiece(tmp_path: Path) -> None:
    GgufTokenizer(Path("x.gguf"), sentencepiece_metadata("llama")).write(tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.encode("hello").count(1) == 1
    assert tokenizer.encode("<s>hello") == tokenizer.encode("hello")
    assert 1 not in tokenizer.encode("hello", add_special_tokens=False)


def test_stated_add_bos_and_add_eos_win(tmp_path: Path) -> None:
    stated = {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True}
    GgufTokenizer(Path("x.gguf"), sentencepiece_metadata("llama") | stated).write(tmp_path)
    ids = Tokenizer.from_directory(tmp_path).encode("hello")
    assert (ids[0] != 1, ids[-1]) == (True, 2)


def test_end_of_turn_tokens_end_an_answer(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata("phi3")
    end = metadata["tokenizer.ggml.tokens"].index("<|end|>")
    GgufTokenizer(Path("x.gguf"), metadata).write(tmp_path)
    assert Tokenizer.from_directory(tmp_path).eos_token_ids == (2, end)


def test_chat_template_is_written_beside_the_tokenizer(tmp_path: Path) -> None:
    template = {"tokenizer.chat_template": "{{ bos_token }}{{ messages[0]['content'] }}"}
    GgufTokenizer(Path("x.gguf"), sentencepiece_metadata("llama") | template).write(tmp_path)
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hello"}]) == "<s>hello"
    assert tokenizer.encode_chat([{"role": "user", "content": "hello"}]).count(1) == 1


def test_qwen2_composes_accents_first() -> None:
    """Qwen2's tokenizer.json normalizes to NFC, which the GGUF does not say."""
    metadata = _byte_metadata("qwen2")
    tokenizer = GgufTokenizer(Path("x.gguf"), metadata).build()
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("\u00e9").ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "tokenizer 'bert' is not supported; supported: gpt2, llama"),
        ({"tokenizer.ggml.merges": ["abc"]}, "the merge 'abc' is not two tokens"),
        ({"tokenizer.ggml.merges": ["a zz"]}, "the tokenizer metadata is inconsistent"),
        ({"tokenizer.ggml.merges": None}, r"tokenizer\.ggml\.merges is missing"),
        ({"tokenizer.ggml.token_type": [1]}, "token_type does not fit"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "not a list of strings"),
        ({"tokenizer.ggml.bos_token_id": 10**6, "tokenizer.ggml.add_bos_token": True}, "bos_token_id is 1000000"),
    ],
)
def test_inconsistent_metadata_is_one_clear_error(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        GgufTokenizer(Path("x.gguf"), _byte_metadata("gpt-2") | change).write(tmp_path)


def _byte_metadata(pre: str) -> dict[str, Any]:
    from tests.tiny_models import byte_characters

    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": byte_characters(),
        "tokenizer.ggml.token_type": [1] * 256,
        "tokenizer.ggml.merges": [],
    }


def test_smollm2_tensors_equal_those_transformers_makes(smollm2: Path) -> None:
    import gguf
    from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

    checkpoint = open_checkpoint(smollm2)
    processor = LlamaTensorProcessor({"num_attention_heads": 9, "num_key_value_heads": 3})
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2).tensors}
    for ours, theirs in {
        "model.norm.weight": "output_norm.weight",
        "model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
        "model.layers.29.self_attn.k_proj.weight": "blk.29.attn_k.weight",
        "model.layers.7.self_attn.v_proj.weight": "blk.7.attn_v.weight",
        "model.layers.7.mlp.down_proj.weight": "blk.7.ffn_down.weight",
    }.items():
        weights = gguf.dequantize(stored[theirs].data, stored[theirs].tensor_type)
        expected = processor.process(weights, theirs).weights
        np.testing.assert_array_equal(checkpoint.tensors[ours].read(), expected)


def test_smollm2_tokenizer_json_is_deterministic(smollm2: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        open_checkpoint(smollm2).write_tokenizer(tmp_path / name)
    texts = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("a", "b")]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["model"]["type"] == "BPE"
