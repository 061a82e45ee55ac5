#!/usr/bin/env bash
# Make the virtual environment and see that there is a C++ compiler.
# On Debian and its kin, missing system packages are installed where we may.
set -euo pipefail
venv=${1:-.venv}

# shellcheck source=scripts/apt.sh
source "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

is_311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in python3.11 python3 /usr/bin/python3.11 /usr/bin/python3; do
        if is_311 "$candidate"; then echo "$candidate"; return; fi
    done
    return 1
}

has_headers() {
    "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

python=$(find_python) || { apt_install python3.11 && python=$(find_python); } ||
    fail "Python 3.11 is needed: neither python3.11 nor python3 is one"
"$python" -c 'import ensurepip' 2>/dev/null || apt_install python3.11-venv ||
    fail "$python has no ensurepip: install python3.11-venv"
has_headers "$python" || apt_install python3.11-dev ||
    fail "$python has no C headers: install python3.11-dev"
command -v "${CXX:-c++}" >/dev/null || apt_install g++ ||
    fail "a C++17 compiler is needed: install g++ or set CXX"
# Tests cut links between network namespaces with it; without it they fail, or are skipped for a plain user.
command -v ip >/dev/null || apt_install iproute2 || true

is_311 "$venv/bin/python" || "$python" -m venv --clear "$venv"
