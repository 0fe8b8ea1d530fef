#!/usr/bin/env bash
# Everything a change has to pass, each step with its result: tools/check.sh PYTHON [lint]
# All steps run, whatever fails; pytest comes last, so that its summary is the last thing to read.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1 only=${2:-}
failed=()

step() {
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then printf '== %s: passed\n' "$name"; else failed+=("$name"); printf '== %s: FAILED\n' "$name"; fi
}

step "ruff check" "$python" -m ruff check .
step "ruff format" "$python" -m ruff format --check .
step "mypy --strict" "$python" -m mypy
step "import contracts" "$python" -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo

if [ "$only" != lint ]; then
    ((${#failed[@]})) && printf '\nFAILED before the tests:%s\n' "$(printf ' %s;' "${failed[@]}")"
    printf '\n== pytest\n'
    "$python" -m pytest ${PYTEST_ARGUMENTS:-} || failed+=("pytest")
fi

((${#failed[@]} == 0)) || { printf 'FAILED:%s\n' "$(printf ' %s;' "${failed[@]}")" >&2; exit 1; }
