"""A recipe takes tensors by name and shape; anything missing, extra, mis-shaped or not finite is named."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from trtc.checkpoint.safetensors_reader import open_safetensors
from trtc.checkpoint.tensor_handle import Transposed
from trtc.checkpoint.weight_map import WeightMap
from trtc.errors import CheckpointError

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def weight_map(directory: Path, **tensors: np.ndarray) -> WeightMap:
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, directory / "m.safetensors")
    return WeightMap(open_safetensors(directory / "m.safetensors")[0], "llama")


def test_weights_are_float32_or_bfloat16_whatever_the_file_stores(tmp_path: Path) -> None:
    stored = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
    weights = weight_map(tmp_path, **{name: VALUES.astype(dtype) for name, dtype in stored.items()})
    for name in stored:
        weight = weights.take(name, (3, 4))
        expected = "bfloat16" if name == "bf16" else "float32"
        assert (weight.dtype, weight.read().dtype.name, weight.read_rows(0, 1).dtype.name) == (expected,) * 3
        np.testing.assert_array_equal(weight.read().astype(np.float32), VALUES)


def test_transposed_weight_reads_rows_of_the_transpose(tmp_path: Path) -> None:
    weight = weight_map(tmp_path, w=VALUES).take("w", (4, 3), transpose=True)
    assert weight.shape == (4, 3)
    np.testing.assert_array_equal(weight.read(), VALUES.T)
    np.testing.assert_array_equal(weight.read_rows(1, 3), VALUES.T[1:3])
    assert weight.read().flags.c_contiguous and weight.read_rows(1, 3).flags.c_contiguous


def test_transposing_a_transposed_tensor_reads_the_stored_one(tmp_path: Path) -> None:
    handle = weight_map(tmp_path, w=VALUES).take("w", (3, 4)).handle
    weight = WeightMap({"w": Transposed(handle)}, "gpt2").take("w", (3, 4), transpose=True)
    assert weight.handle is handle
    np.testing.assert_array_equal(weight.read(), VALUES)


def test_missing_tensor_is_named_with_the_recipe_and_the_nearest_name(tmp_path: Path) -> None:
    weights = weight_map(tmp_path, **{"model.norm.weight": VALUES})
    with pytest.raises(
        CheckpointError, match=r"model\.norm\.bias is missing; recipe llama .*\[4\].*model\.norm\.weight"
    ):
        weights.take("model.norm.bias", (4,))


def test_optional_tensor_may_be_absent(tmp_path: Path) -> None:
    weights = weight_map(tmp_path, w=VALUES)
    assert weights.take("bias", (4,), optional=True) is None
    assert weights.has("w") and not weights.has("bias")


def test_wrong_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor w has shape \[3, 4\], but recipe llama expects \[4, 3\]"):
        weight_map(tmp_path, w=VALUES).take("w", (4, 3))


def test_integers_are_not_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tensor w is stored as I8, but recipe llama expects floating point"):
        weight_map(tmp_path, w=VALUES.astype(np.int8)).take("w", (3, 4))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")])
def test_value_that_is_not_finite_is_found_and_placed(dtype: type, value: float, kind: str, tmp_path: Path) -> None:
    damaged = VALUES.astype(dtype)
    damaged[2, 1] = value
    weights = weight_map(tmp_path, w=damaged)
    message = rf"tensor w \(recipe llama\) holds {kind} at \[2, 1\]"
    with pytest.raises(CheckpointError, match=message):
        weights.take("w", (3, 4)).read()
    with pytest.raises(CheckpointError, match=message):
        weights.take("w", (3, 4)).read_rows(1, 3)
    weights.take("w", (3, 4)).read_rows(0, 2)


def test_unused_tensors_are_listed_in_the_end(tmp_path: Path) -> None:
    weights = weight_map(tmp_path, a=VALUES, b=VALUES, **{"h.0.attn.masked_bias": VALUES})
    weights.take("a", (3, 4))
    weights.ignore(r"h\.\d+\.attn\.masked_bias")
    with pytest.raises(CheckpointError, match=r"recipe llama does not use 1 tensor\(s\) of the checkpoint: b \[3, 4\]"):
        weights.finish()
    weights.take("b", (3, 4))
    weights.finish()


def test_row_ranges_outside_the_tensor_are_a_bug_of_the_caller(tmp_path: Path) -> None:
    weight = weight_map(tmp_path, w=VALUES).take("w", (3, 4))
    for start, stop in ((0, 4), (-1, 2), (2, 1)):
        with pytest.raises(IndexError, match=r"tensor w: rows"):
            weight.read_rows(start, stop)
