#!/bin/sh
set -eu
cat > /srv/visits/report <<'END'
#!/bin/sh
# The three pages with the most different users.  Usage: report LOG
export LC_ALL=C
awk '{ print $2, $1 }' "$1" | sort -u | awk '{ users[$1]++ } END { for (page in users) print page, users[page] }' | sort -k2,2nr -k1,1 | sed -n '1,3p'
END
chmod +x /srv/visits/report
