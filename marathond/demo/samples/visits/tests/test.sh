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

cd /srv/visits || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' 'ann /a 3' 'ann /a 3' 'ann /a 9' 'bob /b 1' 'cid /b 1' 'bob /c 1' 'cid /c 2' 'dan /c 2' 'eve /d 1' > "$work/repeat.log"
printf '%s\n' 'ann /z 1' 'bob /y 1' 'cid /x 1' 'dan /w 1' > "$work/equal.log"
printf '%s\n' 'ann /only 1' > "$work/one.log"
: > "$work/empty.log"
check "the log of the image" "/p1 19
/p6 19
/p2 18" ./report visits.log
check "users who come again" "/c 3
/b 2
/a 1" ./report "$work/repeat.log"
check "all equal" "/w 1
/x 1
/y 1" ./report "$work/equal.log"
check "one page" "/only 1" ./report "$work/one.log"
check "no visits" "" ./report "$work/empty.log"

reward=0
[ "$passed" -eq "$total" ] && reward=1
printf '{"reward": %d, "partial_score": %s, "tests_passed": %d, "tests_failed": %d, "tests_total": %d}\n' \
    "$reward" "$(share "$passed" "$total")" "$passed" "$((total - passed))" "$total" > "$out/metrics.json"
echo "$reward" > "$out/reward.txt"
