#!/bin/sh
# pages.sh PAGE... -- the rows of the tables in pages of docs/ that begin with code, as C: { "page.md#heading", "row" }.
for page; do
    awk -v page="$(basename "$page")" '
        /^#/ { heading = tolower($0); gsub(/^#+ |[^a-z0-9 _-]/, "", heading); gsub(/ /, "-", heading) }
        /^\| .*`.*\|/ {
            gsub(/[\\"]/, "\\\\&")
            printf "{ \"%s#%s\", \"%s\" },\n", page, heading, $0
        }' "$page"
done
