"""Reads .mdl text: written from the language's manual alone, for programs that are right.  What it cannot read is a
ValueError with the line."""
import re

from constants import flag_of
from instances import resolve
from tree import (Argument, Assign, Binary, Block, Call, Const, Dim, Flag, Index, Input, Loss, Mean, Mesh, Model, Name, Negation, Output,
                  Number, Optimizer, Param, Pipeline, Program, Range, Recompute, Repeat, Return, Scan, Several, Shard, Slot,
                  Table, Text, TypeOf, Update, Updated, Yield, Zero)

TOKEN = re.compile(r"""[ \t\r]+|\#[^\n]*|(?P<token>\n|\.\.\.|->|<=|>=|==|!=|"[^"\n]*"|
    1f1b|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?|[A-Za-z_]\w*'*|[-+*/%^()\[\]{}<>=:,])""", re.X)
LEVELS = [("<", "<=", ">", ">=", "==", "!="), ("+", "-"), ("*", "/", "%")]


def tokens_of(text):
    """(token, line) of each, with an empty token at the end."""
    tokens, at, line = [], 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"line {line}: cannot read {text[at:at + 20]!r}")
        if match["token"]:
            tokens.append((match["token"], line))
        line += match[0].count("\n")
        at = match.end()
    return tokens + [("", line)]


