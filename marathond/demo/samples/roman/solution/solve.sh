#!/bin/sh
set -eu
cat > /var/tmp/roman <<'END'
#!/bin/sh
case ${1-} in
    '' | *[!0-9]* | ?????*) number=0 ;;
    *) number=$1 ;;
esac
if [ "$number" -lt 1 ] || [ "$number" -gt 3999 ]; then
    echo "out of range"
    exit 1
fi
numeral=
for pair in 1000:M 900:CM 500:D 400:CD 100:C 90:XC 50:L 40:XL 10:X 9:IX 5:V 4:IV 1:I; do
    while [ "$number" -ge "${pair%:*}" ]; do
        numeral=$numeral${pair#*:}
        number=$((number - ${pair%:*}))
    done
done
echo "$numeral"
END
chmod +x /var/tmp/roman
