#!/usr/bin/env bash
# Makes the virtual environment DIR and installs the package with EXTRA into it: tools/venv.sh DIR EXTRA
# PYTHON names the interpreter to build it with. Every version comes from constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 extra=$2 python=${PYTHON:-python3}

stop() { printf '\ntensormagic: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || stop "no $python found. Install Python 3.10 or newer (Debian, Ubuntu: apt install python3 python3-venv), or name one: make PYTHON=/path/to/python3"
found=$("$python" -c 'import platform; print(platform.python_version())')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    stop "$python is Python $found, but 3.10 or newer is needed. Name another one: make PYTHON=python3.12"

# Debian and Ubuntu ship venv apart from Python.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    package="python$version-venv"
    if [ "$(id -u)" = 0 ]; then admin=(env)
    elif sudo -n true 2>/dev/null; then admin=(sudo -n env)
    else stop "$python cannot make virtual environments here. Type: sudo apt install $package"
    fi
    command -v apt-get >/dev/null || stop "$python cannot make virtual environments here: its modules ensurepip and venv are missing."
    "${admin[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y update || true
    "${admin[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y install "$package" </dev/null ||
        stop "apt-get could not install $package, without which $python cannot make virtual environments."
fi

# One that we made and that was moved, or whose Python is gone, is made anew. One that somebody else made is used as it
# is: nothing of a person's is ever removed. Ours is told by the file .home, which says where it was made.
works() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }
if [ -e "$venv/.home" ] && ! { works && [ "$(cat "$venv/.home")" = "$PWD" ]; }; then rm -rf "$venv"; fi
if [ ! -e "$venv" ]; then
    mkdir -p "$venv"
    printf '%s' "$PWD" >"$venv/.home"
    "$python" -m venv "$venv"
fi
works || stop "$venv is there, but it is no virtual environment that works. Remove it, or name another one: make VENV=.venv-tensormagic"
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    stop "the Python in $venv is older than 3.10. Name another environment: make VENV=.venv-tensormagic"

"$venv/bin/python" -m pip install --disable-pip-version-check -c constraints.txt -e ".[$extra]"
"$venv/bin/python" -m pip check --disable-pip-version-check
