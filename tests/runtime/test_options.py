"""The command line: every option of options.def, and every mistake."""
import json
import re
import subprocess

import pytest
from conftest import HERE, RUNTIME

ROWS = re.findall(r'^OPTION\((\w+),\s*(\w+),\s*("[^"]*"|NULL),\s*([^,]+),\s*([^,]+),\s*("[^"]*"|NULL),\s*("[^"]*"|NULL),'
                  r'\s*(SAME|CONTENT|EACH),\s*"(.*)"\)',
                  (RUNTIME / "options.def").read_text(), re.M)
NUMBERS = [row for row in ROWS if row[1] in ("COUNT", "REAL")]
NEEDY = [(row[0].replace("_", "-"), row[1], row[5].strip('"'), row[6].strip('"')) for row in ROWS if row[6] != "NULL"]
VALUE = {"COUNT": "1", "REAL": "0.5", "TEXT": "x"}


def test_table_is_read_whole():
    assert len(ROWS) == (RUNTIME / "options.def").read_text().count("\nOPTION(") > 20


def test_help_names_every_option(run):
    text = run("--help").stdout
    for field, kind, preset, _, _, value, _, _, meaning in ROWS:
        assert re.search(rf"^  --{field.replace('_', '-')}\b", text, re.M) and meaning in text
        if preset != "NULL":
            assert f"{meaning} (default: {preset[1:-1]})" in text
    assert "compiled from tiny.mdl" in text and "Example\n" in text


def test_the_example_of_the_help_works(run, data, tmp_path):
    command = run("--help").stdout.split("Example\n")[1].split()
    options = [word.replace("tokens.bin", "data.txt").replace("1000", "5") for word in command[1:]]
    run(*options)
    assert (tmp_path / "tiny.safetensors").exists() and (tmp_path / "tiny.jsonl").exists()


def test_documentation_holds_the_table_as_it_is(run):
    assert run("--help=markdown").stdout in (HERE.parents[1] / "docs" / "trainer.md").read_text()


def test_version(run):
    assert run("--version").stdout == "tiny, compiled from tiny.mdl by mpc\n"


@pytest.mark.parametrize("option", ["--save", "--log", "--trace", "--load", "--data", "--eval-data"])
def test_a_dash_is_no_file(run, refused, tmp_path, data, option):
    assert f"{option} -: a file is needed, not standard input or output" in refused("--data", "data.txt", option, "-", status=2)
    run("--data", "data.txt", "--steps", 1, "--save", "./-")
    assert (tmp_path / "-").exists()


def test_stdout_on_a_full_disk(trainer, tmp_path):
    for question in ("--help", "--plan", "--version"):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([trainer, question], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "error: cannot write to stdout: No space left on device; the output is incomplete" in done.stderr


def test_plan(run):
    assert json.loads(run("--plan").stdout) == {"model": "tiny"}


@pytest.mark.parametrize("field, lowest, highest", [(row[0], row[3], row[4]) for row in NUMBERS])
def test_numbers_have_a_range(refused, field, lowest, highest):
    name = "--" + field.replace("_", "-")
    for value in [float(lowest) - 1, float(highest) * 2]:
        message = refused(name, f"{value:.0f}", status=2)
        assert message.startswith(f"error: {name} must be between ") and message.endswith(f", not {value:.0f}")
    for text in ["", "x", "1x", "nan", "inf", "0x", "1e999"]:
        assert f"{name} needs a " in refused(f"{name}={text}", status=2)


@pytest.mark.parametrize("field", [row[0] for row in NUMBERS if row[1] == "COUNT"])
def test_counts_are_whole(refused, field):
    name = "--" + field.replace("_", "-")
    assert f"error: {name} needs a whole number, not '1.5'" == refused(name, "1.5", status=2)


@pytest.mark.parametrize("name, kind, value, needed", NEEDY)
def test_an_option_without_effect_is_refused(refused, name, kind, value, needed):
    given = [f"--{name}"] + ([] if kind == "FLAG" else [value.split("|")[0] if kind == "CHOICE" else VALUE[kind]])
    message = refused("--steps", 0, *given, status=2)
    above = " above 0" if needed == "steps" else ""
    *others, last = needed.split("|")
    any_of = f"{', --'.join(others)} or --{last}" if others else last
    assert message == f"error: --{name} has no effect without --{any_of}{above}: leave it out, or give both"


@pytest.mark.parametrize("wrong, said", [
    ("--stesp", "did you mean --steps?"), ("--savevery", "did you mean --save-every?"),
    ("--max-iters=3", "did you mean --steps?"), ("--batch_size=3", "mpc compile --set train.batch=..."),
    ("--foo=3", "unknown option --foo (--help"), ("--topk=3", "did you mean --top-k?"), ("--no_shuffle", "did you mean --no-shuffle?"),
    ("--xyzzy", "unknown option --xyzzy (--help lists the options)"), ("--" + "s" * 200, "unknown option"),
    ("data.txt", "'data.txt' is not an option"), ("-h", "'-h' is not an option"), ("--", "'--' is not an option"),
    ("--plan=1", "--plan takes no value"), ("--save", "--save needs a value: --save FILE"),
    ("--save=", "--save needs the name of a file"), ("--help=html", "--help must be one of markdown, not 'html'"),
    ("--data-format=u8", "--data-format must be one of bytes|u16|u32|llmc|megatron|npy, not 'u8'"),
    ("--data-format=u16|u32", "must be one of"), ("--data-format=", "must be one of"),
])
def test_mistakes(refused, wrong, said):
    assert said in refused(wrong, status=2)


def test_twice(refused):
    assert "--steps is given twice" in refused("--steps", 1, "--steps=1", status=2)


def test_what_the_program_cannot_do(refused, run, data):
    assert "has no steps: give --steps" in refused("--data", "data.txt", status=2, TINY_SCHEDULE="constant")
    assert "nothing to train on" in refused("--steps", 3, status=2)
    assert "does not predict the next token" in refused("--steps", 0, "--sample", 3, status=2, TINY_NO_PREDICT=1)
    assert "has 50257 tokens, not 256" in refused("--steps", 0, "--sample", 3, status=2, TINY_VOCAB=50257)
    prompt = ("--steps", 0, "--sample", 3, "--prompt", "464 50257")
    assert "'50257' is not the number of a token, from 0 to 50256" in refused(*prompt, status=2, TINY_VOCAB=50257)
    assert "--overwrite has no effect without --save" in refused("--steps", 0, "--overwrite", status=2)
    assert "does not name the kernels that are measured" in refused("--probe", "own.machine", status=1)
    greedy = ("--sample", 3, "--temperature", 0, "--top-k", 3)
    assert "--top-k has no effect with --temperature 0" in refused("--steps", 0, *greedy, status=2)
    nucleus = ("--sample", 3, "--temperature", 0, "--top-p", 0.5)
    assert "--top-p has no effect with --temperature 0" in refused("--steps", 0, *nucleus, status=2)
    assert "--data-format has no effect" in refused("--steps", 0, "--data-format", "u16", status=2)


def test_steps_of_the_schedule_are_the_default(run, data):
    done = run("--data", "data.txt")
    assert done.stdout.splitlines()[-1].startswith("step 20/20 ") and "the schedule" not in done.stderr


def test_steps_behind_the_schedule_are_noted(run, data):
    said = run("--data", "data.txt", "--steps", 21).stderr
    assert "note: the schedule of the learning rate ends at step 20, and 0.05 is that of all later steps" in said
    assert "--set train.schedule.steps=21" in said
    assert "the schedule" not in run("--data", "data.txt", "--steps", 21, TINY_SCHEDULE="constant").stderr
