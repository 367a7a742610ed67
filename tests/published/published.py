"""Published steps, and what mpc predicts for them: `published.py [own] [dgx] [nanotron] [bloom] [zb] [mpt] [offload]` prints rows,
with ALL=1 in the environment all of nanotron and mpt.

bench/results               mpc's own trainers on one GPU
dgx-cloud-h100-llama.csv    NVIDIA/dgxc-benchmarking, tag v25.04.01: Llama 3.1 on H100 in bf16, NeMo and Megatron-Core
nanotron-h100-part.csv      the plot of Hugging Face's Ultra-Scale Playbook, by vinjn/nanotron-ultrascale-playbook@924e4d0:
                            Llamas of 1B and 8B on 8 to 64 H100

bloom.py, zero_bubble.py and mpt.py have the tables of GPTs, offload.py what is published of one GPU and its host.
"""
import os
import pathlib
import re
import sys
import tempfile

import bloom
import mpt
import offload
import zero_bubble
from reports import HERE, ROOT, edited, predictions, report, rows, settings, sizes

DGX = {"8b": dict(embed=4096, kv_heads=8, group=4, ff=14336), "70b": dict(embed=8192, kv_heads=8, group=8, ff=28672),
       "405b": dict(embed=16384, kv_heads=8, group=16, ff=53248)}


GPT2 = dict(vocab=50257)
LLAMA = dict(vocab=128256, kv_heads=8, group=4)
OWN = {"GPT-2 124M": ("gpt2", dict(GPT2, layers=12, embed=768, heads=12)),
       "GPT-2 1.5B": ("gpt2", dict(GPT2, layers=48, embed=1600, heads=25)),
       "Llama 1B": ("llama", dict(LLAMA, layers=16, embed=2048, head=64, ff=8192)),
       "Llama 8B, 8 of 32 layers": ("llama", dict(LLAMA, layers=8, embed=4096, head=128, ff=14336)),
       "Llama 8B, 8 of 32 layers, fp8": ("llama", dict(LLAMA, layers=8, embed=4096, head=128, ff=14336))}


def count(text):
    return 1 if text == "NA" else int(text)


