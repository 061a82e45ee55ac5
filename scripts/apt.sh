# Functions for the scripts beside this one: to be sourced.

fail() { echo "error: $*" >&2; exit 1; }

# On Debian and its kin, where we may.
apt_install() {
    local run=()
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        run=(sudo -n)
    fi
    echo "installing $*"
    "${run[@]}" apt-get update -qq >/dev/null || true  # a stale package list may still do
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}
