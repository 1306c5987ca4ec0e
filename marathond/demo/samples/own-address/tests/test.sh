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

# What is true comes from the kernel, not from the tools that the agent is likely to have used.
card=$(for name in $(ls /sys/class/net); do [ "$name" = lo ] || echo "$name"; done | head -n 1)
addresses=$(awk '/host LOCAL/ && last !~ /^127\./ { print last } { last = $2 }' /proc/net/fib_trie | sort -u)
[ -n "$card" ] || card="no card at all: this container has no network"
check "interface" "$card" cat /app/interface
check "mac" "$(cat "/sys/class/net/$card/address" 2>/dev/null || echo none)" cat /app/mac
check "address" "${addresses:-no address at all}" cat /app/address

reward=0
[ "$passed" -eq "$total" ] && reward=1
printf '{"reward": %d, "partial_score": %s, "tests_passed": %d, "tests_failed": %d, "tests_total": %d}\n' \
    "$reward" "$(share "$passed" "$total")" "$passed" "$((total - passed))" "$total" > "$out/metrics.json"
echo "$reward" > "$out/reward.txt"
