"""Random small models under random layouts: valid .mdl files, each of them another program for the passes.

A model is a stack of sublayers on x: [batch, seq, embed], each drawn from the table below, in blocks that repeat and
nest; its layout splits any of its dims over any of its axes.  The same number gives the same model.
"""
import random

ACTIVATIONS = ["gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "relu", "square", "sin", "cos", "abs"]


class Model:
    def __init__(self, number):
        self.draw = random.Random(number)
        self.number = number
        self.blocks, self.count = [], 0
        self.axes = {axis: self.draw.choice([2, 2, 2, 4])
                     for axis in self.draw.sample(["dp", "cp", "tp"], self.draw.randint(1, 3))}
        most = 4 if 4 in self.axes.values() else 2
        self.sizes = dict(seq=8 if len(self.axes) < 3 else 16, vocab=self.draw.choice([5, 8, 11, 16]),
                          embed=8 if 4 in self.axes.values() else self.draw.choice([4, 8]),
                          heads=self.draw.choice([most, 4]),
                          group=most, head=self.draw.choice([most, 4]),
                          ff=self.draw.choice([3, 6, 8, 12]), rank=self.draw.choice([most, 4]))

    def block(self, body, result):
        """A block of its own of statements on x; gives its name."""
        self.count += 1
        lines = "".join(f"    {line}\n" for line in body)
        self.blocks.append(f"block b{self.count}(x: [batch, seq, embed]) {{\n{lines}    return {result}\n}}\n")
        return f"b{self.count}"

    def init(self):
        return self.draw.choice(["normal(0.3)", "uniform(-0.5, 0.5)", "ones", "normal(0.02) no_decay"])

    # --- Sublayers: each gives the name of a block from [batch, seq, embed] to the same ---------------------------

    def norm(self):
        kind = self.draw.choice(["layernorm", "rmsnorm"])
        body, result = [f"param gain : [embed] = {self.init()}"], f"{kind}(x, embed) * gain"
        if self.draw.random() < 0.5:
            body, result = body + ["param bias : [embed] = zeros"], result + " + bias"
        return self.block(body, result)

    def mlp(self):
        body = [f"param up : [embed, ff] = {self.init()}", f"param down : [ff, embed] = {self.init()}"]
        inside = "dot(x, up, embed)"
        if self.draw.random() < 0.4:
            body.append(f"param offset : [ff] = {self.init()}")
            inside += " + offset"
        hidden = f"{self.draw.choice(ACTIVATIONS)}({inside})"
        if self.draw.random() < 0.4:
            body.append(f"param gate : [embed, ff] = {self.init()}")
            hidden = f"{hidden} * dot(x, gate, embed)"
        if self.draw.random() < 0.3:
            hidden = f"dropout({hidden}, 0.2)"
        return self.block(body, f"dot({hidden}, down, ff)")

    def attention(self):
        grouped = self.draw.random() < 0.5
        q_dims, kv_dims = "heads, group, head" if grouped else "heads, head", "heads, head"
        body = [f"param wq : [embed, {q_dims}] = {self.init()}", f"param wk, wv : [embed, {kv_dims}] = {self.init()}",
                f"param wo : [{q_dims}, embed] = {self.init()}"]
        q, k, v = "dot(x, wq, embed)", "dot(x, wk, embed)", "dot(x, wv, embed)"
        if self.draw.random() < 0.4:
            body.append(f"param bq : [{q_dims}] = {self.init()}")
            body.append(f"param bv : [{kv_dims}] = {self.init()}")
            q, v = q + " + bq", v + " + bv"
        if self.draw.random() < 0.5:
            style = self.draw.choice(["half", "interleaved"])
            q, k = f"rope({q}, seq, head, style = {style})", f"rope({k}, seq, head, style = {style})"
        mask = self.draw.choice(["", ", causal = true", ", window = 2", ", causal = true, window = 3"])
        body += [f"q = {q}", f"k = {k}", f"v = {v}", f"y = attend(q, k, v, seq, head{mask})"]
        return self.block(body, f"dot(y, wo, {q_dims})")

    def scores(self):
        """Attention written out, with a bias of relative positions."""
        body = [f"param wq, wk : [embed, rank] = {self.init()}", f"param rel : [dist] = {self.init()}",
                "bias = rel[dist = iota(seq) - iota(key) + seq - 1]",
                "k = rename(dot(x, wk, embed), seq -> key)",
                "p = softmax(dot(dot(x, wq, embed), k, rank) + bias, key)"]
        return self.block(body, "dot(p, rename(x, seq -> key), key)")

    def mixing(self):
        """Sums, means and maxima along dims, spread out again."""
        dim = self.draw.choice(["seq", "embed"])
        by = self.draw.choice(["mean", "sum", "max", "min"])
        spread = self.draw.choice([f"{by}(x, {dim})", f"{by}(x, {dim})", f"stop_gradient({by}(x, {dim}))"])
        return self.block([f"param w : [embed] = {self.init()}", f"y = {spread}"],
                          f"{self.draw.choice(['tanh', 'sin'])}(x * w - y)")

    def low_rank(self):
        body = [f"param a : [embed, rank] = {self.init()}", f"param b : [rank, embed] = {self.init()}"]
        return self.block(body, "dot(dot(x, a, embed), b, rank)")

    def masked(self):
        body = [f"param w : [seq, embed] = {self.init()}", "odd = iota(seq) - iota(seq) / 2 * 2 == 1"]
        return self.block(body, self.draw.choice(["where(odd, x * w, x)", "where(odd, x, w)"]) + " + w[seq = 0]")

    def sublayer(self):
        table = [(4, self.mlp), (4, self.attention), (3, self.norm), (2, self.scores), (2, self.mixing),
                 (2, self.low_rank), (1, self.masked)]
        return self.draw.choices([make for _, make in table], [weight for weight, _ in table])[0]()

    def layer(self):
        """Sublayers one after the other, most of them with a residual around them."""
        body = []
        for number in range(self.draw.randint(1, 3)):
            name = self.sublayer()
            call = f"{name}(x) as s{number}"
            if self.draw.random() < 0.5:
                call = f"{name}({self.norm()}(x) as n{number}) as s{number}"
            body.append(self.draw.choice(["x = x + {}", "x = x + {}", "x = {}", "x = x + 0.5 * tanh({})"]).format(call))
        if self.draw.random() < 0.3:
            body.append("x = dropout(x, 0.1)")
        return self.block(body, "x")

    # --- The file ---------------------------------------------------------------------------------------------

    def statements(self):
        lines = ["x = table[vocab = tokens] * 2"]
        if self.draw.random() < 0.5:
            lines = [f"param places : [seq, embed] = {self.init()}", lines[0] + " + places"]
        for number in range(self.draw.randint(1, 2)):
            layer = self.layer()
            again = self.draw.choice([1, 2, 3])
            line = f"x = {layer}(x) as l{number}"
            lines.append(line if again == 1 else f"repeat {again} {{ {line} }}")
        return lines

    def loss(self):
        head, lines = "table", []
        if self.draw.random() < 0.5:
            head, lines = "head_out", [f"param head_out : [vocab, embed] = {self.init()}"]
        ignored = ", ignore = 1" if self.draw.random() < 0.3 else ""
        lines.append(f"logits = dot(x, {head}, embed)")
        loss = f"mean(cross_entropy(logits, labels, vocab{ignored}))"
        if self.draw.random() < 0.2:
            loss += " + 0.01 * mean(square(x))"
        return lines + [f"loss {loss}"]

    def train(self):
        accumulation, self.batch = self.draw.choice([1, 1, 2, 3]), self.draw.choice([1, 2])
        optimizer = self.draw.choice(["adamw(lr = 1e-2, weight_decay = 0.1)"] * 2 + ["sgd(lr = 0.1, momentum = 0.9)"])
        return f"""train {{
    optimizer  = {optimizer}
    clip       = {self.draw.choice([0, 0.01, 1])}
    batch      = {self.batch * accumulation * self.data_ranks}
    microbatch = {self.batch}
    precision  = {self.draw.choice(["fp32", "fp32", "bf16", "fp16", "fp8"])}
    grad_storage = {self.draw.choice(["f32", "f32", "bf16"])}
    loss_chunks = {self.draw.choice(["none", "auto"])}
}}
"""

    def parallel(self, used):
        """Rules for one to three axes; dims of the file, any of them."""
        rules, self.data_ranks, axes = [], 1, self.axes
        for axis in axes:
            dims = {"dp": ["batch"], "cp": ["seq"]}.get(axis) or self.draw.sample(used, self.draw.randint(1, len(used)))
            otherwise = self.draw.choice(["", ""] + [f" else {dim}" for dim in ("seq", "embed") if dim not in dims])
            if axis == "dp":
                self.data_ranks, otherwise = axes[axis], ""
            rules.append(f"shard {', '.join(dims)} over {axis}{otherwise}")
        options = self.draw.choice(["", " (bucket = 64)", " (grad_dtype = f32)", " (overlap_grads = false)", " (overlap_params = false)",
                                    " (gather = step)", " (gather = micro, overlap_grads = false, overlap_params = false)"])
        if "dp" in axes or "cp" in axes:
            over = self.draw.choice([axis for axis in ("dp", "cp", "dp, cp") if set(axis.split(", ")) <= axes.keys()])
            rules.append(f"zero {self.draw.randint(0, 3)} over {over}{options}")
        rules.append(f"recompute {self.draw.choice(['none', 'full', 'selective'])}")
        rules += {2: ["offload optimizer to disk"], 4: ["offload optimizer to disk just_in_time"], 5: ["offload optimizer, params to disk"]}.get(self.number % 6, [])  # draws nothing
        mesh = ", ".join(f"{axis} = {size}" for axis, size in axes.items())
        return "parallel {\n    mesh " + mesh + "\n" + "".join(f"    {rule}\n" for rule in rules) + "}\n"

    def text(self):
        body = self.statements() + self.loss()
        model = ["input tokens : i32[batch, seq]", "input labels : i32[batch, seq] = next(tokens)",
                 "param table : [vocab, embed] = normal(0.5)", *body]
        blocks = "\n".join(self.blocks)
        used = [dim for dim in ("heads", "ff", "vocab", "group", "rank", "head", "embed") if self.is_used(dim, blocks)]
        parallel = self.parallel(used)
        dims = "".join(f"dim {name} = {self.size_of(name, size)}\n" for name, size in self.sizes.items())
        return (f"dim batch\n{dims}dim key = seq\ndim dist = 2 * seq - 1\n\n{blocks}\nmodel random {{\n"
                + "".join(f"    {line}\n" for line in model) + "}\n\n" + self.train() + "\n" + parallel)

    def size_of(self, name, size):
        """Some dims are a little smaller than what their axes divide, and padded to that."""
        if name in ("vocab", "ff"):
            return f"{size} padded 8"
        if name in ("embed", "heads", "rank") and size >= 4 and self.draw.random() < 0.3:
            return f"{size - 1} padded {size}"
        return size

    @staticmethod
    def is_used(dim, blocks):
        return dim in ("vocab", "embed") or f" {dim}," in blocks or f" {dim}]" in blocks


def model_text(number):
    return Model(number).text()
