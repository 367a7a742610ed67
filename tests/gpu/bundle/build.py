#!/usr/bin/env python3
"""make gpu-bundle: a folder that runs on a bare GPU machine, with a driver, CUDA's libraries and a python3, and without
compilers, MPI and network.  All is compiled, and what processors compute is computed, here; run.py goes along and runs there.

    build.py FOLDER [--emulated HOME]      HOME: the emulated device (tests/device/build.sh): a few trainers for it

    check/NAME/     a trainer, as trainer.xz; case.json says how it is run, expected.jsonl what a trainer for processors says
    bench/NAME/     trainers of bench/gpu.py, and its tokens
    kernels/        programs whose kernels are compared with the interpreter (tests/gpu/kernels.sh)
    probe           products by cuBLASLt (probe.c)
    lib/            libraries that not every machine has
"""
import argparse
import importlib.util
import json
import lzma
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
CUDA = pathlib.Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")

# Reduced models; the same widened, so that kernels are what they are at full size; and a loss whose rows fill shared memory
# together with what the kernel declares.
TINY = {"chars": "layers=2 embed=32 heads=2 seq=16", "gpt2": "layers=2 embed=40 heads=4 seq=16 vocab=250",
        "llama": "layers=2 embed=32 kv_heads=2 group=2 head=8 ff=56 seq=20 vocab=256",
        "bert": "layers=2 embed=32 heads=4 seq=16 vocab=243",
        "mixtral": "layers=2 embed=32 kv_heads=2 group=2 head=8 ff=48 seq=20 vocab=256 experts=4"}
WIDE = {"gpt2": "layers=2", "llama": "layers=2 seq=512 head=128 kv_heads=2 group=4 embed=1024 ff=2816"}
# What the models above do not have: caps, windows that differ by layer, latent attention, experts by groups, sinks, scans.
MODELS = {
    "gemma2": ("bf16", "layers=2 window=6 seq=20 vocab=256 embed=32 kv_heads=2 group=2 head=8 ff=56"),
    "gemma3": ("bf16", "layers=6 window=5 seq=20 vocab=256 embed=32 kv_heads=1 group=2 head=8 ff=48"),
    "deepseek": ("fp32", "dense_layers=1 layers=1 vocab=256 seq=12 embed=16 heads=2 nope=6 turned=4 vhead=6 q_rank=8 kv_rank=8 ff=24"
                         " expert_ff=8 experts=8 groups=4 choice=2 limit=2"),
    "gptoss": ("fp32", "layers=2 window=6 seq=20 vocab=256 embed=32 kv_heads=2 group=2 half=4 ff=48 experts=4 choice=2"),
    "mamba2": ("fp32", "layers=2 chunk=2 place=8 vocab=256 embed=32 heads=4 head=8 state=8"),
    "rwkv": ("fp32", "layers=2 seq=16 vocab=250 embed=32"),
    "lstm": ("fp32", "seq=16 vocab=256 hidden=32"),
}
# All rows of experts may be filled, and few are: products of mpc's own.
DROPLESS = ("layers=2 embed=64 kv_heads=2 group=2 head=16 ff=96 seq=48 vocab=256 experts=4", ("capacity = capacity, within = batch", "capacity = none"))
SHARED = "layers=1 embed=64 heads=2 seq=64 vocab=24448"
# Ranks that share the GPU: each kind of message.
RING = ("shard seq over cp", "shard seq over cp (attend = ring)")
LAYOUTS = [("chars", "dp=2", {}), ("chars", "tp=2", {}), ("gpt2", "dp=2", dict(zero=3)), ("gpt2", "pp=2", {}), ("llama", "cp=2", {}),
           ("llama", "cp=2", dict(edit=RING)), ("llama", "dp=2,tp=2", dict(zero=3)), ("mixtral", "ep=2", {})]
LIBRARIES = ("libcjson.so.1", "libcrypto.so.3", "libgomp.so.1")


def say(text):
    print(text, flush=True)


