"""Reports of gpt.mdl at the sizes that a test asks for."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from cover import some  # noqa: E402, F401 (for tests)

BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
MPC = BUILD / "mpc"
QUICK = {**os.environ, "CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def run(*words, cwd=None, status=0):
    done = subprocess.run(list(map(str, words)), cwd=cwd, capture_output=True, text=True, timeout=300, env=QUICK)
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    return done


def data_of(page):
    """The report in a page, with the timeline and the text of the model."""
    return json.loads(re.search(r'<script type="application/json" id="report">\n(.*?)\n</script>', page, re.S)[1])


def words_of(**sizes):
    """layers=2, batch=8 -> -D layers=2 --set train.batch=8"""
    settings = {"batch", "microbatch", "precision", "clip", "grad_storage"}
    return [word for name, value in sizes.items()
            for word in (("--set", f"train.{name}={value}") if name in settings else ("-D", f"{name}={value}"))]


@pytest.fixture
def model(tmp_path):
    """model(old, new, ...): gpt.mdl with texts replaced."""
    def make(*replaced):
        text = (HERE / "gpt.mdl").read_text()
        for old, new in zip(replaced[::2], replaced[1::2]):
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "gpt.mdl").write_text(text)
        return tmp_path / "gpt.mdl"
    return make


@pytest.fixture
def report(model):
    """report("--mesh=dp=2", layers=2, ...): the JSON of mpc report; `file`: of another one than gpt.mdl."""
    def make(*options, file=None, **sizes):
        return json.loads(run(MPC, "report", file or model(), "--json", *words_of(**sizes), *options).stdout)
    return make


def volume(report, axes, **wanted):
    """Elements that a rank's collectives over these axes move in a step, as papers count them."""
    size = {"f32": 4, "bf16": 2, "i32": 4, "bool": 1}
    return sum(row["volume"] / size[row["dtype"]] for row in report["communication"]["collectives"]
               if row["axes"] == axes and all(row[key] == value for key, value in wanted.items()))
