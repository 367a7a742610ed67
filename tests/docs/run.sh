#!/bin/sh
# The commands in README and docs/: every line of a block marked `sh`, in the order of the page, except make and apt.
# Then what they quote (quotes.py), figures (figures.py), keys of machines (machine.py), and README's width, links, figures and pictures (readme.py).
# reaches: compiler codegen/cuda driver/hf driver/plot trainers runtime/cuda examples packaging bench docs README.md
# reaches: CONTRIBUTING.md CHANGELOG.md LICENSE tests/published
set -u
cd "$(dirname "$0")/../.." || exit 2
PATH="$(pwd)/${BUILD:-build}:$PATH"
failed=0 count=0
rm -rf out/doc/printed
mkdir -p out/doc/printed out/chars
find . \( -path ./build -o -path ./out -o -path ./.git \) -prune -o -name '*.[ch]' -type f -print | LC_ALL=C sort |
    xargs cat >out/doc/corpus.txt
cp out/doc/corpus.txt out/chars/corpus.txt # that of the demo, in its place
for page in README.md CONTRIBUTING.md docs/*.md; do
    sed -n '/^```sh$/,/^```$/p' "$page" | grep -v '^```' | grep -vE '^(make|sudo|#|FUZZ|EXTRA)' >out/doc/commands
    while IFS= read -r command; do
        [ -n "$command" ] || continue
        count=$((count + 1))
        printed=out/doc/printed/$(printf '%s\n' "$page" "$command" | md5sum | cut -c1-32) # for quotes.py
        if ! timeout 120 sh -c "$command" >"$printed" 2>out/doc/errors </dev/null; then
            failed=$((failed + 1))
            echo "FAIL $page: $command"
            cat "$printed" out/doc/errors | tail -n 5 | sed 's/^/    /'
        fi
    done <out/doc/commands
done
out/chars/trainer --data out/chars/corpus.txt --steps 12 --log out/chars/log.jsonl --overwrite >out/doc/output 2>&1
sh docs/pictures.sh out/doc || failed=$((failed + 1))
for check in quotes figures readme machine; do
    /usr/bin/python3 "tests/docs/$check.py" || failed=$((failed + 1))
done
echo "$count commands, $failed failed"
[ "$failed" = 0 ] && [ "$count" -gt 5 ]
