#!/bin/sh
# screenshots.sh [DIR] -- the pictures of docs/editors.md, into DIR (docs): Neovim, Vim and Emacs in a terminal of an X server that
# nobody sees.  It needs neovim vim emacs-nox elpa-eglot xvfb xterm x11-utils imagemagick fonts-dejavu-core.
set -eu
cd "$(dirname "$0")/.."
to=$(cd "${1:-docs}" && pwd)
editors=$PWD/editors
PATH=$(cd "${BUILD:-build}" && pwd):$PATH
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
sed 's/x + mlp(norm/x + mpl(norm/' examples/gpt2.mdl >"$work/gpt2.mdl" # a misspelled name, to see a message

number=99
while [ -e "/tmp/.X11-unix/X$number" ]; do number=$((number + 1)); done
Xvfb ":$number" -screen 0 1000x640x24 -noreset >/dev/null 2>&1 &
server=$!
export DISPLAY=":$number" TERM=xterm-256color
sleep 2

# take NAME COMMAND...: what the terminal shows after some seconds
take() {
    name=$1
    shift
    (cd "$work" && exec xterm -geometry 100x30+0+0 -fa 'DejaVu Sans Mono' -fs 10 -bg '#16181c' -fg '#d8dce2' -b 6 -e "$@") &
    sleep 14
    window=$(xwininfo -root -tree | sed -n 's/^ *\(0x[0-9a-f]*\) .*"XTerm").*/\1/p' | head -n 1)
    timeout 10 import -window "$window" +repage -colors 48 -depth 8 -strip "PNG8:$to/editor-$name.png"
    kill "$!"
}

take neovim nvim -u NONE -i NONE -n --cmd "set rtp+=$editors/vim" --cmd 'filetype plugin on' --cmd 'syntax on' \
    --cmd 'set background=dark number signcolumn=yes' --cmd 'highlight Pmenu ctermbg=236 ctermfg=252 | highlight SignColumn ctermbg=234' --cmd "luafile $editors/nvim/mpc.lua" +/'q = dot' +'normal ^zt' +nohlsearch \
    +'lua vim.defer_fn(vim.lsp.buf.hover, 6000)' gpt2.mdl
take vim vim -N -u NONE -i NONE -n --cmd "set rtp^=$editors/vim" --cmd 'filetype plugin on' --cmd 'syntax on' \
    --cmd 'set background=dark number' +/'block attention' +'normal zt' gpt2.mdl
take emacs emacs -nw -q -L "$editors/emacs" --eval "(progn (setq inhibit-startup-screen t frame-background-mode 'dark eglot-sync-connect 30)
    (menu-bar-mode -1) (require 'eglot) (require 'mdl-mode)
    (global-display-line-numbers-mode) (find-file \"gpt2.mdl\") (call-interactively #'eglot)
    (run-at-time 5 nil (lambda () (goto-char (point-min)) (search-forward \"q = dot\") (recenter 3) (goto-char (match-beginning 0))
        (eldoc t) (flymake-start))))"
