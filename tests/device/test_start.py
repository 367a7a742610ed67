"""What is missing, full or too old is said in one line, with what helps, before anything is trained."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BUILD, DEVICE, ROOT, emulated, planned_bytes, read_log, start

pytestmark = emulated


def error_of(trainer, data, directory, environment=(), options=()):
    done = start(trainer.command("--data", data, "--steps", 1, *options), directory, status=1, environment=environment)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


@pytest.fixture
def chars(compiled):
    return compiled("chars", "cuda")


def test_kernels_are_compiled_once(chars, data, tmp_path):
    command = [chars.folder / "trainer", "--kernel-cache", "kept", "--data", data, "--steps", 1]
    assert "compiled in" in start(command, tmp_path).stderr
    assert "kernels: compil" not in start(command, tmp_path).stderr
    kept, = (tmp_path / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged: as good as none
    assert "compiled in" in start(command, tmp_path).stderr
    environment = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    start([command[0], *command[3:]], tmp_path, environment=environment.items())
    assert [p.name for p in (tmp_path / "caches/mpc").iterdir()] == [kept.name]


def test_products_are_timed_once(chars, compiled, data, tmp_path):
    """The fastest of four kernels of cuBLASLt is found, kept and taken again, by GPU, library and shape.  Others run only
    where they are timed, or the best product is: never in a graph."""
    def run(trainer=chars, **environment):
        (tmp_path / "choices").unlink(missing_ok=True)
        environment = {"EMULATED_KERNELS": "4", "EMULATED_FASTEST": "2", "EMULATED_SLOW": "1", "EMULATED_CHOICES": "choices", **environment}
        done = start([trainer.folder / "trainer", "--kernel-cache", "kept", "--data", data, "--data-format", "bytes", "--steps", 3,
                      "--log", "log", "--overwrite"], tmp_path, environment=environment.items())
        used = (tmp_path / "choices").read_text().splitlines()
        return "chosen by time" in done.stderr, {line for line in used if line.isdigit()}, [line for line in used if "recorded" in line]

    timed, alone, recorded = run()
    assert timed and alone == {"0", "1", "2", "3"} and recorded.count("2 recorded") > len(recorded) / 2
    losses = [entry["loss"] for entry in read_log(tmp_path / "log")]
    timed, alone, again = run(EMULATED_FASTEST="1")
    assert not timed and again == recorded, "what is kept is taken"
    assert losses == [entry["loss"] for entry in read_log(tmp_path / "log")]
    for other in ({"EMULATED_NAME": "another"}, {"EMULATED_CUBLASLT": "130001"}, {"trainer": compiled("chars", "cuda", (), ("-D", "embed=48"))}):
        timed, alone, recorded = run(EMULATED_FASTEST="3", **other)
        assert timed and recorded.count("3 recorded") > len(recorded) / 2
    for kept in (tmp_path / "kept").glob("*.product"):
        kept.write_bytes(kept.read_bytes()[:-1])  # damaged: as good as none
    assert run()[0]


def test_no_gpu(chars, data, tmp_path):
    assert "no GPU is visible" in error_of(chars, data, tmp_path, {"EMULATED_GPUS": "0"}.items())


def test_memory_is_what_was_said(chars, data, tmp_path):
    """On a GPU with just so much memory it trains; with one byte less it says so, and has taken nothing."""
    need = planned_bytes(chars)
    room = {"EMULATED_BYTES": str(need), "EMULATED_USED": "used", "MPC_PEAK_FLOPS": "0"}
    done = start(chars.command("--data", data, "--steps", 1, "--log", "log", "--overwrite"), tmp_path, environment=room.items())
    assert int((tmp_path / "used").read_text()) == need == read_log(tmp_path / "log")[0]["peak_bytes"]
    assert read_log(tmp_path / "log")[0]["mfu"] is None and " mfu " not in done.stdout, "a product's peak takes memory, too"
    assert "33.55 MB workspace of libraries" in done.stderr
    error = error_of(chars, data, tmp_path, {**room, "EMULATED_BYTES": str(need - 1)}.items())
    assert re.search(r"out of memory: 'chars' is planned to need (\d+\.\d+ kB), 33.55 MB for products, together (\S+ MB), "
                     r"and \2 of \2 are free on gpu 0 \(emulated\)", error), error
    assert int((tmp_path / "used").read_text()) == 0


@pytest.fixture
def wide(compiled):
    """Attention with the largest heads: what needs most shared memory."""
    return compiled("llama", "cuda", (("precision", "bf16"),), ("-D", "head=256", "-D", "seq=70", "-D", "group=1", "-D", "kv_heads=1", "-D", "layers=1"))


def test_small_shared_memory(wide, data, tmp_path):
    """A GPU whose blocks have 99 KiB: smaller tiles, the same loss.  With still less, the kernel is named."""
    losses = []
    for small in ({}, {"EMULATED_ARCHITECTURE": "86", "EMULATED_SHARED": str(99 * 1024)}):
        start(wide.command("--data", data, "--data-format", "bytes", "--steps", 1, "--log", "log", "--overwrite"), tmp_path,
              environment=small.items())
        losses.append((read_log(tmp_path / "log")[0]["loss"], read_log(tmp_path / "log")[0]["grad_norm"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    error = error_of(wide, data, tmp_path, {"EMULATED_ARCHITECTURE": "86", "EMULATED_SHARED": str(64 * 1024)}.items())
    assert re.search(r"kernel_h_attn_y_attend of h.attn.y, \S*llama.mdl:\d+:\d+ needs 67584 bytes of shared memory for a block, "
                     r"and gpu 0 \(emulated\) has 65536", error), error


@pytest.mark.parametrize("library", ["libcublasLt.so", "libnvrtc.so"])
def test_missing_library(library, chars, data, tmp_path):
    """A broken one stands in for none, since this machine may have the real one elsewhere."""
    home = tmp_path / "cuda"
    shutil.copytree(DEVICE, home)
    path, = (home / "lib64").glob(library + "*")
    subprocess.run(["gcc", "-shared", "-o", path, "-x", "c", "/dev/null"], check=True)
    error = error_of(chars, data, tmp_path, {"CUDA_HOME": str(home)}.items())
    assert re.search(rf"\({path.name}\) has no \w+: it is too old for this trainer", error), error


def test_cache_that_cannot_be_written(chars, data, tmp_path):
    (tmp_path / "file").write_text("")
    trainer = [chars.folder / "trainer", "--data", data, "--steps", 1]
    done = start([*trainer, "--kernel-cache", "file/cache"], tmp_path, status=1)
    assert "cannot keep compiled kernels in file/cache: Not a directory; give --kernel-cache DIR" in done.stderr
    environment = {"XDG_CACHE_HOME": "", "HOME": ""}
    assert "neither XDG_CACHE_HOME nor HOME" in start(trainer, tmp_path, 1, environment.items()).stderr


def test_kernel_that_cannot_be_compiled(chars, data, tmp_path):
    """The error names the kernel and the line of the model."""
    for name in ("trainer.c", "kernels.cu"):
        shutil.copy(chars.folder / name, tmp_path)
    text = (tmp_path / "kernels.cu").read_text()
    place = text.index("{", text.index("kernel_h_mlp_epilogue("))
    (tmp_path / "kernels.cu").write_text(text[:place + 1] + " nonsense;" + text[place + 1:])
    subprocess.run(["gcc", "-std=gnu17", "-rdynamic", "-fopenmp", f"-I{ROOT}/runtime", f"-I{tmp_path}", "-o", "trainer",
                    "trainer.c", BUILD / "libmpcrt_cuda.a", DEVICE / "lib64/libcudart_static.a", "-lcjson", "-lm"],
                   cwd=tmp_path, check=True)
    done = start([tmp_path / "trainer", "--kernel-cache", "kept", "--data", data, "--steps", 1], tmp_path, status=1)
    assert re.search(r"error: NVRTC cannot compile kernel_h_mlp_epilogue of h.mlp, \S*chars.mdl:33:\d+ ", done.stderr), done.stderr
    assert "'nonsense' was not declared" in done.stderr.replace("‘", "'").replace("’", "'")


@pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0, reason="no namespaces")
@pytest.mark.parametrize("node,processors,last,runs_there", [
    ("1", "1", "0-1", True), ("1", "1,4-7", "0-1", True), ("1", "0-1", "0-1", False), ("-1", "1", "0-1", False), ("1", "1", "0", False)])
def test_processors_near_the_gpu(node, processors, last, runs_there, chars, data, tmp_path):
    """Those of its node, of which the launcher may have left some; a machine with several nodes is made of folders."""
    for path, text in (("pci/0000:c0:00.0/numa_node", node), ("node/node1/cpulist", processors)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text + "\n")
    script = "mount --bind pci /sys/bus/pci/devices && mount --bind node /sys/devices/system/node && exec taskset -c $0 \"$@\""
    done = start(["unshare", "-m", "sh", "-c", script, last, *chars.command("--data", data, "--data-format", "bytes", "--steps", 1)], tmp_path)
    assert (f"gpu 0 (emulated) is near processors {processors}: rank 0 runs there" in done.stderr) == runs_there, done.stderr


def test_options_of_gpus_are_refused_elsewhere(compiled, data, tmp_path):
    for option in (["--no-graph"], ["--share-gpu"], ["--nccl-memory"], ["--kernel-cache", "x"]):
        done = start([compiled("chars", "c").folder / "trainer", "--data", data, "--steps", 1, *option], tmp_path, status=2)
        assert f"{option[0]} has no effect on a processor" in done.stderr
    for option in (["--share-gpu"], ["--nccl-memory"], ["--timeout", 3], ["--print-traffic"], ["--rank", 0]):
        done = start(compiled("chars", "cuda").command("--data", data, "--steps", 1, *option), tmp_path, status=2)
        assert f"{option[0]} has no effect on one rank" in done.stderr


def real_cuda():
    homes = [pathlib.Path(home) for home in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda") if home]
    return next((home for home in homes if (home / "lib64/libcudart_static.a").exists()), None)


@pytest.mark.skipif(not real_cuda() or not list((real_cuda() / "lib64").glob("libnvrtc.so.*")), reason="no NVRTC")
def test_real_nvrtc(chars, data, tmp_path):
    """NVRTC itself compiles what a trainer carries along; here there is nothing to load it into."""
    home = tmp_path / "cuda"
    shutil.copytree(DEVICE, home)
    for library in (home / "lib64").glob("libnvrtc*"):
        library.unlink()
    command = [chars.folder / "trainer", "--kernel-cache", "kept", "--data", data, "--steps", 1]
    environment = {"CUDA_HOME": str(home), "LD_LIBRARY_PATH": str(real_cuda() / "lib64")}
    done = start(command, tmp_path, 1, environment.items())
    assert "compiled in" in done.stderr and "cannot load the kernels" in done.stderr, done.stderr
    kept, = (tmp_path / "kept").iterdir()
    assert b"\x7fELF" in kept.read_bytes()[:64] and b"kernel_h_mlp_epilogue" in kept.read_bytes()


def test_any_processor(tmp_path):
    """A trainer for GPUs runs on other hosts than the one that compiles it: only one for this processor is tuned to it."""
    for target, tuned in (("c", True), ("cuda", False)):
        done = start([BUILD / "mpc", "compile", ROOT / "examples/chars.mdl", "--target", target, "--verbose", "--cflags=-O0", "-o",
                      tmp_path / "out"], tmp_path)
        command, = (line for line in done.stdout.splitlines() if "-fopenmp" in line)
        assert ("-march=" in command) == tuned, command


@pytest.mark.skipif(not real_cuda() or os.path.exists("/dev/nvidiactl"), reason="no CUDA, or a GPU")
def test_no_driver(compiled, data, tmp_path):
    """The trainer that users get: it starts without CUDA's driver, and links neither it nor a library beside."""
    trainer = compiled("chars", "cuda", options=("--verbose",), environment={"CUDA_HOME": str(real_cuda())}.items())
    assert "there is no NVIDIA driver on this machine" in error_of(trainer, data, tmp_path)
    linked = subprocess.run(["ldd", trainer.folder / "trainer"], capture_output=True, text=True, check=True).stdout
    assert not re.search("cuda|cublas|nccl|nvrtc|mpi|dnnl", linked), linked

