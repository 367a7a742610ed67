"""`--probe` on a GPU: the file that it writes is a machine by `mpc check`, with the program's attention and, of two ranks,
NCCL's messages.  Of the emulated device the numbers mean nothing."""
import re

import pytest
from conftest import BUILD, some, start
from test_ranks import RUN

SETTINGS = (("precision", "bf16"), ("batch", 4), ("microbatch", 2))


@pytest.mark.parametrize("ranks", some([1, 2], 1))
def test_probe(ranks, compiled, tmp_path):
    sizes = ("-D", "embed=128", "-D", "heads=2")
    trainer = compiled("gpt2", "cuda", SETTINGS, (*sizes, *(["--mesh", "dp=2"] if ranks > 1 else [])))
    path, messages = tmp_path / "gpu.machine", tmp_path / "messages"
    messages.mkdir()
    launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
    start([*launch, *trainer.command("--probe", path, "--probe-seconds", 0.5)], tmp_path,
          environment={**RUN, "EMULATED_GPUS": str(ranks), "EMULATED_MESSAGES": str(messages)})
    assert ": ok: " in start([BUILD / "mpc", "check", path], tmp_path).stdout
    text = path.read_text()
    keys = {re.split("  +", line)[0] for line in text.splitlines()}
    expected = {"flops f32", "flops bf16", "products bf16", "attention forward bf16 64", "attention backward bf16 64", "copy", "launch", "sustained"}
    of_ranks = {"message", "overlap", "latency within", "within", "within all_reduce", "within all_to_all", "within send",
                "within rotate"}
    assert expected <= keys and (of_ranks <= keys if ranks > 1 else not of_ranks & keys)
    assert re.search(rf"ranks on a machine +{ranks} ", text)
