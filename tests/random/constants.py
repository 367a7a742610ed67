"""Expressions that are known at compile time: consts, dims and their sizes, settings."""
import math

from tree import Binary, Call, Const, Dim, Flag, Name, Negation, Number, walk

FUNCTIONS = {"sqrt": math.sqrt, "minimum": min, "maximum": max}
LONGEST_OF_SMALL = 64  # elements of a dim, also of those made of others


def fold(sign, a, b):
    """Whole numbers stay whole."""
    if sign == "/" and isinstance(a, int) and isinstance(b, int):
        if b == 0 or a % b:
            raise ValueError(f"{a} / {b} is not whole")
        return a // b
    if sign == "%" and isinstance(a, int) and isinstance(b, int):
        return int(math.fmod(a, b))
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "%": lambda: math.fmod(a, b),
            "^": lambda: a**b, "<": lambda: int(a < b), "<=": lambda: int(a <= b), ">": lambda: int(a > b),
            ">=": lambda: int(a >= b), "==": lambda: int(a == b), "!=": lambda: int(a != b)}[sign]()


def number_of(expression, known):
    """The number, or None if it is none; known maps names to numbers."""
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Name):
        return math.inf if expression.name == "inf" else known.get(expression.name)
    if isinstance(expression, Negation):
        inner = number_of(expression.operand, known)
        return None if inner is None else -inner
    if isinstance(expression, Binary):
        a, b = number_of(expression.left, known), number_of(expression.right, known)
        return None if a is None or b is None else fold(expression.sign, a, b)
    if isinstance(expression, Flag):
        return int(expression.value)
    if isinstance(expression, Call) and expression.function == "if":
        return number_of(chosen_of(expression, known), known)
    if isinstance(expression, Call) and expression.function in FUNCTIONS:
        arguments = [number_of(a, known) for a in expression.arguments]
        return None if None in arguments else FUNCTIONS[expression.function](*arguments)
    return None


def chosen_of(expression, known):
    """Of if(condition, a, b), the one that is looked at."""
    condition, yes, no = expression.arguments
    return yes if number_of(condition, known) else no


def known_numbers(program, defined=()):
    """What consts and dims are; `defined` (-D) wins."""
    known, defined = {}, dict(defined)
    for declaration in program.declarations:
        if isinstance(declaration, (Const, Dim)):
            size = declaration.value if isinstance(declaration, Const) else declaration.size
            if declaration.name in defined:
                known[declaration.name] = defined[declaration.name]
            elif size is not None:
                known[declaration.name] = number_of(size, known)
    return known


def names_in(expression):
    return {e.name for e in walk(expression) if isinstance(e, Name)} if expression is not None else set()


def setting(program, name, otherwise, known):
    """A number of train { }."""
    value = program.train.get(name)
    return otherwise if value is None else number_of(value, known)


def called(expression, known):
    """adamw(lr = 1) as ("adamw", {"lr": 1}); a word alone is a call without arguments."""
    if isinstance(expression, Call):
        return expression.function, {name: number_of(value, known) for name, value in expression.keywords.items()}
    return expression.name, {}


def flag_of(expression, otherwise=False):
    number = number_of(expression, {})
    return otherwise if number is None else bool(number)


def is_large(program):
    """Are there dims of more elements than small programs have?"""
    known = known_numbers(program)
    return any(known.get(dim, 0) > LONGEST_OF_SMALL for dim in program.dims)
