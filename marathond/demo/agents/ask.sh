# What an agent does first whose goal or wake comes from LoopX: the quota call that stands in it.  Without one there is nothing to ask.
cat >/tmp/loopx-ask <<'END'
{{quota}}
END
case $(head -c 2 /tmp/loopx-ask) in '{{') exit 0 ;; esac
[ -e /tmp/loopx-first ] || cp /tmp/loopx-ask /tmp/loopx-first
sh /tmp/loopx-ask >/tmp/loopx-said.json && head -c 400 /tmp/loopx-said.json
