"""Environment variables are read in one place and documented."""

import re
from pathlib import Path

import pytest

from trtc import ConfigError, environment

ROOT = Path(__file__).parents[2]


def test_every_variable_is_documented_with_its_meaning():
    rows = (ROOT / "docs" / "environment.md").read_text().splitlines()
    for variable in environment.VARIABLES:
        (row,) = [row for row in rows if row.startswith(f"| `{variable.name}` |")]
        assert f"| {variable.reader}" in row


def test_python_reads_the_environment_in_one_file_only():
    files = [path for folder in ("trtc", "model_recipes") for path in (ROOT / folder).rglob("*.py")]
    readers = [path.relative_to(ROOT).as_posix() for path in files if re.search(r"environ\b|getenv", path.read_text())]
    assert [path for path in readers if path != "trtc/environment.py"] == []


def test_cpp_reads_only_the_listed_variables():
    sources = [*(ROOT / "cpp").rglob("*.cc"), *(ROOT / "cpp").rglob("*.h")]
    names = {name for path in sources for name in re.findall(r'getenv\("(\w+)"\)', path.read_text())}
    assert names <= {variable.name for variable in environment.VARIABLES if variable.reader == "C++"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TRTC_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/trtc"),
        ({"HOME": "/h"}, "/h/.cache/trtc"),
        ({"TRTC_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/trtc"),
        ({"TRTC_CACHE_DIR": "~/x", "HOME": "/h"}, "/h/x"),
    ],
)
def test_the_cache_lies_where_the_variables_say(monkeypatch, variables, expected):
    for name in ("TRTC_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.cache_dir() == Path(expected)


@pytest.mark.parametrize("name", ["TRTC_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_home_directory_that_nobody_has_is_a_config_error(monkeypatch, name):
    monkeypatch.delenv("TRTC_CACHE_DIR", raising=False)
    monkeypatch.setenv(name, "~nobody-of-that-name/cache")
    with pytest.raises(ConfigError, match="home directory is unknown; set TRTC_CACHE_DIR"):
        environment.cache_dir()
    with pytest.raises(ConfigError, match="home directory is unknown; give the full path"):
        environment.user_path("~nobody-of-that-name/model")
