"""What the assembler made of kernels at full size: one access for 16 bytes, no local memory, and Hopper's instructions.

    tests/cuda/sass.py MPC FOLDER      prints how far it came, and what is wrong; FOLDER: for temporary files

Compiles by NVRTC for sm_90a, as a trainer does on Hopper, and reads cuobjdump's listing (on PATH, or in CUDA's bin; it needs nvdisasm beside it).
"""
import collections
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
PROGRAMS = [("gpt2", "bf16", ()), ("llama", "bf16", ("-D", "head=128")), ("gpt2", "fp16", ("-D", "embed=1600", "-D", "heads=25"))]
# Stores of kernels, by their names: widths in bits that must be there, and the most narrower ones.
WIDE = [("attend(_v2)?", 4),       # y; and lse, for the rows of a thread
        ("attend(_v2)?_hopper", 2),
        ("attend_grad_[23]", 0),   # dk and dv; dq
        (r"rope(_v\d)?_2", 0),
        ("h_mlp_epilogue", 0), ("x_2_v2", 0), ("h_ln_1", 0), ("h_ln_2", 0), ("h_attn_norm", 0), ("h_mlp_norm", 0)]


HOPPERS = ("HGMMA", "UTMALDG", "USETMAXREG")  # products of warpgroups, copies of boxes, exchange of registers


def cubin(text, architecture):
    """Compiles as a trainer does (runtime/cuda/kernels.c)."""
    nvrtc, program, size = ctypes.CDLL(str(HOME / "lib64/libnvrtc.so")), ctypes.c_void_p(), ctypes.c_size_t()
    options = [f"--gpu-architecture={architecture}", *(f"--include-path={ROOT}/runtime{part}" for part in ("", "/cuda", "/cuda/nvrtc"))]
    options += re.findall(r'"(-[^"]*)"', (ROOT / "runtime/cuda/nvrtc_options.h").read_text())
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
    if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options))):
        sys.exit("NVRTC cannot compile the kernels")
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    return code.raw


def accesses(listing):
    """Of each kernel, how often each instruction accesses how many bits: {("STG", 128): 4}; 0: of those without a width."""
    for text in re.split(r"\n\s*Function : ", listing)[1:]:
        found = collections.Counter()
        for name, words in re.findall(r"^\s+/\*\w+\*/\s+(?:@!?U?P\w+ )?(LDG|STG|LDL|STL|LD|ST)((?:\.\w+)*) ", text, re.M):
            widths = [int(width) for width in re.findall(r"\d+", re.sub(r"\.(?!U?S?\d)\w*", "", words))]
            found[name, widths[0] if widths else 32] += 1
        for name in HOPPERS:
            found[name, 0] = text.count(f" {name}")
        yield text.split()[0], found


def complaints(kernel, found):
    local = sum(count for (name, _), count in found.items() if name in ("LDL", "STL"))
    if local and not re.search(r"(_rope(_v\d+)?|^rt_initial_values)$", kernel):  # log, pow, sin and cos of double precision
        yield f"{local} accesses of local memory"
    if any(name in ("LD", "ST") for name, _ in found):
        yield "accesses of which the compiler does not know the memory"
    for name in HOPPERS if kernel.endswith("_hopper") else ():
        if not found[name, 0]:
            yield f"no {name}"
    for pattern, narrow in WIDE:
        if re.fullmatch(f"kernel_(\\w+_)?{pattern}" if "attend" in pattern or "rope" in pattern else f"kernel_{pattern}", kernel):
            stores = {width: count for (name, width), count in found.items() if name == "STG"}
            if 128 not in stores or sum(stores.values()) - stores[128] > narrow:
                yield f"stores of {stores} bits, not of 128"


def main(mpc, folder):
    tool = shutil.which("cuobjdump", path=f"{os.environ['PATH']}:{HOME}/bin")
    if not tool:
        return 0
    wrong, count = [], 0
    for model, precision, options in PROGRAMS:
        out = pathlib.Path(folder) / "sass-out"
        subprocess.run([mpc, "compile", ROOT / f"examples/{model}.mdl", "--target=cuda", "--no-cc", *options, "--set",
                        f"train.precision={precision}", "-o", out], check=True, stdout=subprocess.DEVNULL)
        (out / "cubin").write_bytes(cubin((out / "kernels.cu").read_text(), "sm_90a"))
        listing = subprocess.run([tool, "-sass", out / "cubin"], check=True, capture_output=True, text=True,
                                 env={**os.environ, "PATH": f"{os.path.dirname(tool)}:{os.environ['PATH']}"}).stdout
        for kernel, found in accesses(listing):
            count += 1
            wrong += [f"{model} {precision}: {kernel}: {why}" for why in complaints(kernel, found)]
    print("\n".join(wrong) or f"{count} of them access memory in its whole width")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
