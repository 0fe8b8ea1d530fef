#!/usr/bin/env bash
# What a change has to pass, each step with its result: tools/check.sh PYTHON [lint|quick]
# lint: ruff, mypy and import contracts alone. quick: besides them the tests without browser, kernels, ranks and corpus.
# ONLY=rng with quick: of the tests those of one subject, by a word in their path or name, and no mypy.
# All steps run, whatever fails; pytest comes last, so that its summary is the last thing to read.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1 mode=${2:-} only=${ONLY:-}
failed=()

step() {
    local name=$1
    shift
    printf '\n== %s\n' "$name"
    if "$@"; then printf '== %s: passed\n' "$name"; else failed+=("$name"); printf '== %s: FAILED\n' "$name"; fi
}

step "ruff check" "$python" -m ruff check .
step "ruff format" "$python" -m ruff format --check .
[ -n "$only" ] || step "mypy --strict" "$python" -m mypy
step "import contracts" "$python" -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo

# A machine that is busy with something else can be too slow for a test once. A few that fail have a second try, alone.
again() {
    local some
    some=$(grep -c '": true' .pytest_cache/v/cache/lastfailed 2>/dev/null)
    ((${some:-0} > 0 && some <= 5)) || { failed+=("pytest"); return; }
    printf '\n== pytest, a second try of %s that failed\n' "$some"
    "${limit[@]}" "$python" -m pytest --last-failed --last-failed-no-failures none || failed+=("pytest")
}

# A worker a core, and one for the browser, which mostly waits; four at most, since each holds torch. Threads of
# torch's own would only wait for each other's cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Hundreds of processes import the package and its tests: they are compiled once.
unset PYTHONDONTWRITEBYTECODE
tests=(--numprocesses "${WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 1))}" --maxprocesses 4 --durations 40)
[ "$mode" = quick ] && tests+=(-m 'not browser and not notebook and not processes and not corpus')
if [ "$mode" = quick ] && [ -n "$only" ]; then
    # Only files in which the word can be are collected: that takes most of the time.
    mapfile -t files < <({ find tests -ipath "*$only*"; grep -rli --include='test_*.py' -e "$only" tests; } |
        grep '/test_[^/]*[.]py$' | sort -u)
    ((${#files[@]})) || { printf 'no test has %s in its path or name\n' "$only" >&2; exit 2; }
    tests+=(-k "$only" "${files[@]}")
fi
if [ "$mode" != lint ]; then
    ((${#failed[@]})) && printf '\nFAILED before the tests:%s\n' "$(printf ' %s;' "${failed[@]}")"
    printf '\n== pytest\n'
    # A test that waits for ever is a failure, too.
    limit=()
    command -v timeout >/dev/null && limit=(timeout --foreground --kill-after 30 60m)
    "${limit[@]}" "$python" -m pytest "${tests[@]}" ${PYTEST_ARGUMENTS:-} || again
fi

((${#failed[@]} == 0)) || { printf 'FAILED:%s\n' "$(printf ' %s;' "${failed[@]}")" >&2; exit 1; }
