#!/bin/sh
set -eu
cat > /app/maze <<'END'
#!/bin/sh
printf '%s\n' "$@" | awk '
    {
        for (column = 1; column <= length($0); column++) {
            cell[NR, column] = substr($0, column, 1)
            if (cell[NR, column] == "S") { queue[0] = NR " " column; steps[NR, column] = 0 }
        }
    }
    function visit(row, column, distance) {
        if (((row, column) in cell) && cell[row, column] != "#" && !((row, column) in steps)) {
            steps[row, column] = distance
            queue[last++] = row " " column
        }
    }
    END {
        last = 1
        for (first = 0; first < last; first++) {
            split(queue[first], at, " ")
            distance = steps[at[1], at[2]]
            if (cell[at[1], at[2]] == "E") { print distance; exit }
            visit(at[1] - 1, at[2], distance + 1)
            visit(at[1] + 1, at[2], distance + 1)
            visit(at[1], at[2] - 1, distance + 1)
            visit(at[1], at[2] + 1, distance + 1)
        }
        print "none"
    }
'
END
chmod +x /app/maze
