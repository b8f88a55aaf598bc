"""The documents say what is there: model types, quantization, and every file they name."""

import re
from pathlib import Path

import pytest

from model_recipes import known_recipes
from trtc.config import QuantAlgo

ROOT = Path(__file__).parents[2]


def first_column(text: str) -> list[str]:
    """The backticked names that begin table rows."""
    return [name for row in re.findall(r"^\| (`[^|]*) \|", text, re.M) for name in re.findall(r"`([^`]+)`", row)]


def test_readme_lists_exactly_the_recipes():
    section = (ROOT / "README.md").read_text().partition("| model type |")[2].partition("\n\n")[0]
    assert sorted(first_column(section)) == known_recipes()


def test_readme_lists_exactly_the_quantizations():
    section = (ROOT / "README.md").read_text().partition("| `--quant` |")[2].partition("\n\n")[0]
    assert sorted(first_column(section)) == sorted(algo.value for algo in QuantAlgo)


@pytest.mark.parametrize(
    "document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/environment.md", "docs/tensorrt.md"]
)
def test_every_file_a_document_names_exists(document):
    tracked = [
        path.relative_to(ROOT).as_posix()
        for folder in ("trtc", "model_recipes", "plugins", "cpp", "tests", "scripts", "docs")
        for path in (ROOT / folder).rglob("*")
    ]
    tracked += [path.name for path in ROOT.iterdir()]
    named = re.findall(r"[`(]([\w./]+\.(?:py|cc|h|md|sh|toml)|(?:\w+/)+)[`)]", (ROOT / document).read_text())
    for name in named:
        wanted = name.rstrip("/")
        assert any(path == wanted or path.endswith("/" + wanted) for path in tracked), f"{document} names {name}"


def test_documents_link_to_files_that_exist():
    for document in ROOT.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
            assert (ROOT / link).exists(), f"{document.name} links to {link}"
