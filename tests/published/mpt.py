"""MPT, 125M to 70B, by FSDP on 8 to 512 A100 and H100, in bf16.

mpt-fsdp-throughput.csv     mosaicml/llm-foundry@8c8dd48: scripts/train/benchmarking/README.md; sizes of its yaml files

FULL_SHARD is zero 3, SHARD_GRAD_OP zero 2; a block is one message; attention is fused, by kernels of 2023: steps took 1.3
times as long as predicted with sequences of 1,024 on H100, 2.6 times with those of 65,536.
"""
import os

from reports import HERE, ROOT, edited, reports, rows, settings, sizes

ZERO = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2}


def fused_model(folder):
    """gpt.mdl with attention whose scores are not in memory, and FSDP's messages."""
    return edited(HERE / "gpt.mdl", [
        ("dim key   = seq\n", ""),
        ("rename(dot(x, wk, embed) + bk, seq -> key)", "dot(x, wk, embed) + bk"),
        ("rename(dot(x, wv, embed) + bv, seq -> key)", "dot(x, wv, embed) + bv"),
        ("    scores = where(iota(seq) >= iota(key), dot(q, k, head) / sqrt(head), -10000)\n", ""),
        ("dot(softmax(scores, key), v, key)", "attend(q, k, v, seq, head, causal = true)"),
        ("(overlap_grads = false, overlap_params = false)", "(bucket = 4_000_000_000, overlap_grads, overlap_params)")], folder)


def machines(folder):
    """The A100 of 40 GB has another memory: 40,960 MiB, 1.555 TB/s by the data sheet, of which 88 %."""
    smaller = [("name                     A100 SXM4 80 GB", "name                     A100 SXM4 40 GB"),
               ("memory                   85.9 GB ", "memory                   42.95 GB"),
               ("1GB:1.8TB/s ", "1GB:1.37TB/s")]
    return {"a100_40gb": edited(ROOT / "machines/a100.machine", smaller, folder), "a100_80gb": "a100",
            "h100_80gb": "h100"}


def words_of(row, model):
    words = sizes(layers=row["n_layers"], embed=row["d_model"], heads=row["n_heads"], seq=row["seq"], vocab=50368)
    words += settings(batch=row["gbs"], microbatch=row["mbs"])
    return [model, *words, f"--mesh=dp={row['gpus']}", f"--zero={ZERO[row['fsdp']]}",
            f"--recompute={'full' if row['act_ckpt'] == 'True' else 'none'}"]


def steps(folder):
    """(row, published seconds, prediction).  Without ALL=1, of sequences of 2,048."""
    model = fused_model(folder)
    table = [row for row in rows("mpt-fsdp-throughput.csv") if "bf16" in row["precision"]
             and (os.environ.get("ALL") or row["seq"] == "2048")]
    for gpu, machine in machines(folder).items():
        mine = [row for row in table if row["gpu"] == gpu]
        for row, report in zip(mine, reports([words_of(row, model) for row in mine], machine)):
            assert report["parameters"] == int(row["n_params"]), row
            yield row, int(row["gbs"]) * int(row["seq"]) / float(row["tok_s"]), report["time"]


def print_steps(folder):
    for row, seconds, time in steps(folder):
        print(f"{row['gpus']} {row['gpu']}, {row['model']}, {row['mbs']} of {row['gbs']} x {row['seq']}, {row['fsdp']}: "
              f"{seconds:.2f} s, predicted {time['seconds']:.2f} (x {seconds / time['seconds']:.2f}); "
              f"MFU {row['mfu']} %, predicted {float(row['mfu']) * seconds / time['seconds']:.1f}; "
              f"{time['memory_bytes'] / 1e9:.1f} GB")
