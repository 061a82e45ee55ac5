#!/usr/bin/env bash
# Make the environments of the frameworks that benchmarks/train.py compares with:
#
#     benchmarks/peers/install.sh [torchrec] [tensorflow] [paddle]
#
# One per framework, under build/peers (plain torch runs in ours); what is there already is left
# as it is. A framework that can't be installed is skipped with a line that says why, and the
# benchmark leaves it out.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
home=$root/build/peers
python=${PYTHON:-$root/.venv/bin/python}
export PIP_DISABLE_PIP_VERSION_CHECK=1

# Each step is one call of pip; torchrec's own requirements name packages without a CPU build.
steps_of() {
    case $1 in
    torchrec)
        echo "torch==2.13.0 numpy==2.4.6"
        echo "--no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0"
        echo "iopath==0.1.10 psutil pyre-extensions==0.0.32 tensordict torchmetrics==1.0.3 tqdm"
        ;;
    tensorflow) echo "tensorflow-cpu==2.21.0" ;;
    paddle) echo "paddlepaddle==2.6.2 numpy<2 protobuf==3.20.3 setuptools<81" ;;
    *) return 1 ;;
    esac
}

import_of() {
    case $1 in
    torchrec) echo "import torchrec, torchrec.modules.fused_embedding_modules" ;;
    paddle) echo "import paddle, paddle.distributed.fleet" ;;
    *) echo "import $1" ;;
    esac
}

install() {
    local name=$1 venv=$home/$1 log=$home/$1.log steps step
    steps=$(steps_of "$name") || { echo "$name: no such peer: torchrec, tensorflow or paddle"; return; }
    local wanted
    wanted=$(printf '%s\n%s' "$("$python" -V)" "$steps")
    if [ "$(cat "$venv/.installed" 2>/dev/null)" = "$wanted" ]; then echo "$name: there already"; return; fi
    echo "$name: installing"
    "$python" -m venv --clear "$venv" >"$log" 2>&1 || { skip "$name" "$log"; return; }
    while read -ra step; do
        "$venv/bin/pip" install -q --no-input "${step[@]}" >>"$log" 2>&1 || { skip "$name" "$log"; return; }
    done <<<"$steps"
    "$venv/bin/python" -c "$(import_of "$name")" >>"$log" 2>&1 || { skip "$name" "$log"; return; }
    printf '%s' "$wanted" >"$venv/.installed"
    echo "$name: installed"
}

skip() { # NAME LOG
    echo "$1: skipped: $(grep -v -e '^WARNING' -e '^ *$' "$2" | tail -n 1 | cut -c1-200) (all of it: $2)"
}

mkdir -p "$home"
[ $# -gt 0 ] || set -- torchrec tensorflow paddle
for name; do install "$name"; done