def ranks_of(mesh):
    return math.prod(int(axis.split("=")[1]) for axis in mesh.split(",")) if mesh else 1


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"make gpu-bundle: {' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Bundle:
    def __init__(self, folder, home):
        self.folder, self.home = folder, home
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.expected = {}  # logs of processors, by what was run

    def compile(self, folder, model, target, dims, *options, edit=("", "")):
        """Trainers for GPUs without what only a compiler needs; `edit`: of the example's text."""
        source = self.work / f"{model}.mdl"
        source.write_text((ROOT / f"examples/{model}.mdl").read_text().replace(*edit))
        words = [word for dim in dims.split() for word in ("-D", dim)]
        flags = [] if target == "c" else ["--cflags=-rdynamic -O0"] if self.home else ["--cflags=-O2"]
        environment = {**os.environ, "CUDA_HOME": str(self.home or CUDA)}
        run(BUILD / "mpc", "compile", source, f"--target={target}", *flags, *words, *options, "-o", folder,
            env=environment)
        if target == "cuda":
            self.strip(folder)

    def strip(self, folder):
        for file in ("trainer.c", "kernels.cu"):
            (folder / file).unlink()
        trainer = folder / "trainer"
        if not self.home:
            run("strip", trainer)
        (folder / "trainer.xz").write_bytes(lzma.compress(trainer.read_bytes()))
        trainer.unlink()

    def case(self, name, model, dims, precision="fp32", reference=None, data="bytes", steps=4, batch=4, micro=2, mesh=None, zero=0,
             edit=("", "")):
        """A trainer for a GPU, and what one for a processor says, in the precision `reference`, on one rank."""
        say(f"  {name}")
        folder, reference = self.folder / "check" / name, reference or precision
        settings = ["--set", f"train.batch={batch}", "--set", "train.optimizer.lr=1e-3", "--set", "train.schedule.warmup=2"]
        self.compile(folder, model, "cuda", dims, *settings, "--set", f"train.precision={precision}", "--set",
                     f"train.microbatch={micro}", *(["--mesh", mesh] if mesh else []), *(["--zero", str(zero)] if zero else []), edit=edit)
        file = {"bytes": "bytes", "u16": "tokens.u16"}[data]
        key = (model, edit, dims, reference, batch, steps)
        if key not in self.expected:
            out = self.work / name
            self.compile(out, model, "c", dims, *settings, "--set", f"train.precision={reference}", "--set",
                         f"train.microbatch={batch if mesh else micro}", edit=edit)
            run(out / "trainer", "--data", self.folder / file, "--data-format", data, "--steps", steps, "--log", out / "log")
            self.expected[key] = out / "log"
        shutil.copy(self.expected[key], folder / "expected.jsonl")
        (folder / "case.json").write_text(json.dumps(dict(data=file, format=data, steps=steps, precision=precision,
                                                          reference=reference, ranks=ranks_of(mesh), is_wide=name.startswith("wide"))))

    def data(self):
        (self.folder / "bytes").write_bytes(bytes(b % 240 for b in (ROOT / "README.md").read_bytes()[:8000]))
        generator = random.Random(1)
        tokens = b"".join(generator.randrange(30000).to_bytes(2, "little") for _ in range(1 << 20))
        (self.folder / "tokens.u16").write_bytes(tokens)

    def cases(self):
        say("trainers to check, and what processors say")
        for model in ("chars", "gpt2") if self.home else ("chars", "gpt2", "llama", "bert"):
            for precision in ("fp32",) if model == "chars" else ("bf16",) if self.home else ("fp32", "bf16", "fp16"):
                self.case(f"{model}-{precision}", model, TINY[model], precision)
        for model, mesh, how in LAYOUTS[1:2] if self.home else LAYOUTS:
            name = "-".join([model, mesh, *(["zero"] if "zero" in how else []), *(["ring"] if "edit" in how else [])])
            self.case(name, model, TINY[model], batch=8, micro=4, mesh=mesh, **how)
        if not self.home:
            for model, (precision, dims) in MODELS.items():
                self.case(f"{model}-{precision}", model, dims, precision)
            for precision in ("bf16", "fp16"):
                self.case(f"experts-{precision}", "mixtral", DROPLESS[0], precision, edit=DROPLESS[1])
            self.case("shared-bf16", "gpt2", SHARED, "bf16", "fp32", steps=3, batch=2)
            self.case("wide-gpt2-fp8", "gpt2", WIDE["gpt2"], "fp8", "fp8", "u16", steps=3, batch=2, micro=1)
            for model, dims in WIDE.items():
                for precision in ("fp32", "bf16"):
                    self.case(f"wide-{model}-{precision}", model, dims, precision, "fp32", "u16", steps=3, batch=2, micro=1)

    def bench(self):
        say("trainers to measure")
        spec = importlib.util.spec_from_file_location("gpu", ROOT / "bench/gpu.py")
        gpu = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(gpu)
        gpu.OUT = self.folder / "bench"
        for _, shape, batch, seq in gpu.all_rows():
            folder = gpu.folder_of(shape, batch, seq)
            run(*gpu.compile_command(shape, batch, seq, folder))
            self.strip(folder)

    # These two are also compiled for the emulated device, where CUDA's libraries are at hand, but not run there.

    def kernels(self):
        """Programs, the comparison, and the headers that it compiles them with."""
        say("kernels beside the interpreter")
        folder = self.folder / "kernels"
        run("sh", "tests/gpu/kernels.sh", "--bundle", folder, cwd=ROOT, env={**os.environ, "BUILD": str(BUILD)})
        for file in (ROOT / "runtime").rglob("*"):
            if file.suffix in (".h", ".cuh"):
                to = folder / file.relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)

    def probe(self):
        """Products by cuBLASLt."""
        run(*shlex.split(os.environ.get("CC", "cc")), "-std=gnu17", "-O1", HERE / "probe.c", "-isystem", CUDA / "include",
            CUDA / "lib64/libcudart_static.a", f"-L{CUDA}/lib64", "-lcublasLt", "-lpthread", "-ldl", "-lrt", "-lm", "-o",
            self.folder / "probe")

    def libraries(self):
        known = dict(re.findall(r"^\s*(\S+) .*=> (\S+)$", run("/sbin/ldconfig", "-p"), re.M))
        for name in LIBRARIES:
            shutil.copy(known[name], self.folder / "lib" / name)

    def build(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("check", "bench", "kernels", "lib"):
            (self.folder / name).mkdir(parents=True)
        for file in (HERE / "run.py", ROOT / "bench/gpu.py", ROOT / "bench/pytorch.py"):
            shutil.copy(file, self.folder)
        (self.folder / "bundle.json").write_text(json.dumps(dict(emulated=str(self.home) if self.home else None)))
        self.data()
        self.libraries()
        self.cases()
        if not self.home:
            self.bench()
        if not self.home or (CUDA / "lib64/libnvrtc.so").exists():
            self.probe()
            self.kernels()
        shutil.rmtree(self.work)
        size = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
        say(f"{self.folder}: {size / 1e6:.0f} MB; there: python3 run.py check, then probe, bench, peers")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--emulated", type=lambda path: pathlib.Path(path).resolve(), metavar="HOME")
    options = parser.parse_args()
    if not (BUILD / "libmpcrt_cuda.a").exists():
        sys.exit(f"make gpu-bundle: {BUILD} has no runtime for GPUs: set CUDA_HOME, and make")
    Bundle(options.folder, options.emulated).build()


if __name__ == "__main__":
    main()
