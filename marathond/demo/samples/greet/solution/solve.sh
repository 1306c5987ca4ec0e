#!/bin/sh
set -eu
cat > /app/greet <<'END'
#!/bin/sh
[ "$#" -gt 0 ] || set -- world
for name in "$@"; do
    printf '%s, %s!\n' "$GREETING" "$name"
done
END
chmod +x /app/greet
