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

while read -r number numeral; do
    check "$number" "$numeral" /var/tmp/roman "$number"
done <<'END'
1 I
4 IV
9 IX
14 XIV
40 XL
90 XC
400 CD
1000 M
1994 MCMXCIV
3888 MMMDCCCLXXXVIII
3999 MMMCMXCIX
END
for number in 0 4000 -5 ten; do
    check "$number" "exit 1: out of range" /var/tmp/roman "$number"
done

reward=0
[ "$passed" -eq "$total" ] && reward=1
printf '{"reward": %d, "partial_score": %s, "tests_passed": %d, "tests_failed": %d, "tests_total": %d}\n' \
    "$reward" "$(share "$passed" "$total")" "$passed" "$((total - passed))" "$total" > "$out/metrics.json"
echo "$reward" > "$out/reward.txt"
