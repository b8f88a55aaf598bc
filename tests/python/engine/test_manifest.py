from __future__ import annotations

import json

import pytest

from trtc.engine.manifest import _checksum, load_manifest
from trtc.errors import EngineError


def edit(engine, change):
    path = engine / "engine.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def leaves(values, path=()):
    if isinstance(values, dict | list):
        for key, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from leaves(value, (*path, key))
    else:
        yield path


def test_manifest_says_what_was_built(engine):
    manifest = load_manifest(engine)
    assert manifest.target == "cpu" and manifest.required_isa == "portable"
    assert manifest.model.model_type == "toy"
    assert manifest.build_config.max_num_tokens == 32
    assert manifest.limits.vocab_size == 29
    assert manifest.precision == {
        "embedding and logits": "float32",
        "norms, biases and tables": "float32",
        "mlp": "float32",
    }
    assert manifest.memory.weight_bytes == sum(manifest.memory.weight_bytes_by_group.values())
    assert manifest.memory.kv_bytes_per_token == 2 * 8 * 4
    assert [file.name for file in manifest.files] == ["tokenizer.json"]


def test_reformatting_without_a_change_is_harmless(engine):
    edit(engine, lambda values: None)
    load_manifest(engine)


def test_an_edit_of_any_value_is_refused(engine):
    path = engine / "engine.json"
    original = path.read_text()
    for place in leaves(json.loads(original)):
        values = json.loads(original)
        parent = values
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = "edited" if parent[place[-1]] != "edited" else None
        path.write_text(json.dumps(values))
        with pytest.raises(EngineError):
            load_manifest(engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(schema_version=2), "schema version 2, this version of trtc reads 1"),
        (lambda v: v.pop("schema_version"), "schema version None"),
        (lambda v: v["limits"].update(max_seq_len=9999), "was edited or damaged"),
        (lambda v: v.update(comment="mine"), "was edited or damaged"),
        (lambda v: v.pop("checksum"), "was edited or damaged"),
        (lambda v: v.clear(), "schema version None"),
    ],
)
def test_edit_is_told_in_a_sentence(engine, change, message):
    edit(engine, change)
    with pytest.raises(EngineError, match=message):
        load_manifest(engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["limits"].update(max_beams=4), "field limits.max_beams: Extra inputs"),
        (lambda v: v["build_config"].update(max_beams=4), "BuildConfig.max_beams: no such field"),
        (lambda v: v["build_config"]["quant"].update(group_size=48), "QuantConfig.group_size: got 48"),
    ],
)
def test_fields_of_another_version_are_refused_by_name(engine, change, message):
    def change_and_sign(values):
        del values["checksum"]
        change(values)
        values["checksum"] = _checksum(values)

    edit(engine, change_and_sign)
    with pytest.raises(EngineError, match=message):
        load_manifest(engine)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"schema_version": 1', "\xff\xfe", "[" * 100_000])
def test_text_that_is_no_manifest_is_refused(engine, text):
    (engine / "engine.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(EngineError, match=r"engine\.json"):
        load_manifest(engine)


def test_directory_without_manifest_is_no_engine(tmp_path):
    with pytest.raises(EngineError, match="is not an engine directory"):
        load_manifest(tmp_path)
