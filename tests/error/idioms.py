"""The help of messages about names of other frameworks: every name of frontend/syntax/idioms.def gets that of its row, and what
the rows tell one to write is accepted."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r'IDIOM\((\w+), "([^"]*)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)')
MODEL = """dim batch
dim seq = 4
dim vocab = 8
dim d = 4
dim e = 6
dim y = 2
dim k = 2
dim n = 2
dim one = 1
dim both = 2
dim low_y = 2
const last = d - 1
const low = 0
const high = 1
const eps = 1e-5
model forms {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param table : [vocab, d] = normal(0.02)
    param w     : [d, e]     = normal(0.02)
    param other : [vocab, d] = normal(0.02)
    x = table[vocab = tokens]
    p = log_softmax(x, d)
    a = other[vocab = tokens]
    b = x + 1.5
    q = log_softmax(b, d)
    z = a + p + q
    i = tokens
    m = tokens > 2
    %s
    loss mean(cross_entropy(dot(x, table, d), labels, vocab)) + 0 * (sum(dot(z, w, d)) + sum(cast(m, f32)) + sum(cast(i, f32))) + 0 * mean(cast(result, f32))
}
"""
# Of the help of each row, where it is an expression or the core of one.
FORMS = """dot(a, b, d)|dot(x, w, d)|dot(a, b)|1 / x|split(x, d -> (y, k))|max(split(x, d -> (y, k)), k)|mean(split(x, d -> (y, k)), k)
concat(both, split(a, d -> (one, d)), split(b, d -> (one, d)))|split(x, d -> (one, d))[one = 0]
x[d = 3]|x[d = 1 : 3 -> y]|table[vocab = tokens]|x[d = last - iota(d)]|shift(x, d, 1)|iota(d)|one_hot(iota(d), e)|random(d)
sqrt(-2 * log(1 - random(d))) * cos(6.283185307179586 * random(d))|where(iota(e) <= iota(d), w, 0)|minimum(maximum(x, low), high)
exp(x * log(2))|log(1 + square(x))|log(square(x)) / log(2)|maximum(a, b) + softplus(-abs(a - b))|-softplus(-x)|x * sigmoid(1.702 * x)
maximum(x, 0.01 * x)|minimum(relu(x), 6)|square(relu(x))|where(x > 0, x, expm1(minimum(x, 0)))|1.0507 * where(x > 0, x, 1.67326 * expm1(minimum(x, 0)))|2 * tanh(x / 2)|relu(a) * b|x * tanh(softplus(x))
x * minimum(relu(x + 3), 6) / 6|minimum(relu(x + 3), 6) / 6|a * sigmoid(b)|silu(a) * b|0.5 * (exp(x) - exp(-x))|sin(x) / cos(x)
where(x == x, x, 0)|cast(cast(x, i32), f32)|cast(cast(x + 0.5 * sign(x), i32), f32)|b - cast(b > x, f32)|i - i / n * n|where(m, a, b)|m * m|minimum(m, m)|maximum(m, m)|m == 0
mean(square(x - mean(x, d)), d)|sqrt(mean(square(x - mean(x, d)), d))|sqrt(sum(square(x), d))|exp(sum(log(square(x)), d))
top_k(x, d, 1 -> first)|top_k(x, d, n -> order)|attend(x, a, b, seq, d, causal = true)|rope(x, seq, d, base = 10000)
x * rsqrt(sum(square(x), d) + eps)|merge(broadcast(split(x, d -> (y, k)), one), (one, y) -> low_y)|mean(square(a - b))|mean(abs(a - b))
softplus(x) - x * a|sum(exp(p) * (p - q), d)|x ^ 2|stop_gradient(x)|dot(one_hot(tokens, vocab), x, seq)""".replace("\n", "|").split("|")

INITIAL = """normal(sqrt(2.0 / (d + e)))|uniform(-sqrt(6.0 / (d + e)), sqrt(6.0 / (d + e)))|normal(sqrt(2.0 / d))
uniform(-sqrt(6.0 / d), sqrt(6.0 / d))|normal(sqrt(1.0 / d))|uniform(0, 1)""".replace("\n", "|").split("|")
CHOSEN = """optimizer = adamw(lr = 1e-3, weight_decay = 0)|optimizer = adamw(lr = 1e-3, beta1 = 0, beta2 = 0.99, weight_decay = 0)
schedule = cosine(warmup = 100, steps = 10_000)|schedule = linear(warmup = 100, steps = 10_000)|schedule = constant(warmup = 100)
schedule = wsd(warmup = 100, steps = 10_000, decay = 1000)""".replace("\n", "|").split("|")


def said(text):
    with tempfile.NamedTemporaryFile("w", suffix=".mdl") as file:
        file.write(text)
        file.flush()
        run = subprocess.run(["mpc", "check", file.name], capture_output=True, text=True, timeout=60)
    return run.returncode, run.stderr


LINES = {"FUNCTION": "result = %s(x)", "REDUCTION": "result = %s(x, a)", "NAME": "result = x + %s", "SIGN": "result = a %s b",
         "STATEMENT": "%s x", "STATED": "%s = x"}


def of_kind(kind, name):
    if kind == "SETTING":
        return MODEL.replace("%s", "result = a") + "train { %s = 1 }\n" % name
    if kind in ("OPTIMIZER", "SCHEDULE"):
        return MODEL.replace("%s", "result = a") + f"train {{ {kind.lower()} = {name}(lr = 1) }}\n"
    if kind == "INITIAL":
        return MODEL.replace("%s", "result = a").replace("normal(0.02)", f"{name}()", 1)
    return MODEL.replace("%s", LINES[kind] % name)


def main():
    failed, names = 0, 0
    for kind, words, text in ROW.findall((ROOT / "frontend/syntax/idioms.def").read_text()):
        help_ = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace('\\"', '"')
        words = re.sub(r"\\u([0-9a-f]{4})", lambda number: chr(int(number[1], 16)), words).split(" ")
        for word in [*words[:2], words[-1]]:
            names += 1
            spelled = word.capitalize() if len(word) % 2 else "_" + word
            spelled = spelled if kind in ("FUNCTION", "SETTING") else word.capitalize() if kind == "NAME" else word
            status, err = said(of_kind(kind, spelled))
            if status != 1 or f"= help: {help_}" not in err:
                failed += 1
                print(f"{word}: no '{help_}' in:\n{err}")
    texts = [(form, MODEL % f"result = {form}") for form in FORMS]
    texts += [(form, (MODEL % "result = a").replace("normal(0.02)", form, 2)) for form in INITIAL]
    texts += [(form, MODEL % "result = a" + f"train {{ {form} }}\n") for form in CHOSEN]
    for form, text in texts:
        status, err = said(text)
        if status:
            failed += 1
            print(f"{form}: is not accepted:\n{err}")
    print(f"{names} names and {len(texts)} forms of idioms.def, {failed} failed")
    return failed > 0 or names < 150


sys.exit(main())
