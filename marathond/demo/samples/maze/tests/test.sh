#!/bin/sh
# Writes metrics.json and reward.txt: 1 only when every check passes.
set -u
export LC_ALL=C
out=/logs/verifier
mkdir -p "$out"
passed=0
total=0

# check NAME EXPECTED COMMAND...: the command's output (and its exit status, when that is not 0) must be EXPECTED.
check() {
    name=$1
    expected=$2
    shift 2
    total=$((total + 1))
    actual=$(timeout 5 "$@" 2>/dev/null </dev/null)
    status=$?
    [ "$status" -eq 0 ] || actual="exit $status: $actual"
    if [ "$actual" = "$expected" ]; then
        passed=$((passed + 1))
        echo "ok   $name"
    else
        echo "FAIL $name: expected '$expected', got '$actual'"
    fi
}

share() {
    awk -v passed="$1" -v total="$2" 'BEGIN { printf "%.4f", passed / total }'
}

check "a straight line" 2 /app/maze S.E
check "side by side" 1 /app/maze ES
check "walled in" none /app/maze 'S#' '#E'
check "around one wall" 6 /app/maze 'S..' '##.' 'E..'
check "the shorter of two" 4 /app/maze '.....' '.###.' 'S...E' '.....'
check "a spiral" 25 /app/maze 'S......' '######.' '.....#.' '.###E#.' '.#####.' '.......'
check "no way around a border" none /app/maze 'S.#.' '..#.' '..#E'

reward=0
[ "$passed" -eq "$total" ] && reward=1
printf '{"reward": %d, "partial_score": %s, "tests_passed": %d, "tests_failed": %d, "tests_total": %d}\n' \
    "$reward" "$(share "$passed" "$total")" "$passed" "$((total - passed))" "$total" > "$out/metrics.json"
echo "$reward" > "$out/reward.txt"
