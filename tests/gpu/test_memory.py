"""On a real GPU: memory that is used is memory that was planned."""
import json
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPC = ROOT / "build" / "mpc"
GRANULE = 4 << 20  # the driver hands memory out in pieces of 2 MiB; two of them may be begun


def used():
    """Bytes in use on GPU 0, by anybody."""
    done = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True)
    return int(done.stdout) << 20


def most_used(microbatch, tmp_path):
    """The planned bytes of a trainer, and the most that the GPU has used while it ran."""
    out = tmp_path / f"{microbatch}"
    subprocess.run([MPC, "compile", ROOT / "examples/gpt2.mdl", "-D", "layers=2", "--target=cuda", "-o", out, "--set",
                    f"train.microbatch={microbatch}", "--set", "train.batch=32"], check=True, capture_output=True)
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    before, most = used(), 0
    trainer = subprocess.Popen([out / "trainer", "--data", data, "--data-format", "u16", "--steps", "20", "--log",
                                out / "log"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while trainer.poll() is None:
        most = max(most, used() - before)
        time.sleep(0.02)
    assert trainer.returncode == 0
    return json.loads((out / "log").read_text().splitlines()[-1])["peak_bytes"], most


def test_used_as_planned(tmp_path):
    """What CUDA itself takes is in neither plan and in both measurements: the difference of two trainers is exact."""
    small, large = most_used(2, tmp_path), most_used(16, tmp_path)
    assert abs((large[1] - small[1]) - (large[0] - small[0])) <= GRANULE, (small, large)
