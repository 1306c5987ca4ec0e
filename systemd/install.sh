#!/bin/sh
# Installs marathond's units on this host, the daemon's and the gateway's: `make install`.
#
#   PROGRAM   the marathond to run   (default: the one of this checkout's .venv, else the one on PATH)
#   DESTDIR   root to install into   (default: this host; with DESTDIR nothing is reloaded)
#
# Existing configuration is kept.  Nothing is started or enabled: the last lines say how.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
unit_dir=$root/etc/systemd/system
config_dir=$root/etc/marathond

fail() { echo "install.sh: $1" >&2; exit 1; }

program=${PROGRAM:-}
if [ -z "$program" ]; then
    if [ -x "$here/../.venv/bin/marathond" ]; then
        program=$(cd "$here/../.venv/bin" && pwd)/marathond
    else
        program=$(command -v marathond) || fail "no marathond on PATH and none in .venv; name it with PROGRAM=/path/to/marathond"
    fi
fi
case $program in
    /*) ;;
    *) fail "PROGRAM=$program: must be an absolute path" ;;
esac
# systemd reads $, % and blanks in ExecStart as its own; sed reads & | and \ as its own.
case $program in
    *[!A-Za-z0-9/._+-]*) fail "PROGRAM=$program: may hold letters, digits and / . _ + - only" ;;
esac
[ -x "$root$program" ] || [ -x "$program" ] || fail "$program: not an executable file"
[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "must run as root (the unit goes to $unit_dir); or stage into a folder with DESTDIR="

umask 022
mkdir -p "$unit_dir" "$config_dir"
for unit in marathond.service marathond-gateway.service; do
    # Written aside and renamed: systemd never reads half a unit.
    sed "s|^ExecStart=/usr/local/bin/marathond |ExecStart=$program |" "$here/$unit" >"$unit_dir/.$unit.new"
    grep -q "^ExecStart=$program " "$unit_dir/.$unit.new" || fail "$unit has no ExecStart line to fill in"
    mv "$unit_dir/.$unit.new" "$unit_dir/$unit"
    echo "installed $unit_dir/$unit (runs $program)"
done

if [ -e "$config_dir/config.toml" ]; then
    echo "kept      $config_dir/config.toml"
else
    cp "$here/../config.example.toml" "$config_dir/config.toml"
    chmod 0640 "$config_dir/config.toml"
    echo "installed $config_dir/config.toml (an example: edit it)"
fi

if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
bin=$(dirname "$program")
if [ -z "$root" ] && [ -d /run/systemd/system ] && systemctl -q is-active marathond; then
    echo "next: systemctl restart marathond: running trials go on"
    echo "      systemctl restart marathond-gateway, where it runs: requests under way get 20 s to end"
    exit 0
fi
echo "next: edit $config_dir/config.toml; $bin/marathonctl --config $config_dir/config.toml config check"
echo "      $bin/marathonctl --config $config_dir/config.toml init; systemctl enable --now marathond"
echo "      with [gateway.routes]: the provider's key into $config_dir/provider.key, mode 0600; systemctl enable --now marathond-gateway"
