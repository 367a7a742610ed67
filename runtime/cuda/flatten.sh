#!/bin/sh
# flatten.sh FILE -- a header with all that it includes in their places, each once: what a trainer carries along, so that
# it compiles its kernels where there is no copy of mpc
awk -v root="$(dirname "$1")" '
    function folder(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "." }
    function exists(path, line) { line = (getline line < path); close(path); return line >= 0 }
    function found(from, name) {
        if (exists(folder(from) "/" name)) return folder(from) "/" name
        if (exists(root "/" name)) return root "/" name
        return root "/nvrtc/" name
    }
    function plain(path) { while (sub(/[^\/.]+\/\.\.\//, "", path)); return path }
    function include(path, line, word) {
        path = plain(path)
        if (path in seen) return
        seen[path] = 1
        if (!exists(path)) { print "flatten.sh: no " path > "/dev/stderr"; failed = 1; return }
        while ((getline line < path) > 0) {
            split(line, word, " ")
            if (word[1] == "#ifndef" && word[2] in defined) break # its guard: somebody else stands in for it
            if (word[1] == "#define") defined[word[2]]
            if (match(line, /^#include [<"][^>"]*[>"]/))
                include(found(path, substr(line, 11, RLENGTH - 11)))
            else
                print line
        }
        close(path)
    }
    BEGIN { include(ARGV[1]); exit failed }
' "$1"
