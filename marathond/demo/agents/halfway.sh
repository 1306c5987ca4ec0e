#!/bin/sh
# A small agent that does half of the work.
#
# It reads the task's instruction from the file $MARATHOND_INSTRUCTION and does two simple things with it: it runs the shell blocks
# that the instruction offers, and, when the wanted program is still missing or answers the examples wrongly, it writes one that knows the
# examples by heart.  Who asks for no more than the examples is satisfied; real tests ask for more.
set -u
instruction=${MARATHOND_INSTRUCTION:?names the file of the instruction}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() {
    echo "halfway: $*"
}

quoted() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# 1. Shell blocks of the instruction.
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$instruction" > "$work/block.sh"
if [ -s "$work/block.sh" ]; then
    say "runs the shell block of the instruction"
    sh "$work/block.sh" || say "the block failed with $?"
fi

# 2. Examples: lines "    $ ./PROGRAM ARGUMENTS" and the output below them.
awk '
    /^```/ { fenced = !fenced }
    fenced || !/^    / { next }
    { sub(/^    /, ""); print (/^\$ \.\// ? "" : "> ") $0 }
' "$instruction" > "$work/examples"
program=$(sed -n 's/^\$ \.\/\([a-z-]*\).*/\1/p' "$work/examples" | head -n 1)
if [ -z "$program" ]; then
    say "sees no examples: done"
    exit 0
fi
folder=$(grep -o "\`/[a-z/]*/$program\`" "$instruction" | head -n 1 | tr -d '`')
folder=${folder%/*}
target=$folder/$program

answers_examples() {
    [ -x "$target" ] || return 1
    cd "$folder" || return 1
    expected=
    actual=
    while IFS= read -r line; do
        case $line in
            '$ '*) actual="$actual$(sh -c "${line#??}" 2>/dev/null </dev/null)
" ;;
            '> '*) expected="$expected${line#??}
" ;;
        esac
    done < "$work/examples"
    [ "$actual" = "$expected" ]
}

learn_by_heart() {
    {
        echo '#!/bin/sh'
        echo 'case "$*" in'
        first=yes
        while IFS= read -r line; do
            case $line in
                '$ '*)
                    [ -n "$first" ] || echo '        ;;'
                    first=
                    eval "set -- ${line#"\$ ./$program"}"
                    echo "    $(quoted "$*"))"
                    ;;
                '> '*) echo "        echo $(quoted "${line#??}")" ;;
            esac
        done < "$work/examples"
        echo '        ;;'
        echo '    *) echo "no idea"; exit 3 ;;'
        echo 'esac'
    } > "$work/program"
    cp "$work/program" "$target" && chmod +x "$target"
}

if answers_examples; then
    say "$target answers the examples: done"
else
    say "learns the examples of $target by heart"
    learn_by_heart
fi
