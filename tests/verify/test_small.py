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
    """The last but seven: in dims that are much smaller there is none, which only a run can tell where it depends on the data."""
    for size, index, said in ((48, "data][seq = minimum(iota(seq) + 1, LAST)", ""), (48, "minimum(data * 40, LAST)", "to about 8"),
                              (600, "minimum(data * 600, LAST)", "to about 128"), (6000, "minimum(data * 6000, LAST)", None)):
        done = verify(tmp_path, f"dim batch\ndim seq = {size}\ndim vocab = {size}\n" + HEAD + f"""    param w : [vocab] = normal(1)
    loss mean(w[vocab = {index.replace("LAST", str(size - 8))}])
}}
train {{ batch = 2 }}
""")
        if said is None:
            assert done.returncode == 1 and "to about 512" in done.stderr and "with smaller ones" in done.stderr, done.stderr
        else:
            assert done.returncode == 0 and said in done.stderr, done.stderr


def test_small_files_stay_as_they_are(tmp_path):
    """Index 4 is the last of 5: none of these dims is cut down."""
    done = verify(tmp_path, "dim batch\ndim seq = 5\ndim vocab = 3\n" + HEAD + """    param w : [vocab] = normal(1)
    loss mean(w[vocab = data][seq = minimum(iota(seq) + 1, 4)])
}
train { batch = 2 }
""")
    assert done.returncode == 0 and "trying larger" not in done.stderr, done.stderr
