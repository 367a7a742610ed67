"""A router whose product the model asks for in f32 is computed in f32: its logits, its gates, and their gradients.

https://github.com/vllm-project/vllm/pull/14027 and https://github.com/pytorch/torchtitan/pull/2389: logits of a router were
rounded to bf16, and with them experts whose scores were close were exchanged.  mpc did the same, whatever the model said:
dot(cast(x, f32), router) was a product of bf16.

Planted after `padding`, as a cast behind the product.  No check of types or of meaning can notice it, since neither rounds:
what notices is that the dtype of all that has the router's dim is looked at.
"""
import re
import subprocess

from conftest import ranks

VALUE = re.compile(r"^    %\S+ = (\w+) .* : (\w+)\[([^\]]*)\]", re.M)


def program(tmp_path):
    out = tmp_path / "program.mir"
    said = [word for name, size in ranks.SIZES["deepseek"].items() for word in ("-D", f"{name}={size}")]
    subprocess.run([ranks.MPC, "compile", ranks.ROOT / "examples" / "deepseek.mdl", *said, "--set=train.batch=1",
                    "--compile-to=padding", "-o", out], check=True)
    return out.read_text()


def dtypes(text):
    """Of floating-point values of a layer that have the router's dim; the weights themselves come in bf16."""
    layers = "".join(piece for piece in re.split(r"(?m)^(?=  func )", text) if piece.startswith("  func @h."))
    return {dtype for _, dtype, dims in VALUE.findall(layers) if "experts.router" in dims and dtype not in ("bool", "i32")}


def test_right(tmp_path):
    assert dtypes(program(tmp_path)) == {"f32"}


def test_planted(tmp_path):
    text, count = re.subn(r"    (%\S+) = (dot \S+, \S+ \{over=embed\}) : f32(\[.*experts\.router:8\])( loc\(h\.routed\.gate .*\))",
                          r"    %wide = \2 : f32\3\4\n    %short = cast %wide {dtype=bf16} : bf16\3\4\n"
                          r"    \1 = cast %short {dtype=f32} : f32\3\4", program(tmp_path), count=1)
    planted = tmp_path / "planted.mir"
    planted.write_text(text)
    subprocess.run([ranks.MPC, "print", planted], check=True, stdout=subprocess.DEVNULL)
    assert count == 1 and dtypes(text) == {"f32", "bf16"}
