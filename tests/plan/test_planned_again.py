"""A file with a layout is planned like the one without that: what its block says of sizes makes no difference."""
import json
import shutil

import pytest

from texts import ROOT, mpc

# layout in the file; question
CASES = {
    "pipeline": (["--ranks=4", "--keep=pp=2", "--keep=tp=1", "--keep=schedule=interleaved"], ["--ranks=3", "--set=train.batch=6"]),
    "padded": (["--ranks=4", "--keep=tp=4"], ["--ranks=2", "--set=train.batch=5", "--keep=tp=2"]),  # of 50257 words
}


@pytest.mark.parametrize("name", CASES)
def test_planned_again(name, tmp_path):
    written, question = CASES[name]
    sizes = ["-D", "layers=4", "--machine=h100", "--top=2", "--keep=recompute=none", "--keep=overlap=0"]
    first, again = tmp_path / "first.mdl", tmp_path / "again.mdl"
    shutil.copy(ROOT / "examples/gpt2.mdl", first)
    shutil.copy(first, again)
    mpc("plan", again, *sizes, *written, "--set=train.batch=32", "--write")
    assert again.read_text() != first.read_text()
    answers = [json.loads(mpc("plan", file, *sizes, *question, "--json")) for file in (first, again)]
    for answer in answers:
        assert answer.pop("model") and len(answer["best"]) > 0
    assert answers[0] == answers[1]
