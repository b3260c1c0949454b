#!/bin/sh
# text.sh - real English prose for a first model, from a Debian package.
#
# use: sh deploy/text.sh FILE
#
# C. H. Spurgeon, The Treasury of David (1869-1885), public domain, 11.8 MB, as
# package sword-comm-tdavid carries it (module TDavid; mod2imp is in
# libsword-utils). A paragraph becomes one line of plain UTF-8.
set -u

[ $# -eq 1 ] || {
    echo "text: give the file to write" >&2
    exit 2
}
command -v mod2imp >/dev/null 2>&1 || {
    echo "text: mod2imp is missing; install libsword-utils and sword-comm-tdavid" >&2
    exit 1
}

# mod2imp prints "$$$reference" lines and OSIS markup.
prose() {
    LC_ALL=C sed -e '/^\$\$\$/d' -e 's/<milestone[^>]*>//g' \
        -e 's/<div[^>]*eID=[^>]*type="x-p"[^>]*>/\n/g' \
        -e 's/<lb[^>]*>/\n/g' -e 's/<[^>]*>//g' -e 's/&lt;/</g' \
        -e 's/&gt;/>/g' -e 's/&quot;/"/g' -e 's/&amp;/\&/g' |
        LC_ALL=C sed -e 's/[[:space:]][[:space:]]*/ /g' -e 's/^ //' \
            -e 's/ $//' -e '/^$/d'
}

mod2imp TDavid 2>"$1.log" | prose >"$1"
[ "$(wc -c <"$1")" -gt 1000000 ] || {
    echo "text: mod2imp TDavid gave no text: $(head -n 1 "$1.log")" >&2
    exit 1
}
rm -f "$1.log"
