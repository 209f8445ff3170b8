#!/usr/bin/env bash
# Makes .venv ready for one purpose, or returns at once if it already is.
#
#   tools/setup_env.sh demo      torch, the OpenMMLab packages, timm, onnxruntime, Ray
#   tools/setup_env.sh test      demo, transformers, pytest, ruff, mypy
#   tools/setup_env.sh upstream  test with upstream's OpenMMLab, in .venv-upstream
#   tools/setup_env.sh ops       demo, and mmcv's operators compiled
#   tools/setup_env.sh docs      demo, and mkdocs
#   tools/setup_env.sh lint      ruff and mypy
#
# Environment: PYTHON          interpreter that .venv is made from (python3)
#              PIP_FIND_LINKS  folders where pip also looks for wheels, e.g. of mmcv
#              MAX_JOBS        compilers that run at once when mmcv is built (all cores)
#
# A stamp in the environment, written last, names the purpose and a checksum of what
# decides the content. An interrupted run leaves no stamp, and the next one repairs it.
set -euo pipefail

say() { echo "setup_env: $*"; }
die() { say "$*" >&2; exit 1; }

mode=${1:-}
[[ $mode =~ ^(demo|test|upstream|ops|docs|lint)$ ]] ||
  die 'usage: tools/setup_env.sh demo|test|upstream|ops|docs|lint'
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3}
venv=.venv
if [ "$mode" = upstream ]; then venv=.venv-upstream; fi
py=$venv/bin/python
pins=requirements/constraints.txt
free_gb_wanted=8

# pip_install WHAT ARGS... : one line of progress, then pip with all pins.
pip_install() {
  say "installing $1 ..."
  "$py" -m pip install -qq -c "$pins" --build-constraint "$pins" "${@:2}" ||
    die "pip could not install $1, see its message above"
}

# Prints the X.Y of an interpreter, or nothing if it does not run.
version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

# require_supported INTERPRETER ADVICE
require_supported() {
  local version
  version=$(version_of "$1")
  [ -n "$version" ] || die "$1 does not run; $2"
  [[ $version =~ ^3\.(10|11|12)$ ]] ||
    die "$1 is Python $version, supported are 3.10, 3.11 and 3.12; $2"
}

make_venv() {
  require_supported "$PYTHON" 'choose another with PYTHON=...'
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    die "$PYTHON lacks the venv module (Debian, Ubuntu: apt install python3-venv)"
  say "making $venv with Python $(version_of "$PYTHON") ..."
  "$PYTHON" -m venv --clear "$venv"
  "$py" -m pip install -qq -c "$pins" pip || die 'pip could not update itself'
}

require_disk() {
  local free_gb
  free_gb=$(df -Pk . | awk 'NR == 2 {print int($4 / 1048576)}')
  [ "$free_gb" -ge "$free_gb_wanted" ] ||
    die "only $free_gb GB of disk space is free, a new $venv wants $free_gb_wanted GB"
}

has_ops() { "$py" -c 'import mmcv._ext' 2>/dev/null; }

# Wheels of mmcv with and without ops have the same version: pip swaps them only when
# forced to, and only the import tells which one is there.
swap_mmcv() {
  "$py" -m pip install --force-reinstall --no-deps -c "$pins" "$@" &>/dev/null &&
    has_ops
}

# CPU ops also where there is a GPU: they need no nvcc. No pip cache, which may hold a
# build without ops. CFLAGS replaces Python's own flags: optimised, no debug symbols.
build_ops() {
  command -v "${CXX:-c++}" >/dev/null ||
    die "there is no C++ compiler (${CXX:-c++})"
  "$py" -c 'import os, sysconfig
os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null ||
    die 'Python.h is missing (python3-dev)'
  say "compiling mmcv's operators: 10-12 minutes on 2 cores, log in $1/build.log ..."
  mkdir -p "$1"
  CUDA_VISIBLE_DEVICES='' \
    MAX_JOBS=${MAX_JOBS:-$(nproc)} CFLAGS="${CFLAGS:--O2 -DNDEBUG -g0}" \
    "$py" -m pip wheel -v -c "$pins" --no-build-isolation --no-deps --no-cache-dir \
    --no-binary onedl-mmcv -w "$1" onedl-mmcv &>"$1/build.log" ||
    die "mmcv did not compile, see $1/build.log"
}

install_ops() {
  if has_ops; then return; fi
  local wheels
  wheels=.wheels/$("$py" -c 'import sys, torch
print("torch%s-cp%d%d" % (torch.__version__.split("+")[0], *sys.version_info[:2]))')
  say 'looking for a wheel of mmcv with compiled ops ...'
  if swap_mmcv "$wheels"/onedl_mmcv-*.whl; then return; fi
  if swap_mmcv --only-binary onedl-mmcv onedl-mmcv; then return; fi
  build_ops "$wheels"
  swap_mmcv "$wheels"/onedl_mmcv-*.whl || die "the build in $wheels has no working ops"
}

# check MODULES : all must import.
check() {
  local message
  message=$("$py" -c "import $1" 2>&1) ||
    die "check failed: $(tail -n 1 <<<"$message") (make clean starts afresh)"
}

checksum=$({ pwd; cat setup.py tools/setup_env.sh requirements/*.txt; } | cksum)
checksum=${checksum%% *}
asked=$(version_of "$PYTHON") found=$(version_of "$py")
if [ -n "$asked" ] && [ -n "$found" ] && [ "$asked" != "$found" ]; then
  say "using the present $venv with Python $found, not $asked (make clean removes it)"
fi
if [ -n "$found" ] && [ -e "$venv/.$mode-$checksum" ]; then exit 0; fi

[ "$mode" = lint ] || "$py" -c 'import torch' 2>/dev/null || require_disk
"$py" -m pip --version &>/dev/null || make_venv
require_supported "$py" 'make clean removes it'
find "$venv/" -mindepth 1 -maxdepth 1 -name '.*-*' ! -name "*-$checksum" -delete

if [ "$mode" = lint ]; then
  pip_install 'ruff and mypy' ruff mypy
  touch "$venv/.lint-$checksum"
  exit
fi
pip_install 'torch (about a minute if new)' -r requirements/build.txt
if [ "$mode" = test ]; then
  pip_install 'the OpenMMLab stack and the test tools' -e '.[all,llama,ray,tests]'
  check 'onnxruntime, onnxscript, pytest, transformers, xdist'
elif [ "$mode" = upstream ]; then
  pip_install "upstream's OpenMMLab packages and the test tools" \
    -r requirements/upstream.txt -e '.[onnx,ray,tests]'
  # mmengine 0.10.7 looks there alone for the configs of an installed package.
  ln -sfn "$PWD/snnet_mm" "$("$py" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/snnet_mm"
else
  pip_install 'the OpenMMLab stack, onnxruntime and Ray' -e '.[mminstall,optional,ray]'
fi
if [ "$mode" = ops ]; then install_ops; fi
if [ "$mode" = docs ]; then pip_install 'mkdocs' -r requirements/docs.txt; fi
check 'torch, torchvision, timm, mmengine, mmcv, mmseg, mmdet, mmpretrain'
touch "$venv/.demo-$checksum"
if [ "$mode" = test ]; then touch "$venv/.lint-$checksum"; fi
touch "$venv/.$mode-$checksum"
