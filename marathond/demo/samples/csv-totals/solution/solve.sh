#!/bin/sh
set -eu
cat > /app/totals <<'END'
#!/bin/sh
export LC_ALL=C
printf '%s\n' "$@" | awk '
    {
        name = ""
        rest = $0
        if (substr(rest, 1, 1) == "\"") {
            rest = substr(rest, 2)
            while ((at = index(rest, "\"")) > 0) {
                name = name substr(rest, 1, at - 1)
                rest = substr(rest, at + 1)
                if (substr(rest, 1, 1) != "\"") break
                name = name "\""
                rest = substr(rest, 2)
            }
            number = substr(rest, 2)
        } else {
            at = index(rest, ",")
            name = substr(rest, 1, at - 1)
            number = substr(rest, at + 1)
        }
        total[name] += number
    }
    END { for (name in total) printf "%s: %d\n", name, total[name] }
' | sort
END
chmod +x /app/totals
