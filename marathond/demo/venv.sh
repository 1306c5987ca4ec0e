#!/bin/bash
# venv.sh VENV LOG: a virtual environment with the package (editable) and its development tools.
# A shell script because it must say one clear line on a machine whose python3 is too old or has no venv module.
set -euo pipefail
venv=$1 log=$2
say() { echo "set-up: $*" >&2; }
fail() {
    [ ! -s "$log" ] || tail -n 12 "$log" | sed 's/^/  | /' >&2
    say "$*"
    exit 1
}
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
mkdir -p "$(dirname "$log")"
: >"$log"

# Run, not only found: a version manager's shim may be on PATH for a version that is not active.
python=
for candidate in python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed, and no python3 on PATH is one ($(python3 --version 2>&1 || true))"

# Debian splits ensurepip off into python3-venv.
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null ||
        fail "$python has no venv module: install python3-venv (set-up does so itself as root on Debian or Ubuntu)"
    package=python3-venv
    case $("$python" -c 'import sys; print(sys.executable, "%d.%d" % sys.version_info[:2])') in
        /usr/bin/*) package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv ;;
    esac
    say "installing Debian package $package"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -y -q -o DPkg::Lock::Timeout=300 update || true; } >>"$log" 2>&1 </dev/null
    apt-get -y -q -o DPkg::Lock::Timeout=300 install --no-install-recommends "$package" >>"$log" 2>&1 </dev/null ||
        fail "apt-get could not install $package; whole output: $log"
fi

# Scripts inside carry absolute paths: an environment that was moved or lost its interpreter is made anew.
if ! "$venv/bin/pip" --version 2>/dev/null | grep -qF "$(pwd -P)/$venv/"; then
    rm -rf "$venv"
    say "making $venv with $("$python" --version)"
    "$python" -m venv "$venv" >>"$log" 2>&1 || fail "python3 -m venv failed; whole output: $log"
fi
say "installing the package and its tools (about a minute the first time)"
"$venv/bin/pip" install --no-input -e '.[dev]' >>"$log" 2>&1 </dev/null ||
    fail "pip install failed; whole output: $log"
