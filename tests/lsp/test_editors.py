"""The files in editors/: words of the language, and sessions of Neovim, Vim, Emacs and, without VS Code itself, its extension."""
import json
import os
import re
import shutil
import subprocess

import pytest

from client import MPC, ROOT

EDITORS = ROOT / "editors"
GPT2 = ROOT / "examples/gpt2.mdl"


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"no {program}")


def run(*command, **more):
    environment = {**os.environ, "PATH": f"{MPC.parent}:{os.environ['PATH']}", "MPC": str(MPC)}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, env=environment, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def keywords():
    """Those of the scanner."""
    rules = (ROOT / "frontend/syntax/scan.l").read_text()
    return set(re.findall(r'^"([a-z_]+)"(?:/.*?)? +\{', rules, re.M)) - {"in", "out"}


@pytest.mark.parametrize("path", ["vim/syntax/mdl.vim", "vscode/syntaxes/mdl.tmLanguage.json", "emacs/mdl-mode.el"])
def test_every_keyword_has_a_colour(path):
    words = set(re.findall(r"[a-z_]+", (EDITORS / path).read_text()))
    assert len(keywords()) > 25 and not keywords() - words


@needs("nvim")
def test_neovim(tmp_path):
    text = GPT2.read_text()
    model = tmp_path / "gpt2.mdl"
    model.write_text("consd x = 1\n" + text)
    said = json.loads(run("nvim", "--headless", "-u", "NONE", "--cmd", f"set rtp+={EDITORS}/vim", "--cmd", "filetype plugin on",
                          "--cmd", "syntax on", "--cmd", f"luafile {EDITORS}/nvim/mpc.lua", model,
                          "-c", f"luafile {ROOT}/tests/lsp/neovim.lua", "-c", "qa!").strip().split("\n")[-1])
    assert said["filetype"] == "mdl" and said["syntax"] == "mdlComment"
    assert "expected" in said["wrong"]
    assert "q : [batch, seq, heads, head]" in said["hover"]
    assert text.split("\n")[said["definition"]].strip().startswith("param wq")
    assert said["renamed"].rstrip() == re.sub(r"\bq\b(?= = dot|, k)", "other", text).rstrip()


@needs("vim")
def test_vim_colours(tmp_path):
    script = tmp_path / "colours.vim"
    out = tmp_path / "out"
    script.write_text(f"""
call cursor(1, 1)
let found = []
for word in ['const', 'block', 'normal', '0.02', 'repeat', '# no size', 'over dp', 'true']
  call cursor(1, 1)
  call search('\\V' . word)
  call add(found, word . ' ' . synIDattr(synID(line('.'), col('.'), 1), 'name'))
endfor
call writefile(found + ['filetype ' . &filetype, 'comment ' . &commentstring], '{out}')
qa!
""")
    run("vim", "-N", "-u", "NONE", "-i", "NONE", "-es", "--cmd", f"set rtp^={EDITORS}/vim", "--cmd", "filetype plugin on", "--cmd",
        "syntax on", GPT2, "-S", script)
    assert out.read_text().split("\n")[:-1] == [
        "const mdlDeclaration", "block mdlDeclaration", "normal mdlFunction", "0.02 mdlNumber", "repeat mdlStatement",
        "# no size mdlComment", "over dp mdlWord", "true mdlBoolean", "filetype mdl", "comment # %s"]


@needs("node")
def test_the_extension_of_vscode():
    said = json.loads(run("node", ROOT / "tests/lsp/vscode.js", MPC, GPT2))
    assert said["errors"] == [] and said["before"] == 0 and "expected" in said["broken"][0]
    assert "q : [batch, seq, heads, head]" in said["hover"]
    assert said["rename"] == len(re.findall(r"\bq\b(?= = dot|, k)", GPT2.read_text())) == 2
    assert "attention" in said["symbols"] and said["completion"] > 20
    assert ": [batch, seq, heads, head]" in said["hints"] and said["tokens"] % 5 == 0 < said["tokens"]


def test_files_of_vscode():
    package = json.loads((EDITORS / "vscode/package.json").read_text())
    for language in package["contributes"]["languages"]:
        assert language["id"] in ("mdl", "mir")
    grammar = json.loads((EDITORS / "vscode" / package["contributes"]["grammars"][0]["path"]).read_text())
    assert grammar["scopeName"] == package["contributes"]["grammars"][0]["scopeName"]
    assert (EDITORS / "vscode" / package["main"]).exists()
    assert json.loads((EDITORS / "vscode/language-configuration.json").read_text())["comments"]["lineComment"] == "#"


def has_eglot():
    return shutil.which("emacs") and subprocess.run(["emacs", "--batch", "--eval", "(require 'eglot)"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_eglot(), reason="no Emacs with eglot")
def test_emacs(tmp_path):
    model = tmp_path / "gpt2.mdl"
    model.write_text(GPT2.read_text())
    said = run("emacs", "--batch", "-L", EDITORS / "emacs", "-l", ROOT / "tests/lsp/emacs.el", model)
    assert "mode mdl-mode" in said and "q : [batch, seq, heads, head]" in said
    assert "renamed 2" in said and "face font-lock-keyword-face" in said and "indent 4" in said
