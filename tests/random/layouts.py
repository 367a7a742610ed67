"""Draws layouts that ought to be honoured: each axis divides what it splits, or the dim is padded so that it does."""
import itertools
import math

import tables
from added import WIDEST
from blocks import expanded
from constants import flag_of, known_numbers, number_of
from printer import tables_of
from prune import bodies, expressions
from tree import (Assign, Call, Const, Index, Input, Mean, Mesh, Name, Number, Param, Pipeline, Range, Recompute, Repeat, Scan, Shard, Table,
                  Zero, statements_of, value_of, walk)

AXES = ["dp", "cp", "tp", "ep"]
SCHEDULES = ["naive", "gpipe", "1f1b", "zb"]
CHUNK_SCHEDULES = ["naive", "gpipe", *["interleaved"] * 5]
ALONG = {"top_k": (1, 2), "dispatch": (2,), "attend": (3, 4), "concat": (0,), "cumsum": (1,), "cummax": (1,), "argsort": (1,), "shift": (1,),
         "one_hot": (1,), "cross_entropy": (2,), "rope": (1, 2)}  # function: which of its arguments are such dims
STAGED = 0.25  # how often a layout is a pipeline where it may be one


def runs_of(body, runs=1):
    """(statement, in how many runs): those in a repeat with a number may be in one for each copy."""
    for statement in body:
        yield statement, runs
        if isinstance(statement, (Repeat, Scan)):
            yield from runs_of(statement.body, 2 if isinstance(statement, Repeat) and statement.number else runs)


def instances_of(program, declaration):
    """How often a block is called; the model is there once."""
    if declaration is program.model:
        return 1
    callers = [(d, runs) for d in bodies(program) for s, runs in runs_of(d.body) if value_of(s) is not None
               for e in walk(value_of(s)) if isinstance(e, Call) and e.function == declaration.name]
    return sum(instances_of(program, d) * runs for d, runs in callers)


def has_means(program, body):
    """Are there instances of means, also in blocks that are called?"""
    called = {e.function for s in statements_of(body) if value_of(s) is not None for e in walk(value_of(s))
              if isinstance(e, Call) and e.function in program.blocks}
    return any(isinstance(s, Mean) for s in statements_of(body)) or any(has_means(program, program.blocks[name].body) for name in called)


def repeats_of(program, body=None):
    """Those of at least two turns, with their turns: in the whole program, or the outermost of a body."""
    known = known_numbers(program)
    everywhere = [s for d in bodies(program) if instances_of(program, d) == 1 for s, runs in runs_of(d.body) if runs == 1]
    found = [s for s in (everywhere if body is None else body) if isinstance(s, Repeat) and not s.number  # else stages have runs
             and not has_means(program, s.body)]
    turns = [(repeat, number_of(repeat.count, known)) for repeat in found]
    return [(repeat, count) for repeat, count in turns if count and count > 1]


