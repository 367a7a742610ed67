#!/bin/sh
# The commands in README and docs/ (commands.py).  Then what they quote (quotes.py), the two columns of from-pytorch.md
# (columns.py, same.py), figures (figures.py), links (links.py), keys of machines (machine.py), and README's width, figures
# and pictures (readme.py).
# PAGES="docs/faq.md docs/hf.md" runs and compares only these pages.
# reaches: compiler codegen/cuda driver/hf driver/plot trainers runtime/cuda examples packaging bench docs README.md
# reaches: CONTRIBUTING.md CHANGELOG.md LICENSE tests/published tests/random
set -u
cd "$(dirname "$0")/../.." || exit 2
PATH="$(pwd)/${BUILD:-build}:$PATH"
MPC=$(pwd) # the tutorial's name of the folder
bridges=$(echo "$MPC/${BUILD:-build}"/bridges/lib/python3*/site-packages)
[ ! -d "$bridges" ] || export PYTHONPATH="$bridges${PYTHONPATH:+:$PYTHONPATH}"
export MPC
mkdir -p out/doc/bin && ln -sf /usr/bin/python3 out/doc/bin/ # python3 of the commands: the one that has NumPy
PATH="$MPC/out/doc/bin:$PATH"
pages=${PAGES:-README.md CONTRIBUTING.md $(echo docs/*.md)}
failed=0
rm -rf out/doc/printed out/tale.mdl # mpc new leaves a file that is there
mkdir -p out/doc/printed out/chars
find . \( -path ./build -o -path ./out -o -path ./.git \) -prune -o -name '*.[ch]' -type f -print | LC_ALL=C sort |
    xargs cat >out/doc/corpus.txt
cp out/doc/corpus.txt out/chars/corpus.txt # that of the demo, in its place
# shellcheck disable=SC2086
/usr/bin/python3 tests/docs/commands.py $pages || failed=$((failed + 1))
# shellcheck disable=SC2086
/usr/bin/python3 tests/docs/quotes.py $pages || failed=$((failed + 1))
[ -z "${PAGES:-}" ] || exit "$failed"

out/chars/trainer --data out/chars/corpus.txt --steps 12 --log out/chars/log.jsonl --overwrite >out/doc/output 2>&1
sh docs/pictures.sh out/doc || failed=$((failed + 1))
for check in columns same figures links readme machine; do
    /usr/bin/python3 "tests/docs/$check.py" || failed=$((failed + 1))
done
[ "$failed" = 0 ]
