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

check "three lines" "apples: 7
pears: 2" /app/totals apples,3 pears,2 apples,4
check "one line" "zinc: 0" /app/totals zinc,0
check "sorted by bytes" "B: 1
a: 2
b: 3" /app/totals b,3 a,2 B,1
check "negative" "debt: -12" /app/totals debt,-20 debt,8
plain_passed=$passed
plain_total=$total

check "a comma" "Ash, Birch & Co: 2" /app/totals '"Ash, Birch & Co",3' '"Ash, Birch & Co",-1'
check "a doubled quote" 'the "best" one: 5' /app/totals '"the ""best"" one",5'
check "quoted and not are one name" "plain: 3" /app/totals '"plain",1' plain,2
check "quotes and commas" '",": 4
a,b: 1' /app/totals '""",""",4' '"a,b",1'
quoted_passed=$((passed - plain_passed))
quoted_total=$((total - plain_total))

reward=0
[ "$passed" -eq "$total" ] && reward=1
cat > "$out/metrics.json" <<END
{"reward": $reward, "partial_score": $(share "$passed" "$total"), "tests_passed": $passed, "tests_total": $total,
 "stages": {"plain": {"passed": $plain_passed, "total": $plain_total, "score": $(share "$plain_passed" "$plain_total")},
            "quoted": {"passed": $quoted_passed, "total": $quoted_total, "score": $(share "$quoted_passed" "$quoted_total")}}}
END
echo "$reward" > "$out/reward.txt"