def stored(program, known, dim):
    """What memory takes of a dim."""
    if dim not in program.dims:
        return 1  # made by a call
    padded = program.dims[dim].padded
    unit = 1 if padded is None else padded.value
    return -(-known[dim] // unit) * unit


class Layout:
    """One layout of a program; it pads dims of the program where that is needed."""

    def __init__(self, draw, program, most_ranks=8, data=None, before=(), staged=STAGED):
        self.draw, self.program, self.known = draw, program, known_numbers(program)
        self.data = data  # how many ranks take part of the batch, where that is settled
        self.before = dict(before)  # how another layout of the same program splits dims
        self.split = {}   # dim: over how many ranks
        self.stages = self.pipeline(most_ranks) if draw.random() < staged else []
        self.axes = self.draw_axes(most_ranks // self.ranks_of_stages())
        self.lines = [self.rule(axis) for axis in self.axes]

    def draw_axes(self, most_ranks):
        axes = {}
        for axis in self.draw.sample(AXES, self.draw.choice([1, 1, 2, 2, 3])):
            size = self.draw.choice([2, 2, 2, 2, 2, 3, 4, 4, 1])
            if math.prod(axes.values()) * size <= most_ranks:
                axes[axis] = size
        return axes

    # --- Stages ------------------------------------------------------------------------------------------------------

    def ranks_of_stages(self):
        return self.stages[0].ranks if self.stages else 1

    def pipeline(self, most_ranks):
        """The line, if a repeat can be shared out, or several of the model together."""
        body = self.program.model.body if self.draw.random() < 0.9 else None  # mpc refuses most of the others
        found = repeats_of(self.program, body)
        lists = [[one] for one in found]
        if body is not None and len(found) > 1 and self.draw.random() < 0.6:
            lists = [self.some_of(found)]
        choices = [(chosen, ranks) for chosen in lists for ranks in (2, 3, 4)
                   if ranks <= sum(count for _, count in chosen) and ranks <= most_ranks]
        if not choices:
            return []
        chosen, ranks = self.draw.choice(choices)
        names = [self.name_of(repeat, count) for repeat, count in chosen]
        if len(set(names)) < len(names):  # then only one of them can be meant
            chosen, names = chosen[-1:], names[-1:]
            ranks = min(ranks, chosen[0][1])
        count, is_outermost = sum(count for _, count in chosen), chosen[0][0] in self.program.model.body
        chunks = [n for n in (2, 3, 4) if n * ranks <= count] if is_outermost else []
        chunks = self.draw.choice(chunks or [1]) if self.draw.random() < 0.85 else 1
        several = chunks > 1 and len(chosen) > 1
        ends = [0, *sorted(self.draw.sample(range(1, count), ranks * chunks - 1)), count]
        if several and set(ends[ranks:-1:ranks]) & set(itertools.accumulate(count for _, count in chosen[:-1])):
            chunks, several, ends = 1, False, [*ends[:ranks], count]  # mpc refuses chunks that begin with a repeat
        line = Pipeline(names, "pp", self.schedule(chunks))
        if several or self.draw.random() < 0.4:
            line.options["stages"] = [Number(str(end - begin)) for begin, end in zip(ends, ends[1:])]
        line.ranks, line.multiple = ranks, ranks if line.options.get("schedule") == Name("interleaved") else 1
        return [line]

    def some_of(self, repeats):
        """Two at least, in their order."""
        chosen = self.draw.sample(range(len(repeats)), self.draw.randint(2, len(repeats)))
        return [repeats[i] for i in sorted(chosen)]

    def name_of(self, repeat, count):
        """An instance in it, or its number of copies, which becomes a const for that."""
        calls = [e.instance for s in repeat.body if isinstance(s, Assign) for e in walk(s.value)
                 if isinstance(e, Call) and e.instance and not e.is_use and repeat in self.program.model.body]  # an outer one has that name, too
        if isinstance(repeat.count, Number) and not calls:
            name = next(name for name in (f"copies{n}" for n in itertools.count(1)) if name not in self.known)
            self.program.declarations.insert(0, Const(name, Number(str(count))))
            repeat.count, self.known[name] = Name(name), count
        return calls[0] if calls else repeat.count.name

    def schedule(self, chunks):
        """By name, by default, or a table, if there are several micro-batches: it is drawn when it is known how many."""
        named = CHUNK_SCHEDULES + ["zb"] * (chunks == 2) if chunks > 1 else SCHEDULES + [None]
        named = [name for name in named if name != "interleaved"] if self.program.whole else named + ["table"] * 3
        name = self.draw.choice(named)
        options = {"schedule": Table("own.csv", []) if name == "table" else Name(name)} if name else {}
        if chunks > 1 and (chunks, name) != (2, "interleaved"):  # which has two by default
            options["chunks"] = Number(str(chunks))
        return options

    # --- Which dims --------------------------------------------------------------------------------------------------

    def present(self):
        """Dims of tensors: those of parameters and inputs, and what concat, rename, iota, broadcast, split, merge and conv bring."""
        found = set()
        program = expanded(self.program)
        for declaration in program.declarations:
            for statement in statements_of(getattr(declaration, "body", [])):
                if isinstance(statement, (Param, Input)):
                    found |= set(statement.type.dims)
        for e in (e for expression in expressions(program) for e in walk(expression)):
            if isinstance(e, Call) and e.function in ("concat", "iota"):
                found.add(e.arguments[0].name)
            if isinstance(e, Call) and e.function in ("random", "broadcast"):
                found |= {d.name for d in e.arguments[e.function == "broadcast":]}
            if isinstance(e, Call) and e.renaming:
                found.add(e.renaming[1])
            if isinstance(e, Call):
                found |= {d for one, several in e.parts for d in (one, *several)}
        return sorted(found - {self.program.batch_dim, "other"})  # which others() makes is as large as the batch

    def attended_dims(self, causal_only=False):
        """Of sequences; along those of causal attention an axis deals blocks out forth and back."""
        calls = [e for expression in expressions(expanded(self.program)) for e in walk(expression) if isinstance(e, Call)]
        return sorted({e.arguments[3].name for e in calls if e.function == "attend" and
                       (flag_of(e.keywords.get("causal")) or not causal_only)} & set(self.present()))

    def notable(self):
        """Dims along which an operation does more than add up or broadcast: few tensors have them, so they are rarely drawn."""
        found = set()
        for e in (e for expression in expressions(expanded(self.program)) for e in walk(expression)):
            if isinstance(e, Index) and isinstance(e.at, Range):
                found |= {e.dim, e.at.part}
            if isinstance(e, Call) and e.function in ALONG:
                found |= {e.arguments[at].name for at in ALONG[e.function] if at < len(e.arguments)} | set(e.renaming or ())
            if isinstance(e, Call) and e.function in ("rename", "solve", "add_rows"):
                found |= set(e.renaming)
            if isinstance(e, Call):
                found |= {d for one, several in e.parts for d in (one, *several)}
        return sorted(found & set(self.present()))

    def experts(self):
        return {e.arguments[2].name for expression in expressions(expanded(self.program)) for e in walk(expression)
                if isinstance(e, Call) and e.function == "dispatch"}

    def twins(self, dim):
        """Dims that are declared alike: they are renamed into each other, and so have to be padded alike."""
        def base(name):
            size = self.program.dims[name].size
            return base(size.name) if isinstance(size, Name) and size.name in self.program.dims else name
        return [name for name, declared in self.program.dims.items() if declared.size is not None and base(name) == base(dim)]

    def scanned(self):
        """Dims of scans are whole, and have no padding."""
        everywhere = [s for d in expanded(self.program).declarations for s in statements_of(getattr(d, "body", []))]
        return {s.dim for s in everywhere if isinstance(s, Scan)}

    def divide(self, dim, ranks):
        """Splits the dim over so many more ranks; False if it does not divide."""
        if dim not in self.program.dims or self.scanned() & set(self.twins(dim)):
            return False
        together = self.split.get(dim, 1) * ranks
        if stored(self.program, self.known, dim) % together:
            if self.draw.random() < 0.6:
                return False
            twins = self.twins(dim)
            units = [self.program.dims[name].padded.value for name in twins if self.program.dims[name].padded]
            unit = math.lcm(together, *units, *[splits.get(name, 1) for name in twins for splits in (self.split, self.before)])
            for name in twins:
                self.program.dims[name].padded = Number(str(unit))
            for line in self.program.parallel:  # of another layout: pieces are of dims without padding
                if getattr(line, "otherwise", None) in twins:
                    line.options.pop("overlap", None)
        self.split[dim] = together
        return True

    def rule(self, axis):
        """What is split over an axis: the batch, one to three dims, or a pair of them."""
        size, draw = self.axes[axis], self.draw
        has_wide = self.known.get("inner8") == WIDEST and "inner8" not in self.split and size > 1
        if has_wide and draw.random() < 0.8 and self.divide("inner8", size):
            others = draw.sample(["seq", "seq", "wide8", "wide8"], 4)
            return Shard(["inner8"], axis, next((d for d in others if self.divide(d, size)), None))
        is_fed = any(isinstance(s, Input) for s in self.program.model.body)
        wants_data = is_fed and self.data is None and draw.random() < (0.7 if axis == "dp" else 0.15)
        settled = is_fed and self.data is not None and size == self.data and "batch" not in self.split
        if wants_data or (settled and draw.random() < 0.7):
            self.split["batch"] = self.split.get("batch", 1) * size
            return Shard([self.program.batch_dim], axis)
        candidates = self.present()
        chosen = draw.sample(candidates, min(len(candidates), draw.choice([1, 2, 2, 3])))
        notable = self.notable()
        if notable and draw.random() < 0.4:
            some = draw.sample(notable, min(len(notable), draw.choice([1, 1, 2])))
            chosen = some + [d for d in chosen if d not in some]
        if draw.random() < 0.5:
            chosen += [d for d in self.attended_dims(causal_only=draw.random() < 0.7) if d not in chosen]
        dims = [d for d in chosen if self.divide(d, size)]
        if draw.random() < 0.15:
            pair = (is_fed and self.pair_with_batch(size)) or self.pair(size)
            dims = [pair] if pair else dims
        if not dims:
            return None
        return Shard(dims, axis, self.otherwise(dims, size) if draw.random() < (0.8 if self.experts() else 0.5) else None)

    def pair(self, size):
        """(g, h) with the axis larger than g, or not."""
        sizes = {d: stored(self.program, self.known, d) for d in self.present() if d not in self.split and d not in self.scanned()}
        pairs = [(g, h) for g in sizes for h in sizes if g != h and
                 (sizes[g] % size == 0 or (size % sizes[g] == 0 and sizes[h] % (size // sizes[g]) == 0))]
        if not pairs:
            return None
        chosen = self.draw.choice(pairs)
        self.split.update(dict.fromkeys(chosen, size))
        return chosen

    def pair_with_batch(self, size):
        """(g, batch), where the batch takes the rest, or nothing."""
        firsts = [d for d in self.present() if d not in self.split and d not in self.scanned() and "batch" not in self.split and
                  size % stored(self.program, self.known, d) == 0 and
                  self.data in (None, size // stored(self.program, self.known, d))]
        if not firsts or self.draw.random() < 0.6:
            return None
        first = self.draw.choice(firsts)
        self.split |= {first: size, "batch": size // stored(self.program, self.known, first)}
        return first, self.program.batch_dim

    def otherwise(self, dims, size):
        named = {name for d in dims for name in ([d] if isinstance(d, str) else d)}
        free = [d for d in self.present() if d not in named and
                stored(self.program, self.known, d) % (self.split.get(d, 1) * size) == 0]
        if not free:
            return None
        notable = [d for d in self.notable() if d in free]
        several = [d for d in notable or free if stored(self.program, self.known, d) % (2 * size) == 0]  # messages in pieces
        experts = [d for d in several if d in self.experts()]  # whose rows are moved by the ranks' numbers of them
        ways = [ways for ways in (free, free, notable, several, several, experts) if ways]
        chosen = self.draw.choice(self.draw.choice(ways))
        self.split[chosen] = self.split.get(chosen, 1) * size
        return chosen

    def cut(self, rules):
        """Messages along `else` in pieces, where its dim divides and nothing else splits it."""
        for line in rules:
            dim = getattr(line, "otherwise", None)
            others = [r for r in rules if r is not line and isinstance(r, Shard)]
            named = {d for r in (line, *others) for entry in r.dims for d in ([entry] if isinstance(entry, str) else entry)} if dim else set()
            if not dim or dim in named or dim == self.program.batch_dim or any(r.otherwise == dim for r in others):
                continue
            whole = self.program.dims[dim].padded is None and not any(isinstance(d, tuple) for d in line.dims)
            counts = [n for n in (2, 3, 4, 8) if stored(self.program, self.known, dim) % (n * self.axes[line.axis]) == 0]
            if whole and counts and self.draw.random() < 0.8:
                line.options["overlap"] = Number(str(self.draw.choice(counts)))

    # --- The lines ---------------------------------------------------------------------------------------------------

    def zero(self):
        """Over axes along which ranks see other data."""
        fed = {d for s in self.program.model.body if isinstance(s, Input) for d in s.type.dims}
        axes = [line.axis for line in self.lines if line and set(d for d in line.dims if isinstance(d, str)) & fed]
        if not axes:
            return []
        options = {}
        if self.draw.random() < 0.3:
            options["bucket"] = Number(self.draw.choice(["1", "64", "1_000"]))
        for name in ("overlap_grads", "overlap_params"):
            if self.draw.random() < 0.3:
                options[name] = self.draw.choice([None, Name("true"), Name("false")])
        if self.draw.random() < 0.2:
            options["gather"] = Name(self.draw.choice(["step", "micro"]))
        if self.draw.random() < 0.1:
            options["grad_dtype"] = Name("f32")
        return [Zero(self.draw.randrange(4), self.draw.sample(axes, self.draw.randint(1, len(axes))), options)]

    def parallel(self):
        """The lines of parallel { }; none if nothing could be split."""
        rules = [line for line in self.lines if line]
        used = [(line.axis, Number(str(self.axes[line.axis]))) for line in rules]
        for line in self.stages:
            used.insert(self.draw.randint(0, len(used)), (line.axis, Number(str(line.ranks))))
        rules += self.stages
        if not rules:
            return []
        used = dict(used)
        self.cut(rules)
        lines = [Mesh(used), *rules] + (self.zero() if self.draw.random() < 0.7 else [])
        if self.draw.random() < 0.4:
            lines.append(Recompute(Name(self.draw.choice(["none", "selective", "full"]))))
        return lines


def choose_attends(draw, program, lines):
    """How attention deals with split sequences: where each way can be honoured, which later lines and padding may change."""
    known = known_numbers(program)
    rules = [line for line in lines if isinstance(line, Shard)]
    ranks = {axis: number_of(size, known) for line in lines if isinstance(line, Mesh) for axis, size in line.axes.items()}
    calls = [e for expression in expressions(expanded(program)) for e in walk(expression)
             if isinstance(e, Call) and e.function == "attend"]

    def can_exchange(e, rule):
        free = (e.shared or frozenset()) - {e.arguments[3].name, e.arguments[4].name, program.batch_dim, *rule.dims}
        paired = {d for other in rules for pair in other.dims if isinstance(pair, tuple) for d in pair}
        over = {d: math.prod(ranks[other.axis] for other in rules if d in other.dims) * ranks[rule.axis] for d in free - paired}
        return any(stored(program, known, d) % together == 0 for d, together in over.items())

    routed = {d.name for expression in expressions(expanded(program)) for e in walk(expression)
              if isinstance(e, Call) and e.function in ("dispatch", "combine", "balance") for d in e.arguments if isinstance(d, Name)}

    def taken(before):
        """Dims that have an axis further out."""
        return {d for other in before for dims in other.dims for d in ([dims] if isinstance(dims, str) else dims)}

    def can_deal(rule, before, met, blocks):
        """Is the axis the outermost one of all dims of its rule, which are not exchanged for heads and have no rows by
        expert?"""
        return (met and all(isinstance(d, str) for d in rule.dims) and not {*rule.dims} & (taken(before) | routed) and
                rule.options.get("attend") != Name("all_to_all") and
                all(stored(program, known, d) % (blocks * ranks[rule.axis]) == 0 for d in rule.dims))

    for i, rule in enumerate(rules):
        rule.options = {name: value for name, value in rule.options.items() if name not in ("attend", "blocks")}  # chosen anew
        met = [e for e in calls if e.arguments[3].name in rule.dims and e.arguments[3].name != program.batch_dim]
        words = ["gather"] if met else []
        own = [e for e in met if not e.renaming]  # whose keys are along the same dim: others are gathered
        plain = not any({"bias", "mask", "sinks"} & set(e.keywords) for e in met)
        if own and plain and not any(stored(program, known, e.arguments[3].name) != known[e.arguments[3].name] or
                           e.arguments[3].name in taken(rules[:i]) for e in own):
            words += ["ring"] * 3
        if own and all(can_exchange(e, rule) for e in met):
            words += ["all_to_all"] * 3
        if words and draw.random() < 0.9:
            rule.options["attend"] = Name(draw.choice(words))
        counts = [n for n in (1, 2, 4, 6, 8) if can_deal(rule, rules[:i], met, n)]
        if counts and draw.random() < 0.6:
            rule.options["blocks"] = Number(str(draw.choice(counts)))


def add_layout(draw, program, most_ranks=8, staged=STAGED):
    """Gives the program a layout, and a batch that its ranks can share; for stages, of a few micro-batches."""
    layout = Layout(draw, program, most_ranks, staged=staged)
    program.parallel = layout.parallel()
    ranks = layout.split.get("batch", 1)
    microbatch = program.train.get("microbatch", program.train["batch"]).value
    accumulation = 1 if program.whole else min(2, program.train["batch"].value // microbatch)
    if layout.stages and not program.whole:
        multiple = layout.stages[0].multiple
        accumulation = multiple * draw.choice([1, 2, 3, 4, 5] if multiple == 1 else [1, 2])
        if tables_of(layout.stages):
            accumulation = draw.choice([2, 3, 4, 5, 6])
    if ranks > 1 or layout.stages:
        program.train["microbatch"] = Number(str(min(microbatch, 2)))
        program.train["batch"] = Number(str(min(microbatch, 2) * ranks * accumulation))
    tables.fill(draw, program, program.parallel)
    choose_attends(draw, program, program.parallel)
    return layout


def add_two_layouts(draw, program):
    """One to begin with, and the lines of another to go on with."""
    layout = add_layout(draw, program, 4)
    first = layout.split.get("batch", 1)
    second = Layout(draw, program, 4, first if program.whole else None, layout.split)
    ranks = second.split.get("batch", 1)
    then = second.parallel() if ranks == first or not program.whole else []
    if not program.whole:
        microbatch = program.train.get("microbatch", program.train["batch"]).value
        program.train["batch"] = Number(str(microbatch * math.lcm(first, ranks)))
    for table in tables_of(then):
        table.name = "then.csv"
    for lines in (program.parallel, then):
        tables.fill(draw, program, lines)
        choose_attends(draw, program, lines)
    return then
