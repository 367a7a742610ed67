"""The real cuDNN knows mpc's graphs as attention, for GPUs that are not here: it has engines for them and makes plans."""
import os
import re
import subprocess

import pytest
from conftest import IS_REAL, ROOT, some, start
from test_start import real_cuda

# What a plan needs of the driver beyond the toolkit's stub, whose functions all fail.
LOADED = """
static int give(void **handle) { *handle = (void *)64; return 0; }
int cuLibraryLoadData(void **x) { return give(x); }
int cuLibraryGetKernel(void **x) { return give(x); }
int cuLibraryGetModule(void **x) { return give(x); }
int cuKernelGetFunction(void **x) { return give(x); }
int cuKernelSetAttribute(void) { return 0; }
int cuFuncSetAttribute(void) { return 0; }
int cuLibraryUnload(void) { return 0; }
static int fail(void) { return 34; }
"""


def library_folder():
    """Where the toolkit's cuDNN is, or None."""
    home = real_cuda()
    folders = [home / "lib64", home / "lib"] if home else []
    return next((folder for folder in folders if (folder / "libcudnn.so.9").exists()), None)


pytestmark = pytest.mark.skipif(IS_REAL or library_folder() is None or not (library_folder() / "stubs/libcuda.so").exists(),
                                reason="there is no cuDNN beside CUDA, or no stub of the driver")


def make_driver(folder):
    """libcuda.so.1, which fails but where a compiled kernel is loaded."""
    names = subprocess.run(["nm", "-D", "--defined-only", library_folder() / "stubs/libcuda.so"], capture_output=True, text=True, check=True)
    own = set(re.findall(r"^int (\w+)", LOADED, re.M))
    rest = [line.split()[2] for line in names.stdout.splitlines() if " T cu" in line]
    aliases = "".join(f'int {name}(void) __attribute__((alias("fail")));\n' for name in rest if name not in own)
    (folder / "driver.c").write_text(LOADED + aliases)
    start(["gcc", "-w", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1"], folder)


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    make_driver(folder)
    include = real_cuda() / "include"
    start(["gcc", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-I", ROOT / "runtime", "-isystem", include,
           ROOT / "tests/device/plans.c", ROOT / "runtime/cuda/cudnn.c", ROOT / "runtime/cuda/attention_graph.c", "-o", "plans", "-ldl"], folder)
    return folder


# Each takes cuDNN half a second to compile.  In make check the kinds: causal or not, three operands in one, few heads of keys, a window,
# a length that no tile divides.
SHAPES = some(["gpt2", "gpt2, f16", "llama", "bert", "one head", "window", "odd length", "gemma"], 0, 3, 5, 6)


@pytest.mark.parametrize("version", some([800, 900], 1))
def test_plans(version, plans):
    paths = f"{plans}:{library_folder()}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    lines = start([plans / "plans", version, *SHAPES], plans, environment={"LD_LIBRARY_PATH": paths}.items()).stdout.splitlines()
    assert lines[0].startswith("cuDNN 9") and len(lines) == 1 + 2 * len(SHAPES)
    workspaces = {}
    for line in lines[1:]:
        name, found, engines, workspace = re.fullmatch(r"(.*): (a plan|no plan), (\d+) engines, (\d+) bytes", line).groups()
        expected = "no plan" if version == 800 and name == "gemma, gradient" else "a plan"  # heads above 128 are Hopper's
        assert found == expected, line
        workspaces[name] = int(workspace)
    scores = {"gpt2": 8 * 12 * 1024**2, "llama": 32 * 2048**2}
    for name, count in ((name, scores[name]) for name in scores if name in SHAPES and version == 900):  # as attention_choose.c and docs/cuda.md say
        assert workspaces[name] < 1 << 20 and workspaces[f"{name}, gradient"] < 2.5 * count
