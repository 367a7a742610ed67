"""Fails if docs/plan.md lacks a key that a machine file may have, or has one that it may not, or a machine of mpc."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = r"( (f32|bf16|f16|e4m3|all_reduce|all_gather|reduce_scatter|all_to_all|send|rotate|32|64|128|256))*$"


def keys():
    for row in re.finditer(r'^(?:LINE|PER_\w+)\( *\w+, +"([^"]+)"', (ROOT / "ir/cost/machine.def").read_text(), re.M):
        yield re.sub(WORDS, "", row[1])


def main():
    page = (ROOT / "docs/plan.md").read_text()
    table = page.split("| key | value | meaning |")[1].split("\n\n")[0]
    listed = {key.removesuffix(" *") for row in table.splitlines() for key in re.findall(r"`([a-z *]+)`", row.split(" | ")[0])}
    wrong = [f"docs/plan.md: {key} is {'not listed' if key not in listed else 'no key'}" for key in sorted(set(keys()) ^ listed)]
    shipped = {path.stem for path in (ROOT / "machines").glob("*.machine")}
    wrong += [f"docs/plan.md: {name}" for name in sorted(shipped ^ set(re.findall(r"^\| `(\w+)` \| NVIDIA", page, re.M)))]
    print("\n".join(wrong) or f"{len(listed)} keys of machines are in docs/plan.md")
    sys.exit(bool(wrong) or len(listed) < 15)


main()
