"""What `mpc compile --verify-passes` runs is a small instance of the file: it has to be one that can be run."""
import layouts

HEAD = "model m {\n    input data : i32[batch, seq]\n"


def verify(tmp_path, text, *said):
    source = tmp_path / "small.mdl"
    source.write_text(text)
    return layouts.run([layouts.MPC, "compile", source, "-o", tmp_path / "out", "--no-cc", "--verify-passes", *said])


def test_dims_of_one_number_stay_related(tmp_path):
    """An image beside its label: record is one more than pixel, whatever side is."""
    done = verify(tmp_path, """
const side = 28
const area = side * side
dim batch
dim seq = 1 + area
dim pixel = side * side
dim class = 10
""" + HEAD + """    param w : [pixel, class] = normal(0.02)
    x = cast(data[seq = iota(pixel) + 1], f32) / 255.0
    loss mean(cross_entropy(dot(x, w, pixel), data[seq = 0], class))
}
train { batch = 2 }
""")
    assert done.returncode == 0, done.stderr
    assert "trying larger" not in done.stderr


def test_indices_as_numbers(tmp_path):
    """The last but seven: dims that are much smaller have none, which only a run can tell where it depends on the data."""
    for size, index, whole in ((48, "data][seq = minimum(iota(seq) + 1, LAST)", "seq"), (48, "minimum(data * 40, LAST)", "vocab"),
                               (6000, "minimum(data * 6000, LAST)", "vocab")):
        done = verify(tmp_path, f"dim batch\ndim seq = {size}\ndim vocab = {size}\n" + HEAD + f"""    param w : [vocab] = normal(1)
    loss mean(w[vocab = {index.replace("LAST", str(size - 8))}])
}}
train {{ batch = 2 }}
""")
        assert done.returncode == 0 and f"dim '{whole}' keeps its size" in done.stderr, done.stderr


def test_index_outside_at_every_size(tmp_path):
    done = verify(tmp_path, "dim batch\ndim seq = 6000\ndim vocab = 6000\n" + HEAD + """    param w : [vocab] = normal(1)
    loss mean(w[vocab = minimum(data * 6000, 6000) + 6000])
}
train { batch = 2 }
""")
    assert done.returncode == 1 and "to about 512" in done.stderr and "with smaller ones" in done.stderr, done.stderr


def test_numbers_beside_sizes(tmp_path):
    """A token of a large vocabulary, heads that divide the embedding, elements of a small dim: others still shrink."""
    done = verify(tmp_path, """
dim batch
dim seq   = 512
dim vocab = 50265
dim embed = 768
dim heads = 12
dim head  = embed / heads
dim six   = 6
""" + HEAD + """    param w : [vocab, heads, head] = normal(1)
    param mods : [six, heads] = normal(1)
    loss mean(w[vocab = where(data == 3, 50264, data)] * mods[six = 5])
}
train { batch = 2 }
""")
    assert done.returncode == 0 and "dim 'vocab' keeps its size" in done.stderr, done.stderr


def test_small_files_stay_as_they_are(tmp_path):
    """Index 4 is the last of 5: none of these dims is cut down."""
    done = verify(tmp_path, "dim batch\ndim seq = 5\ndim vocab = 3\n" + HEAD + """    param w : [vocab] = normal(1)
    loss mean(w[vocab = data][seq = minimum(iota(seq) + 1, 4)])
}
train { batch = 2 }
""")
    assert done.returncode == 0 and "trying larger" not in done.stderr, done.stderr


def test_sizes_that_cannot_shrink(tmp_path):
    done = verify(tmp_path, "const side = 20000\ndim batch\ndim seq = side\ndim one = side - 19999\n" + HEAD + """    param w : [seq, one] = normal(1)
    loss mean(dot(cast(data, f32), w, seq))
}
train { batch = 2 }
""")
    assert done.returncode == 0 and "fit no dims below about" in done.stderr, done.stderr
