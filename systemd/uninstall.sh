#!/bin/sh
# Takes marathond's units, commands and program off this host: `make uninstall`.  Configuration, ledger and artifacts stay, and are named.
#
#   PREFIX   where `make install` has put the program   (default: /opt/marathond)
set -eu

prefix=${PREFIX:-/opt/marathond}
unit_dir=/etc/systemd/system

fail() { echo "uninstall.sh: $1" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "must run as root (the units lie in $unit_dir)"
case $prefix in
    /*) ;;
    *) fail "PREFIX=$prefix: must be an absolute path" ;;
esac
# Only what looks like our own virtual environment is ever removed as a whole.
if [ -e "$prefix" ] && { [ ! -e "$prefix/pyvenv.cfg" ] || [ ! -e "$prefix/bin/marathond" ]; }; then
    fail "PREFIX=$prefix: is not what make install made (no pyvenv.cfg, or no bin/marathond)"
fi
# Agents outlive the daemon by design; without it nobody would ever grade or remove them.
if command -v docker >/dev/null && running=$(docker ps -q --filter label=marathond.ledger 2>/dev/null | wc -l) && [ "$running" -gt 0 ]; then
    fail "$running containers of trials are running: marathonctl drain lets them finish, marathonctl stop --now voids them"
fi

for unit in marathond marathond-gateway; do
    [ -e "$unit_dir/$unit.service" ] || continue
    [ ! -d /run/systemd/system ] || systemctl disable --now "$unit"
    rm -f "$unit_dir/$unit.service"
    echo "removed   $unit_dir/$unit.service"
done
[ ! -d /run/systemd/system ] || systemctl daemon-reload
for command in marathond marathonctl; do
    link=/usr/local/bin/$command
    if [ "$(readlink "$link" || true)" = "$prefix/bin/$command" ]; then
        rm "$link"
        echo "removed   $link"
    fi
done
if [ -e "$prefix" ]; then
    rm -rf "$prefix"
    echo "removed   $prefix"
fi
for place in /etc/marathond /var/lib/marathond; do
    [ ! -e "$place" ] || echo "kept      $place"
done
[ ! -d "$unit_dir/marathond.service.d" ] || echo "kept      $unit_dir/marathond.service.d (drop-ins)"