class Parser:
    def __init__(self, text):
        self.tokens, self.at, self.open = tokens_of(text), 0, 0
        self.files = files_of(text)

    # --- Tokens ------------------------------------------------------------------------------------------------------

    def skip_lines(self):
        while self.tokens[self.at][0] == "\n":
            self.at += 1

    def peek(self):
        if self.open:
            self.skip_lines()
        return self.tokens[self.at][0]

    def next(self):
        token = self.peek()
        self.at += 1
        return token

    def fail(self, wanted):
        token, line = self.tokens[self.at]
        raise ValueError(f"line {line}: expected {wanted}, not {token!r}")

    def take(self, token):
        if self.peek() != token:
            self.fail(repr(token))
        return self.next()

    def accept(self, token):
        return self.peek() == token and bool(self.next())

    def name(self):
        if not re.match(r"[A-Za-z_]", self.peek()):
            self.fail("a name")
        return self.next()

    def bracketed(self, left, right, read):
        """read() within brackets, where lines may break."""
        self.take(left)
        self.open += 1
        result = read()
        self.peek()
        self.open -= 1
        self.take(right)
        return result

    def listed(self, end, read):
        items = []
        while self.peek() != end:
            items.append(read())
            if not self.accept(","):
                break
        return items

    # --- Expressions -------------------------------------------------------------------------------------------------

    def expression(self, level=0):
        if level == len(LEVELS):
            return self.unary()
        left = self.expression(level + 1)
        while self.peek() in LEVELS[level]:
            left = Binary(self.next(), left, self.expression(level + 1))
        return left

    def unary(self):
        return Negation(self.unary()) if self.accept("-") else self.power()

    def power(self):
        base = self.postfix()
        return Binary("^", base, self.unary()) if self.accept("^") else base

    def postfix(self):
        operand = self.primary()
        if isinstance(operand, Name) and self.gives_dims():
            operand = self.call_over_dims(operand.name)
        while self.peek() == "[":
            dim, at = self.bracketed("[", "]", self.place)
            operand = Index(operand, dim, at)
        return operand

    def call_over_dims(self, function):
        dims = self.bracketed("[", "]", lambda: self.listed("]", self.name))
        call = self.call(function)
        call.dims = dims
        return call

    def gives_dims(self):
        """f[seq, embed](x), and not x[seq = i]"""
        return self.peek() == "[" and self.tokens[self.at + 2][0] in (",", "]")

    def place(self):
        dim, at = self.named_expression()
        if not self.accept(":"):
            return dim, at
        end = self.expression()
        self.take("->")
        return dim, Range(at, end, self.name())

    def names_in_brackets(self):
        return self.bracketed("(", ")", lambda: self.listed(")", self.name))

    def named_expression(self):
        name = self.name()
        self.take("=")
        return name, self.expression()

    def primary(self):
        token = self.peek()
        if token == "(":
            return self.bracketed("(", ")", self.expression)
        if token == "1f1b":
            return Name(self.next())
        if token.startswith('"'):
            return self.quoted(self.next().strip('"'))
        if token[:1].isdigit():
            return Number(self.next())
        name = self.name()
        if name in ("true", "false"):
            return Flag(name == "true")
        if name == "frozen":
            name = self.name()
            call = self.call_over_dims(name) if self.gives_dims() else self.call(name)
            call.frozen = True
            return call
        return self.call(name) if self.peek() == "(" else Name(name)

    def quoted(self, text):
        """A table, if the file has one of that name in its first lines."""
        return Table(text, [line.split(",") for line in self.files[text].splitlines()]) if text in self.files else Text(text)

    def call(self, function):
        call = Call(function, [])
        self.bracketed("(", ")", lambda: self.listed(")", lambda: self.argument(call)))
        if self.accept("as"):
            call.instance = self.name()
        return call

    def argument(self, call):
        start = self.at
        if self.peek() == "(" and self.tokens[self.at + 2][0] == ",":
            several = self.names_in_brackets()
            self.take("->")
            call.parts.append((self.name(), several))
            return
        if re.match(r"[A-Za-z_]", self.peek()):
            name = self.name()
            if self.accept("="):
                call.keywords[name] = self.expression()
                return
            if self.accept("->"):
                if self.peek() == "(":
                    call.parts.append((name, self.names_in_brackets()))
                    return
                call.renaming = (name, self.name())
                call.arguments += [Name(name)] if call.function == "attend" else []  # as without an arrow
                return
            self.at = start
        value = self.expression()
        if self.accept("->"):
            call.renaming = (value.text, self.name())
            return
        call.arguments.append(value)

    # --- Statements --------------------------------------------------------------------------------------------------

    def type(self):
        dtype = self.name() if self.peek() != "[" else None
        dims = self.bracketed("[", "]", lambda: self.listed("]", self.next))
        return TypeOf([d for d in dims if d != "..."], dtype, "..." in dims)

    def lines(self, read):
        """The lines between braces."""
        self.take("{")
        outer, self.open, body = self.open, 0, []
        while True:
            self.skip_lines()
            if self.accept("}"):
                self.open = outer
                return body
            body.append(read())

    def body(self):
        return self.lines(self.statement)

    def statement(self):
        word = self.name()
        reader = getattr(self, f"read_{word}", None)
        return reader() if reader else self.assignment(word)

    def assignment(self, name):
        if self.accept(","):
            more = self.listed("=", self.name)
            self.take("=")
            return Assign(name, self.expression(), None, more)
        stated = self.type() if self.accept(":") else None
        self.take("=")
        return Assign(name, self.expression(), stated)

    def read_const(self):
        return Const(*self.named_expression())

    def read_dim(self):
        dim = Dim(self.name())
        if self.accept("="):
            dim.size = self.expression()
        if self.accept("padded"):
            dim.padded = self.expression()
        return dim

    def read_block(self):
        name = self.name()
        dims = self.bracketed("[", "]", lambda: self.listed("]", self.name)) if self.peek() == "[" else []
        return Block(name, self.bracketed("(", ")", lambda: self.listed(")", self.typed_name)), self.body(), dims)

    def typed_name(self):
        name = self.name()
        self.take(":")
        return Argument(name, None if self.accept("const") else self.type())

    def read_model(self):
        return Model(self.name(), self.body())

    def read_param(self):
        names = self.listed(":", self.name)
        self.take(":")
        stated = self.type()
        self.take("=")
        return Param(names, stated, self.expression(), self.accept("no_decay"), self.accept("frozen"))

    def read_state(self):
        names = self.listed(":", self.name)
        if self.accept("="):
            self.take("mean")
            self.take("of")
            return Mean(names[0], self.name(), self.bracketed("(", ")", self.expression))
        self.take(":")
        stated = self.type()
        self.take("=")
        return Param(names, stated, self.expression(), state=True)

    def read_update(self):
        return Update(*self.named_expression())

    def read_input(self):
        name = self.name()
        self.take(":")
        stated = self.type()
        return Input(name, stated, self.expression() if self.accept("=") else None)

    def read_repeat(self):
        count, number = self.expression(), self.name() if self.accept("as") else None
        return Repeat(count, self.body(), number)

    def read_scan(self):
        dim, options = self.name(), self.bracketed_options()
        return Scan(dim, self.body(), bool(options) and flag_of(options["reverse"]))

    def read_yield(self):
        return Yield(*self.named_expression())

    def read_return(self):
        values = [self.expression()]
        while self.accept(","):
            values.append(self.expression())
        return Return(values[0] if len(values) == 1 else Several(values))

    def read_output(self):
        name = self.name()
        stated = self.type() if self.accept(":") else None
        return Output(name, stated, self.expression() if self.accept("=") else Name(name))

    def read_loss(self):
        return Loss(self.expression())

    # --- Training ------------------------------------------------------------------------------------------------------

    def read_optimizer(self):
        name, call = self.name(), Call("", [])
        self.bracketed("(", ")", lambda: self.listed(")", lambda: self.argument(call)))
        return Optimizer(name, call.keywords, self.lines(self.optimizer_line))

    def optimizer_line(self):
        word = self.name()
        if word == "state":
            names = [self.name()]
            while self.accept(","):
                names.append(self.name())
            state = Slot(names, self.type() if self.accept(":") else None)
            self.take("=")
            self.take("zeros")
            return state
        if word == "repeat":
            return Repeat(self.expression(), self.lines(self.optimizer_line))
        return Updated(self.expression()) if word == "update" else self.assignment(word)

    def train_line(self):
        if self.tokens[self.at][0] == "group":
            self.next()
            pattern = self.next()
            return f"group {pattern}", self.call("" if self.peek() == "(" else self.name())
        return self.named_expression()

    # --- The layout --------------------------------------------------------------------------------------------------

    def layout_line(self):
        return getattr(self, f"layout_{self.name()}")()

    def layout_mesh(self):
        axes = [self.named_expression()]
        while self.accept(","):
            axes.append(self.named_expression())
        return Mesh(dict(axes))

    def shard_dim(self):
        if self.peek() == "(":
            return tuple(self.bracketed("(", ")", lambda: self.listed(")", self.name)))
        return self.name()

    def layout_shard(self):
        dims = self.listed("over", self.shard_dim)
        self.take("over")
        shard = Shard(dims, self.name())
        if self.accept("else"):
            shard.otherwise = self.name()
        shard.options = self.bracketed_options()
        return shard

    def bracketed_options(self):
        return dict(self.bracketed("(", ")", lambda: self.listed(")", self.option))) if self.peek() == "(" else {}

    def option(self):
        name = self.name()
        if not self.accept("="):
            return name, None
        if self.peek() == "[":
            return name, self.bracketed("[", "]", lambda: self.listed("]", self.expression))
        return name, self.expression()

    def layout_zero(self):
        zero = Zero(int(self.next()), [])
        if self.accept("over"):
            zero.axes = [self.name()]
            while self.accept(","):
                zero.axes.append(self.name())
        zero.options = self.bracketed_options()
        return zero

    def layout_recompute(self):
        return Recompute(self.expression())

    def layout_pipeline(self):
        names = self.listed("over", self.name)
        self.take("over")
        pipeline = Pipeline(names, self.name())
        if self.accept(","):
            pipeline.options = dict(self.listed("\n", self.option))
        return pipeline

    def program(self):
        program = Program([], {}, [])
        while True:
            self.skip_lines()
            if not self.peek():
                return program
            if self.accept("train"):
                program.train.update(self.lines(self.train_line))
            elif self.accept("parallel"):
                program.parallel += self.lines(self.layout_line)
            else:
                program.declarations.append(self.statement())


def files_of(text):
    """{name: its text} of the tables that a program has in its first lines."""
    files = {}
    for name, line in re.findall(r"^# file (\S+): (.*)\n", text, re.M):
        files[name] = files.get(name, "") + line + "\n"
    return files


def parse(text):
    return resolve(Parser(text).program())
