#!/bin/sh
set -eu
for card in /sys/class/net/*; do
    name=${card##*/}
    [ "$name" = lo ] && continue
    echo "$name" > /app/interface
    cat "$card/address" > /app/mac
    hostname -I | awk '{ print $1 }' > /app/address
    exit 0
done
echo "no network card but lo" >&2
exit 1
