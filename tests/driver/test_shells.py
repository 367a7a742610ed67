"""Completion in bash, zsh and fish, by the shells themselves."""
import os
import pty
import shutil
import signal
import subprocess

import pytest
from conftest import ROOT
from test_command_line import COMMANDS

FOLDER = ROOT / "driver/completion"
CASES = [
    ("mpc ", {*COMMANDS}),
    ("mpc compile --rem", {"--remarks"}),
    ("mpc print --", {"--help", "--output", "--model-explorer"}),
    ("mpc help c", {"compile", "check"}),
    ("mpc check t", {"tiny.mdl"}),
    ("mpc run --eval-b", {"--eval-batches"}),
    ("mpc trace m", {"merge"}),
]


def has(shell):
    return pytest.mark.skipif(not shutil.which(shell), reason=f"no {shell}")


def bash(line, folder):
    script = f'. {FOLDER}/mpc.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mpc; echo "${{COMPREPLY[*]}}"'
    words = line.split(" ")
    return subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, cwd=folder).stdout.split()


def fish(line, folder):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {FOLDER}/mpc.fish; complete -C '{line}'"], capture_output=True,
                          text=True, cwd=folder, env={**os.environ, "HOME": str(folder)})
    assert not done.stderr
    return [row.split("\t")[0] for row in done.stdout.splitlines()]


def zsh(line, folder):
    """On a terminal; in the place of showing what it has found, zsh writes it to a file."""
    (folder / "functions").mkdir()
    shutil.copy(FOLDER / "mpc.zsh", folder / "functions/_mpc")
    (folder / ".zshrc").write_text(f"""fpath=({folder}/functions $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {{
    local -a found
    builtin compadd -O found "$@"
    (($#found)) && print -rl -- $found >> {folder}/found
    builtin compadd "$@"
}}
finish() {{ exit }}
zle -N finish
bindkey '^X' finish
zstyle ':completion:*' list-grouped false
bindkey '^I' complete-word
""")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ["ZDOTDIR"] = str(folder)
        signal.alarm(120)  # that of the shell, too: it may wait for a key
        os.execvp("zsh", ["zsh", "-i"])
    os.write(terminal, f"{line}\t\x18".encode())
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # its end
        pass
    os.waitpid(process, 0)
    return (folder / "found").read_text().split("\n")[:-1] if (folder / "found").exists() else []


@pytest.mark.parametrize("shell", [pytest.param(s, marks=has(s.__name__), id=s.__name__) for s in (bash, fish, zsh)])
@pytest.mark.parametrize("line, expected", CASES)
def test_completion(shell, line, expected, tmp_path):
    shutil.copy(ROOT / "tests/driver/tiny.mdl", tmp_path)
    found = {word.rstrip("=/ ").split(":")[0] for word in shell(line, tmp_path)} - {"--version", "functions"}
    found -= set() if "--help" in expected else {"--help"}
    assert found == expected


@pytest.mark.parametrize("line, expected", [("mpc compile --target=", {"c", "cuda"}), ("mpc help --as=", {"man", "bash", "zsh", "fish"}),
                                            ("mpc compile --zero=", {"0", "1", "2", "3"})])
@pytest.mark.parametrize("shell", [pytest.param(s, marks=has(s.__name__), id=s.__name__) for s in (fish, zsh)])
def test_words_of_an_option(shell, line, expected, tmp_path):
    assert {word.split("=")[-1] for word in shell(line, tmp_path)} == expected


def test_as_checked_in(mpc):
    for shell in ("bash", "zsh", "fish"):
        assert mpc("help", f"--as={shell}").stdout == (FOLDER / f"mpc.{shell}").read_text(), \
            f"mpc help --as={shell} > driver/completion/mpc.{shell}"
