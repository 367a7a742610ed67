"""What XLA's partitioner makes of a training step of GPT-2, for layouts.py: JSON of requests -> a line of JSON for each.

The step is that of examples/gpt2.mdl, as a careful user of JAX writes it: every parameter, the residual stream, heads,
hidden units, logits and AdamW's state have the sharding that mpc gives them; q, k and v are one product, since XLA
reduces the gradients of three one by one.  `again` puts each layer under a checkpoint that saves
all but what was gathered, which is what mpc does.  It is compiled for 8 CPU devices and never run.
"""

import json
import math
import os
import sys
from functools import partial

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax  # noqa: E402  (reads the environment)
import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from hlo import traffic  # noqa: E402

LAYER = {"ln_1.gain": ["embed"], "ln_1.bias": ["embed"],
         "w_qkv": ["embed", "three", "heads", "head"], "b_qkv": ["three", "heads", "head"],
         "wo": ["heads", "head", "embed"], "bo": ["embed"], "ln_2.gain": ["embed"], "ln_2.bias": ["embed"],
         "w_up": ["embed", "ff"], "b_up": ["ff"], "w_down": ["ff", "embed"], "b_down": ["embed"]}
ENDS = {"wte": ["vocab", "embed"], "wpe": ["seq", "embed"], "ln_f.gain": ["embed"], "ln_f.bias": ["embed"]}
SPLIT = {"batch": "dp", "seq": "cp", "heads": "tp", "ff": "tp", "vocab": "tp"}


class Layout:
    """From dims to shardings, for one request."""

    def __init__(self, request):
        self.axes, self.sizes = request["mesh"], request["sizes"]
        self.zero, self.sequence, self.again = request["zero"], request["sequence"], request["again"]
        self.mesh = jax.make_mesh(tuple(self.axes.values()), tuple(self.axes),
                                  axis_types=(jax.sharding.AxisType.Auto,) * len(self.axes))

    def named(self, parts):
        return NamedSharding(self.mesh, PartitionSpec(*[tuple(part) or None for part in parts]))

    def split(self, dims):
        """The axes of each dim of an activation, or of a parameter where it is used."""
        return [[SPLIT[dim]] if SPLIT.get(dim) in self.axes else [] for dim in dims]

    def used(self, dims):
        return self.named(self.split([dim if dim != "seq" else "positions" for dim in dims]))

    def kept(self, dims):
        """Of a parameter between steps: ZeRO splits the first dim that divides."""
        parts = self.split(dims)
        if self.zero and "dp" in self.axes:
            for dim, part in zip(dims, parts):
                if self.sizes[dim] % math.prod(self.axes[axis] for axis in [*part, "dp"]) == 0:
                    part.append("dp")
                    break
        return self.named(parts)

    def hold(self, x, *dims):
        return jax.lax.with_sharding_constraint(x, self.named(self.split(dims)))

    def stream(self, x):
        """The residual stream, whose sequence the layout's `else` splits."""
        batch, seq, embed = self.split(["batch", "seq", "embed"])
        return jax.lax.with_sharding_constraint(x, self.named([batch, seq + ["tp"] * self.sequence, embed]))

    def part(self, x):
        """A rank's keys or values: without this, the backward pass gets them gathered, since their one use wants that."""
        return self.hold(x, "batch", "seq", "heads", "head")

    def whole(self, x):
        """What a product reads of the stream."""
        return self.hold(x, "batch", "seq", "embed")

    def weights(self, values, dims):
        return {name: jax.lax.with_sharding_constraint(value, self.used(dims[name])) for name, value in values.items()}


def norm(x, gain, bias):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain + bias


def attention(at, x, w):
    qkv = at.hold(jnp.einsum("bse,enhd->bsnhd", x, w["w_qkv"]) + w["b_qkv"], "batch", "seq", "three", "heads", "head")
    q, k, v = (qkv[:, :, part] for part in range(3))
    k, v = (at.hold(at.part(tensor), "batch", "keys", "heads", "head") for tensor in (k, v))
    scores = at.hold(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]), "batch", "heads", "seq", "keys")
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    y = at.hold(jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v), "batch", "seq", "heads", "head")
    return at.stream(jnp.einsum("bshd,hde->bse", y, w["wo"])) + w["bo"]


def layer(at, x, stored):
    w = at.weights(stored, LAYER)
    x = x + attention(at, at.whole(at.stream(norm(x, w["ln_1.gain"], w["ln_1.bias"]))), w)
    y = at.whole(at.stream(norm(x, w["ln_2.gain"], w["ln_2.bias"])))
    hidden = at.hold(jax.nn.gelu(jnp.einsum("bse,ef->bsf", y, w["w_up"]) + w["b_up"]), "batch", "seq", "ff")
    return at.stream(x + (at.stream(jnp.einsum("bsf,fe->bse", hidden, w["w_down"])) + w["b_down"]))


def loss(at, parameters, tokens, labels):
    ends, layers = parameters
    w = at.weights(ends, ENDS)
    x = at.stream(at.stream(w["wte"][tokens]) + w["wpe"])
    body = partial(layer, at)
    if at.again:
        body = jax.checkpoint(body, policy=lambda primitive, *_, **__: primitive.name != "sharding_constraint")
    for stored in layers:
        x = body(x, stored)
    y = at.whole(at.stream(norm(x, w["ln_f.gain"], w["ln_f.bias"])))
    logits = at.hold(jnp.einsum("bse,ve->bsv", y, w["wte"]), "batch", "seq", "vocab")
    at_label = jnp.where(jnp.arange(logits.shape[-1]) == labels[..., None], logits, 0).sum(-1)
    return (jax.nn.logsumexp(logits, axis=-1) - at_label).mean()


def step(at, kept, parameters, moments, squares, tokens, labels):
    """One update by AdamW of the gradient clipped to norm 1."""
    value, gradients = jax.value_and_grad(partial(loss, at))(parameters, tokens, labels)
    gradients = jax.tree.map(jax.lax.with_sharding_constraint, gradients, kept)
    length = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g / jnp.maximum(length, 1), gradients)
    moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, gradients)
    squares = jax.tree.map(lambda s, g: 0.95 * s + 0.05 * g * g, squares, gradients)
    parameters = jax.tree.map(lambda p, m, s: p - 1e-4 * (m / (jnp.sqrt(s) + 1e-8) + 0.1 * p), parameters, moments, squares)
    return parameters, moments, squares, value


def compiled(request):
    """The text of the compiled module."""
    at, sizes = Layout(request), request["sizes"]
    dims = (ENDS, [LAYER] * request["layers"])
    leaf = lambda entry: isinstance(entry, list) and all(isinstance(dim, str) for dim in entry)  # noqa: E731
    kept = jax.tree.map(at.kept, dims, is_leaf=leaf)
    state = jax.tree.map(lambda names: jax.ShapeDtypeStruct([sizes[dim] for dim in names], "float32"), dims, is_leaf=leaf)
    tokens = jax.ShapeDtypeStruct((sizes["batch"], sizes["seq"]), "int32")
    data = at.named(at.split(["batch", "seq"]))
    train = jax.jit(partial(step, at, kept), in_shardings=(kept, kept, kept, data, data),
                    out_shardings=(kept, kept, kept, at.named([])), donate_argnums=(0, 1, 2))
    return train.lower(state, state, state, tokens, tokens).compile().as_text()


def main():
    for request in json.loads(sys.argv[1]):
        text = compiled(request)
        if len(sys.argv) > 2:
            open(sys.argv[2], "w").write(text)
        print(json.dumps(dict(version=jax.__version__, **traffic(text))), flush=True)


main()
