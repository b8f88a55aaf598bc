"""plugins/attention_launch.cc and attention_kernels.cc: what the plugin asks of a CUDA driver that only records."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from tests.cpp.kernel_bundles import attention_kernels, bundle_bytes, plugin_fields
from trtc import _test_tensorrt
from trtc.errors import EngineError, ExecutorError

ROOT = Path(__file__).resolve().parents[2]
STEP_INPUTS = ("position_ids", "query_start", "context_lens", "block_table")
INPUTS = ("query", "key", "value", "kv_cache", *STEP_INPUTS, "cos", "sin")
ADDRESSES = {name: 4096 * (index + 1) for index, name in enumerate(INPUTS)}
OUTPUT, WORKSPACE, STREAM = 1 << 20, 1 << 21, 77


@pytest.fixture(autouse=True)
def _driver():
    _test_tensorrt.reset_driver()
    yield
    assert _test_tensorrt.loaded_modules() == 0  # nothing outlives its kernels


def load(**changed):
    return _test_tensorrt.RecordedKernels(list(plugin_fields(**changed).items()))


def launch(kernels, tokens, seqs, max_blocks, addresses=ADDRESSES, output=OUTPUT):
    kernels.launch(tokens, seqs, max_blocks, list(addresses.values()), output, WORKSPACE, STREAM)
    return _test_tensorrt.launches()


def arguments(launched):
    """By parameter name; the two scratch pointers are null."""
    names = _test_tensorrt.parameter_names()[launched.entry]
    assert launched.parameters[len(names) :] == [0, 0]
    return dict(zip(names, launched.parameters, strict=False))


def workspace(max_tokens, **changed):
    return _test_tensorrt.workspace(list(plugin_fields(**changed).items()), max_tokens)


def test_the_parameters_are_those_of_the_kernels_source():
    folder = ROOT / "plugins/kernels"
    if not folder.exists():
        pytest.skip("this tree has no plugins/kernels")
    for role, names in _test_tensorrt.parameter_names().items():
        tree = ast.parse((folder / f"{role}.py").read_text(encoding="utf-8"))
        (kernel,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == role)
        assert [a.arg for a in kernel.args.args if a.annotation is None] == names


def test_a_step_in_splits_launches_three_kernels():
    kernels = load()
    write, attention, combine = launch(kernels, tokens=5, seqs=3, max_blocks=13)  # 208 positions: 4 splits
    assert [write.entry, attention.entry, combine.entry] == list(_test_tensorrt.parameter_names())
    assert write.grid == [5, 2 + 1, 1]  # 2 programs for queries, 1 for 2 KV heads by fours
    assert attention.grid == [5 // 16 + 3, 2 * 2, 4]
    assert combine.grid == [5, 3, 1]  # 8 heads by threes
    assert [launched.threads for launched in (write, attention, combine)] == [128, 256, 128]
    assert [launched.shared_bytes for launched in (write, attention, combine)] == [1024, 70_000, 1024]
    assert all(launched.stream == STREAM for launched in (write, attention, combine))
    assert _test_tensorrt.shared_attributes() == {"paged_attention": 70_000}  # beyond 48 KB a kernel must ask

    places = workspace(5)
    scratch = {name: WORKSPACE + places[name] for name in ("partial_output", "partial_state", "rotated_query")}
    everything = {**ADDRESSES, **scratch, "output": OUTPUT, "tokens": 5, "seqs": 3, "max_blocks": 13}
    for launched in (write, attention, combine):
        given = arguments(launched)
        assert given == {name: everything[name] for name in given}


def test_a_step_whose_parts_do_not_fit_the_workspace_is_not_split():
    kernels = load()
    launched = launch(kernels, tokens=6, seqs=1, max_blocks=13)  # 6 rows in 4 splits, and room for 20
    assert [one.entry for one in launched] == ["rotary_kv_write", "paged_attention"]
    assert launched[1].grid == [1, 4, 1]
    given = arguments(launched[1])
    assert given["partial_output"] == given["partial_state"] == OUTPUT  # not read


def test_a_context_of_one_split_is_not_combined():
    kernels = load()
    assert [one.grid for one in launch(kernels, tokens=20, seqs=2, max_blocks=4)] == [[20, 3, 1], [1 + 2, 4, 1]]


def test_without_rotation_the_query_serves_as_it_is():
    write, attention, combine = attention_kernels()
    write.constants.update(ROTARY_DIM=0, QUERY_PROGRAMS=0)
    kernels = load(rotary_dim=0, kernels=bundle_bytes(write, attention, combine))
    inputs = {name: ADDRESSES[name] for name in INPUTS[:8]}
    launched = launch(kernels, tokens=4, seqs=4, max_blocks=1, addresses=inputs)
    assert launched[0].grid == [4, 1, 1]
    for name in ("cos", "sin", "rotated_query"):
        assert arguments(launched[0])[name] == ADDRESSES["query"]
    assert arguments(launched[1])["rotated_query"] == ADDRESSES["query"]


def test_the_workspace_holds_its_parts_without_overlap():
    places = workspace(max_tokens=33)
    assert places == {
        "partial_output": 0,
        "partial_state": 20 * 8 * 64 * 4,
        "rotated_query": 20 * 8 * 64 * 4 + 1280,
        "bytes": 20 * 8 * 64 * 4 + 1280 + 33 * 8 * 64 * 2,
    }
    assert workspace(max_tokens=33, rotary_dim=0)["bytes"] == places["rotated_query"]
    assert workspace(max_tokens=1, workspace_rows=0, rotary_dim=0)["bytes"] == 0
    assert workspace(max_tokens=2**31 - 1)["bytes"] > 2**40  # no overflow


def test_layers_of_one_shape_share_their_kernels():
    first, second = load(layer=0), load(layer=1)
    assert first.same(second)
    assert _test_tensorrt.loaded_modules() == 3
    other = load(layer=1, softcap=1.0)
    assert not other.same(first)
    _test_tensorrt.reset_driver(context=2)
    assert not load().same(first)  # a module belongs to its context


@pytest.mark.parametrize(
    ("role", "constant", "problem"),
    [
        ("rotary_kv_write", "NUM_HEADS", "rotary_kv_write was compiled for NUM_HEADS 9, but its layer has 8"),
        ("paged_attention", "BLOCK_SIZE", "paged_attention was compiled for BLOCK_SIZE 9, but its layer has 16"),
        ("combine_splits", "SPLIT", "combine_splits was compiled for SPLIT 9, but its layer has 64"),
        ("paged_attention", "WINDOW", "paged_attention was compiled for WINDOW 9, but its layer has 0"),
    ],
)
def test_kernels_of_another_shape_are_refused(role, constant, problem):
    kernels = attention_kernels()
    next(kernel for kernel in kernels if kernel.role == role).constants[constant] = 9
    with pytest.raises(EngineError, match=problem):
        load(kernels=bundle_bytes(*kernels))


@pytest.mark.parametrize("value", [0, -1, 2**40])
def test_a_tile_size_that_cannot_be_is_refused(value):
    kernels = attention_kernels()
    kernels[1].constants["BLOCK_TOKENS"] = value
    with pytest.raises(EngineError, match=f"paged_attention was compiled with BLOCK_TOKENS {value}, which cannot be"):
        load(kernels=bundle_bytes(*kernels))


def test_a_missing_kernel_or_constant_is_named():
    write, attention, combine = attention_kernels()
    with pytest.raises(EngineError, match="lacks the kernel combine_splits"):
        load(kernels=bundle_bytes(write, attention))
    with pytest.raises(EngineError, match="lacks the kernel rotary_kv_write"):
        load(kernels=bundle_bytes())
    lacking = dataclasses.replace(attention, constants={**attention.constants})
    del lacking.constants["VALUE_PARTS"]
    with pytest.raises(EngineError, match="has a kernel paged_attention without the constant VALUE_PARTS"):
        load(kernels=bundle_bytes(write, lacking, combine))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("cuCtxGetCurrent", "asking for the CUDA context failed"),
        ("cuModuleLoadData", "loading the kernel rotary_kv_write for SM 89 failed"),
        ("cuModuleGetFunction", "finding rotary_kv_write in the kernel rotary_kv_write failed"),
        ("cuFuncSetAttribute", "giving the kernel paged_attention 70000 bytes of shared memory failed"),
    ],
)
def test_a_refusal_of_the_driver_is_said_and_leaves_nothing_loaded(call, problem):
    _test_tensorrt.reset_driver(failing=call)
    with pytest.raises(ExecutorError, match=rf"{problem}: CUDA_ERROR_NO_BINARY_FOR_GPU \(CUDA error 209\)"):
        load()
    assert _test_tensorrt.loaded_modules() == 0


def test_a_failing_launch_names_the_kernel():
    kernels = load()
    _test_tensorrt.reset_driver(failing="cuLaunchKernel")
    with pytest.raises(ExecutorError, match="launching the kernel rotary_kv_write failed: CUDA_ERROR"):
        launch(kernels, tokens=1, seqs=1, max_blocks=1)


def test_a_thread_without_a_context_is_told_so():
    _test_tensorrt.reset_driver(context=0)
    with pytest.raises(ExecutorError, match="this thread has no CUDA context"):
        load()


@pytest.mark.parametrize("address", [0, 8, 4097])
def test_a_pointer_that_kernels_were_not_compiled_for_is_refused(address):
    kernels = load()
    with pytest.raises(ExecutorError, match=f"attention got the pointer {address} for key, expected a multiple of 16"):
        launch(kernels, tokens=1, seqs=1, max_blocks=1, addresses={**ADDRESSES, "key": address})
    assert _test_tensorrt.launches() == []


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_an_empty_step_is_refused(shape):
    kernels = load()
    with pytest.raises(ExecutorError, match="expected at least 1 of each"):
        launch(kernels, *shape)


def test_a_machine_without_a_driver_is_told_so():
    try:
        _test_tensorrt.load_this_machines_driver()
    except ExecutorError as error:
        assert "this machine has no NVIDIA driver" in str(error)
