"""cpp/src/engine/manifest.cc and json.cc: what C++ reads of engine.json, and which backend it chooses by it."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from trtc import _core
from trtc import _test_tensorrt as t
from trtc.errors import EngineError

MANIFEST = {
    "schema_version": 1,
    "target": "tensorrt-rtx",
    "model": {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": None, "tie": True},
    "limits": {
        "vocab_size": 49152,
        "max_batch_size": 8,
        "max_num_tokens": 512,
        "max_seq_len": 2048,
        "max_logit_rows": 64,
        "tokens_per_block": 32,
    },
    "ranks": [{"name": "rank0.engine", "bytes": 3000000000, "engine_hash": "00ff"}],
    "files": [],
    "tensorrt": {"flavour": "tensorrt-rtx", "version": "1.7.1.116", "sm": 89, "kernels": []},
}


def save(folder, manifest, plan=b"a TensorRT plan"):
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest, indent=2, ensure_ascii=False).encode()
    (folder / "engine.json").write_bytes(text)
    (folder / "rank0.engine").write_bytes(plan)
    return str(folder)


def test_the_fields_that_a_backend_needs_are_read(tmp_path):
    manifest = t.read_manifest(save(tmp_path, MANIFEST))
    assert (manifest.target, manifest.ranks, manifest.engine_hash) == ("tensorrt-rtx", 1, "00ff")
    assert {name: getattr(manifest, name) for name in MANIFEST["limits"]} == MANIFEST["limits"]
    facts = manifest.tensorrt
    assert (facts.flavour, facts.version, facts.sm) == ("tensorrt-rtx", "1.7.1.116", 89)


def changed(path, value):
    manifest = json.loads(json.dumps(MANIFEST))
    *folders, name = path.split(".")
    place = manifest
    for folder in folders:
        place = place[folder]
    if value is None:
        del place[name]
    else:
        place[name] = value
    return manifest


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("schema_version", 2, "schema version 2, expected 1"),
        ("target", None, "field target is missing"),
        ("target", 3, "field target is no string"),
        ("ranks", [], "field ranks is empty"),
        ("ranks", {}, "field ranks is no array"),
        ("ranks", [3], "expected an object with the field engine_hash"),
        ("limits.max_seq_len", None, "field max_seq_len is missing"),
        ("limits.max_seq_len", 0, "field max_seq_len is 0, not positive"),
        ("limits.vocab_size", 2**31, "field vocab_size is no int32"),
        ("limits.vocab_size", 1.5, "field vocab_size is no int32"),
        ("limits", 7, "expected an object with the field vocab_size"),
        ("tensorrt", None, "field tensorrt is missing"),
        ("tensorrt.sm", "89", "field sm is no number"),
    ],
)
def test_what_is_wrong_in_a_manifest_is_named(tmp_path, path, value, problem):
    folder = save(tmp_path, changed(path, value))
    with pytest.raises(EngineError, match=rf"engine\.json is damaged \({problem}\); build the engine again"):
        t.read_manifest(folder)


def test_a_missing_manifest_is_an_engine_error(tmp_path):
    with pytest.raises(EngineError, match=r"engine\.json cannot be opened"):
        t.read_manifest(str(tmp_path))


def test_the_runtimes_are_those_whose_library_was_built():
    names = {"tensorrt": "libtrtc_tensorrt.so", "tensorrt-rtx": "libtrtc_tensorrt_rtx.so"}
    folder = Path(_core.__file__).parent
    assert _core.tensorrt_runtimes() == [name for name, library in names.items() if (folder / library).exists()]


def test_an_engine_of_a_runtime_that_was_left_out_is_refused_with_what_to_do(tmp_path):
    """Or, where this build has the runtime: of a machine without such a GPU, or of this version and plan."""
    with pytest.raises(Exception, match=r"(install trtc where CMake finds TensorRT|GPU|was built)"):
        t.open_engine(save(tmp_path, MANIFEST))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("ranks", MANIFEST["ranks"] * 2, "has 2 ranks; this version of trtc runs engines of one rank"),
        ("tensorrt.flavour", "tensorrt-x", "built with tensorrt-x, which this version of trtc does not know"),
    ],
)
def test_an_engine_that_no_runtime_runs_is_refused(tmp_path, path, value, problem):
    with pytest.raises(EngineError, match=problem):
        t.open_engine(save(tmp_path, changed(path, value)))


def test_a_file_of_no_known_form_is_refused_as_before(tmp_path):
    with pytest.raises(EngineError, match=r"rank0\.engine"):
        t.open_engine(save(tmp_path, changed("target", "cpu"), plan=b"x" * 4096))
    (tmp_path / "engine.json").unlink()
    with pytest.raises(EngineError, match=r"rank0\.engine"):
        t.open_engine(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "null",
        " [1, -2.5e3, 0, true, false, null] ",
        '{"a": {"b": [{}, [], ""]}, "": 0}',
        '"\\u00e9\\ud83d\\ude00\\n\\"\\\\\\/ \\b\\f\\r\\t"',
        '"\u00e9\U0001f600"',
        "[" * 64 + "]" * 64,
    ],
)
def test_json_is_read_as_python_reads_it(text):
    assert t.parse_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "byte 0: expected a value"),
        (b"{", "byte 1: expected a name"),
        (b"[1", "byte 2: expected , or ]"),
        (b"[1,]", "byte 3: expected a value"),
        (b'{"a":1,}', "byte 7: expected a name"),
        (b'{"a" 1}', "byte 5: expected :"),
        (b'{"a":1,"a":2}', "a name comes twice"),
        (b"1 2", "something follows the value"),
        (b"nan", "expected a value"),
        (b"-inf", "expected a number"),
        (b"1e999", "expected a number"),
        (b'"abc', "a string does not end"),
        (b'"a\nb"', "a control character in a string"),
        (b'"\\x"', "an unknown escape"),
        (b'"\\u12"', "without four digits"),
        (b'"\\u+123"', "without four digits"),
        (b'"\\ud800\\u0041"', "half a surrogate pair"),
        (b'"\\', "an unknown escape"),
        (b"[" * 100_000, "it nests too deep"),
    ],
)
def test_what_is_no_json_is_refused_where_it_is_none(text, problem):
    with pytest.raises(EngineError, match=problem):
        t.parse_json(text)


def test_damaged_json_is_read_or_refused_but_never_crashes():
    whole = json.dumps(MANIFEST).encode()
    rng = random.Random(3)
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice(b'{}[]",:\\u0e-\x00\x7f')
        with contextlib.suppress(EngineError):
            t.parse_json(bytes(damaged[: rng.randrange(len(damaged) + 1)]))
