"""trtc/_core.pyi names exactly what the extension module has."""

import ast
import inspect
from pathlib import Path

import pytest

from trtc import _core

STUB = ast.parse((Path(__file__).parents[2] / "trtc" / "_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_has_every_function_and_class():
    functions = {node.name for node in STUB.body if isinstance(node, ast.FunctionDef)}
    assert functions | set(CLASSES) == public(vars(_core))


@pytest.mark.parametrize("name", CLASSES)
def test_the_stub_has_every_member(name):
    described = set()
    for node in CLASSES[name].body:
        if isinstance(node, ast.FunctionDef):
            described.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            described.add(node.target.id)
        elif isinstance(node, ast.Assign):
            described.update(target.id for target in node.targets)
    members = public(vars(getattr(_core, name)))
    if any(ast.unparse(base) == "Enum" for base in CLASSES[name].bases):
        members -= {"name", "value"}
    assert public(described) == members


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in CLASSES
        if any(isinstance(node, ast.FunctionDef) and node.name == "__init__" for node in CLASSES[name].body)
    ],
)
def test_the_stub_has_every_argument_of_a_constructor(name):
    (init,) = [node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    signature = inspect.getdoc(getattr(_core, name).__init__) or ""
    for argument in [*init.args.args[1:], *init.args.kwonlyargs]:
        assert f"{argument.arg}:" in signature, f"{name} has no argument {argument.arg}"


def test_the_stub_has_every_argument_of_a_function():
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            signature = inspect.getdoc(getattr(_core, node.name)) or ""
            described = [argument.arg for argument in node.args.args]
            assert all(f"{name}:" in signature for name in described), signature
            assert signature.partition(" -> ")[0].count(": ") == len(described), signature