def dgx_words(row):
    """Megatron-Core counts embedding and head as a layer each, where layers are not a multiple of the stages.  Stages
    without any layer, as 30 layers on 32 stages have them, mpc does not have: there are fewer chunks."""
    layers, pp = int(row["layers"]), count(row["pp"])
    chunks = min(count(row["vp"]), layers // pp)
    words = sizes(layers=layers, seq=8192, vocab=128256, head=128, **DGX[row["title"].split()[2]])
    words += settings(batch=row["gbs"], microbatch=row["mbs"])
    if pp > 1:
        words += ["--schedule=interleaved", f"--chunks={chunks}"]
    if pp > 1 and layers % (pp * chunks) and (layers + 2) % (pp * chunks) == 0:
        each = (layers + 2) // (pp * chunks)
        words += ["--stages=" + ",".join(str(each - (stage in (0, pp * chunks - 1))) for stage in range(pp * chunks))]
    return [HERE / "llama.mdl", *words, f"--mesh=pp={pp},dp={row['dp']},cp={row['cp']},tp={row['tp']}"]


def nanotron_words(row, folder):
    """1f1b; of tied embeddings, one parameter.  Attention has a head of keys for each of queries."""
    path = HERE / "llama.mdl"
    if row["embeddings_inferred"] == "tied":
        path = folder / "llama.mdl"
    words = sizes(layers=row["layers"], seq=4096, vocab=row["vocab_inferred"], embed=row["hidden"], ff=row["ffn"],
                  kv_heads=row["heads"], group=1, head=int(row["hidden"]) // int(row["heads"]), theta=10000)
    words += settings(batch=row["gbs_seq"], microbatch=row["mbs"])
    return [path, *words, f"--mesh=pp={row['pp']},dp={row['dp']},cp=1,tp={row['tp']}", f"--zero={row['zero']}"]


def tied_model(folder):
    """llama.mdl with one table for embedding and head."""
    param = "    param head_out  : [embed, vocab] = normal(0.02)\n"
    return edited(HERE / "llama.mdl", [(param, ""), (", head_out, embed)", ", embedding, embed)")], folder)


def dgx(machine="h100"):
    """(row, published seconds, prediction)"""
    table = rows("dgx-cloud-h100-llama.csv")
    return [(row, float(row["step_s"]), time) for row, time in zip(table, predictions(map(dgx_words, table), machine))]


def group_of(row):
    return row["model"], row["gpus"], row["embeddings_inferred"]


def nanotron(folder, machine="h100"):
    """The same, of those rows that are within twice of the best of their model and number of ranks: others lose time
    that no model of theirs explains, a second a micro-batch with pp over several machines.  Without ALL=1, those on 8
    and on 64 GPUs."""
    tied_model(folder)
    table = [row for row in rows("nanotron-h100-part.csv") if os.environ.get("ALL") or row["gpus"] in ("8", "64")]
    best = {}
    for row in table:
        best[group_of(row)] = min(best.get(group_of(row), 1e9), float(row["step_time_s"]))
    near = [row for row in table if float(row["step_time_s"]) < 2 * best[group_of(row)] and row["consistent_gbs"] == "1"]
    commands = [nanotron_words(row, folder) for row in near]
    return [(row, float(row["step_time_s"]), time) for row, time in zip(near, predictions(commands, machine))]


def trace_of(text, title):
    """Milliseconds of kernels by kind, of the section "TITLE: where the step goes"."""
    section = text.split(f"## {title}: where the step goes")[1].split("\n## ")[0]
    ms = {kind: float(time) for kind, time in re.findall(r"^\| (\w+) \| ([\d.]+) \| [^|]*\|[^|]*\|$", section, re.M)}
    attention = ms.pop("attend") + ms.pop("attend_grad")
    return {"products": ms.pop("product"), "attention": attention, "kernels": sum(ms.values())}


def own():
    """mpc's own trainers on one GPU: (name, published ms of the step, of its parts in the trace, prediction)."""
    for gpu in ("H100", "H200"):
        text = (ROOT / f"bench/results/2026-11-27-gpu-{gpu}.md").read_text()
        for name, batch, seq, speed in re.findall(r"^\| ([^|]*?) \| (\d+) x (\d+) \| ([\d,]+) \|", text, re.M):
            title = f"{name}, {batch} x {seq}"
            if name in OWN and f"## {title}: where" in text:
                words = [ROOT / f"examples/{OWN[name][0]}.mdl", *sizes(seq=seq, **OWN[name][1]),
                         *settings(batch=batch, microbatch=batch, precision="fp8" if "fp8" in name else "bf16"),
                         "--recompute=none"]
                yield (f"{gpu}: {title}", 1e3 * int(batch) * int(seq) / int(speed.replace(",", "")),
                       trace_of(text, title), report(words, gpu.lower())["time"])


def errors(found):
    return sorted(abs(time["seconds"] / seconds - 1) for _, seconds, time in found)


def print_rows(found, keys):
    for row, seconds, time in found:
        parts = " ".join(f"{name} {value:.2f}" for name, value in time["parts"].items() if value > 0.005 * seconds)
        axes = " ".join(f"{x['axes']} {x['exposed']:.2f}/{x['seconds']:.2f}" for x in time["axes"])
        print(" ".join(row[key] for key in keys), f"{seconds:.2f} predicted {time['seconds']:.2f}",
              f"{100 * (time['seconds'] / seconds - 1):+.1f} %:", parts, "|", axes)
    all_errors = errors(found)
    print(f"{len(found)} rows: median {100 * all_errors[len(found) // 2]:.1f} %, nine of ten within "
          f"{100 * all_errors[9 * len(found) // 10]:.1f} %")


def print_own():
    for name, ms, trace, time in own():
        parts = ", ".join(f"{part} {1e3 * time['parts'][part]:.1f} of {trace[part]:.1f}" for part in trace)
        print(f"{name}: {ms:.1f} ms, predicted {1e3 * time['seconds']:.1f} ({100e3 * time['seconds'] / ms - 100:+.1f} %): {parts}")


def main():
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        tables = {"own": print_own,
                  "dgx": lambda: print_rows(dgx(), ["title", "gpus", "layers"]),
                  "nanotron": lambda: print_rows(nanotron(folder), ["model", "gpus", "embeddings_inferred", "dp", "tp",
                                                                    "pp", "mbs", "grad_acc", "zero"]),
                  "bloom": bloom.print_sweep,
                  "zb": zero_bubble.print_steps,
                  "mpt": lambda: mpt.print_steps(folder),
                  "offload": offload.print_steps}
        for name in sys.argv[1:] or tables:
            tables[name]()


if __name__ == "__main__":
    main()
