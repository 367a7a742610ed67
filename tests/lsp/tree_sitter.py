"""A grammar of tree-sitter without tree-sitter: its rules become one for bison, which finds conflicts, and whose tables parse.

Like tree-sitter's, the scanner takes what the state of the parser allows: a keyword where one can stand, else an identifier."""
import itertools
import json
import re
import subprocess
import xml.etree.ElementTree as ET


def regex_of(rule):
    """Of what is inside a token."""
    kind = rule["type"]
    if kind == "STRING":
        return re.escape(rule["value"])
    if kind == "PATTERN":
        return f"(?:{rule['value']})"
    assert kind == "SEQ", kind
    return "".join(map(regex_of, rule["members"]))


class Grammar:
    def __init__(self, path, folder):
        self.source = json.loads(subprocess.run(["node", str(path.parents[2] / "tests/lsp/tree_sitter.js"), str(path)], capture_output=True,
                                                text=True, check=True).stdout)
        self.productions = []  # (name, symbols, precedence, associativity, [(field, alias) by symbol])
        self.terminals = {}  # its name in the grammar of bison: regular expression
        self.literals = {}  # text: its name
        for name, rule in self.source["rules"].items():
            if rule["type"] in ("PATTERN", "TOKEN"):
                self.terminals[name] = re.compile(regex_of(rule.get("content", rule)))
        for name, rule in self.source["rules"].items():
            if name not in self.terminals:
                self.add(name, rule)
        self.extras = re.compile("|".join(regex_of(rule) if rule["type"] == "PATTERN" else self.terminals[rule["name"]].pattern
                                          for rule in self.source["extras"]))
        self.said = self.run_bison(folder)

    # --- To bison ---------------------------------------------------------------------------------------------------

    def add(self, name, rule, precedence=0, side=""):
        for symbols, level, bound in self.expand(name, rule, precedence, side):
            self.productions.append((name, symbols, level, bound))

    def expand(self, name, rule, level=0, side=""):
        """([symbol, field, alias] ..., precedence, associativity) of each production."""
        kind = rule["type"]
        if kind == "CHOICE":
            return [one for member in rule["members"] for one in self.expand(name, member, level, side)]
        if kind == "SEQ":
            parts = [self.expand(name, member) for member in rule["members"]]
            found = []
            for chosen in itertools.product(*parts):
                inner = next(((one, bound) for _, one, bound in chosen if one or bound), (level, side))
                found.append(([symbol for symbols, _, _ in chosen for symbol in symbols], *((level, side) if level or side else inner)))
            return found
        if kind == "OPTIONAL":
            return [([], level, side), *self.expand(name, rule["content"], level, side)]
        if kind in ("REPEAT", "REPEAT1"):
            helper = f"{name}_repeat{len([one for one in self.productions if '_repeat' in one[0]])}"
            for symbols, _, _ in self.expand(name, rule["content"]):
                self.productions += [(helper, symbols, 0, ""), (helper, [[helper, None, None], *symbols], 0, "")]
            some = [([[helper, None, None]], level, side)]
            return some if kind == "REPEAT1" else [([], level, side), *some]
        if kind.startswith("PREC"):
            return self.expand(name, rule["content"], rule["value"], kind[5:].lower())
        if kind in ("FIELD", "ALIAS"):
            key = 1 if kind == "FIELD" else 2
            found = self.expand(name, rule["content"], level, side)
            for symbols, _, _ in found:
                for symbol in symbols:
                    symbol[key] = rule["name" if kind == "FIELD" else "value"]
            return found
        if kind == "STRING":
            return [([[self.literals.setdefault(rule["value"], f"T{len(self.literals)}"), None, None]], level, side)]
        assert kind == "SYMBOL", kind
        return [([[rule["name"], None, None]], level, side)]

    def levels(self):
        """{level: (associativity, tokens)}: a token has that of the production in which it follows an expression."""
        found = {level: ["precedence", []] for _, _, level, _ in self.productions}
        for _, symbols, level, side in self.productions:
            if level and len(symbols) > 1 and symbols[1][0] in self.literals.values() and symbols[0][0] not in self.literals.values():
                found[level][0] = side or found[level][0]
                if symbols[1][0] not in found[level][1]:
                    found[level][1].append(symbols[1][0])
        return sorted(found.items())

    def run_bison(self, folder):
        names = {name for name, *_ in self.productions}
        tokens = [name for name in self.terminals if any(symbol[0] == name for _, symbols, *_ in self.productions for symbol in symbols)]
        lines = ["%define lr.type ielr", "%define lr.default-reduction accepting", "%token " + " ".join([*tokens, *self.literals.values()])]
        for level, (side, of_level) in self.levels():
            lines.append(f"%{side if of_level else 'precedence'} P{level + 9} {' '.join(of_level)}")
        lines += ["%start source_file", "%%"]
        for name in sorted(names):
            bodies = [" ".join(symbol[0] for symbol in symbols) + f" %prec P{level + 9}" for own, symbols, level, _ in self.productions if own == name]
            lines.append(f"{name}: " + "\n| ".join(bodies) + ";")
        (folder / "grammar.y").write_text("\n".join(lines) + "\n")
        done = subprocess.run(["bison", "-Wno-precedence", "--xml=grammar.xml", "-o", "grammar.c", "grammar.y"], cwd=folder, capture_output=True, text=True)
        self.read_tables(ET.parse(folder / "grammar.xml").getroot())
        return done.stderr

    # --- Parsing ----------------------------------------------------------------------------------------------------

    def read_tables(self, xml):
        self.rules = {int(rule.attrib["number"]): (rule.find("lhs").text, [symbol.text for symbol in rule.findall("rhs/symbol")])
                      for rule in xml.iter("rule")}
        self.fields = {}
        for name, symbols, *_ in self.productions:
            self.fields.setdefault((name, tuple(symbol[0] for symbol in symbols)), [symbol[1:] for symbol in symbols])
        self.states = []
        for state in xml.iter("state"):
            moves = {one.attrib["symbol"]: int(one.attrib["state"]) for one in state.iter("transition")}
            ends = {one.attrib["symbol"]: one.attrib["rule"] for one in state.iter("reduction") if one.attrib["enabled"] == "true"}
            self.states.append((moves, ends))

    def next_token(self, text, at, state):
        """(terminal, text) of the longest that this state allows."""
        while blank := self.extras.match(text, at):
            at = blank.end()
        if at == len(text):
            return "$end", "", at
        allowed = set().union(*state)
        found = [(name, match[0]) for name, regex in self.terminals.items() if name in allowed and (match := regex.match(text, at))]
        word = self.terminals[self.source["word"]].match(text, at)
        for literal, name in self.literals.items():
            whole = word[0] == literal if word and re.match(r"[A-Za-z_]", literal) else text.startswith(literal, at)
            if whole and name in allowed:
                found.append((name, literal))
        best = max(found, key=lambda one: (len(one[1]), one[0] in self.literals.values()), default=(None, text[at:at + 20]))
        return *best, at

    def parse(self, text):
        """The tree, [name, [(field, child) ...]], where children may be texts; SyntaxError."""
        at, states, nodes = 0, [0], []
        while True:
            moves, ends = self.states[states[-1]]
            token, word, at = self.next_token(text, at, (moves, ends))
            if token in moves:
                states.append(moves[token])
                nodes.append([token, word])
                at += len(word)
                continue
            rule = ends.get(token, ends.get("$default"))
            if rule == "accept" or token == "$end" and rule == "0":
                return nodes[0]
            if rule is None:
                raise SyntaxError(f"line {text.count(chr(10), 0, at) + 1}: {word!r}")
            name, symbols = self.rules[int(rule)]
            count = len(symbols)
            children = nodes[len(nodes) - count:]
            del nodes[len(nodes) - count:], states[len(states) - count:]
            nodes.append([name, self.named(name, symbols, children)])
            states.append(self.states[states[-1]][0][name])

    def named(self, name, symbols, children):
        found = []
        for (field, alias), child in zip(self.fields.get((name, tuple(symbols)), itertools.repeat((None, None))), children):
            kind, inside = child
            if alias:
                found.append((field, [alias, inside]))
            elif kind.startswith("_") or "_repeat" in kind:
                found += [(field or own, one) for own, one in inside]
            else:
                found.append((field, child))
        return found
