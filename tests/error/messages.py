"""Fails if the frontend, or what reads machines, has a message that no .err file shows."""
import glob
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SOURCES = [*sorted((ROOT / "frontend").rglob("*.c")), ROOT / "ir" / "cost" / "machine_read.c"]
CALL = re.compile(r"\b(?:complain|complain_unused|fail_command|fail_at|error_at|wrong|missing|needs)\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')

# Said to nobody: while sizes are shrunk for verification, and where memory runs out.
UNSEEN = {"'%s' cannot be shrunk"}


def arguments(text, at):
    """The text of a call, from behind its parenthesis to the one that closes it."""
    depth, i = 1, at
    while depth:
        if text[i] == '"':
            i = STRING.match(text, i).end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        i += 1
    return text[at:i - 1]


def messages(text):
    """What is quoted in the calls that report: strings that stand side by side are one."""
    for call in CALL.finditer(text):
        quoted = arguments(text, call.end())
        for group in re.finditer(r'(?:"(?:[^"\\]|\\.)*"(?:\s|PRI[du]64)*)+', quoted):
            message = re.sub(r'"\s*(PRI[du]64)?\s*"', lambda m: "d" if m.group(1) else "", group.group(0).strip())
            message = re.sub(r'"\s*PRI[du]64\s*$', 'd"', message)
            yield message.strip('"')


def pattern(message):
    return "".join(".*?" if part.startswith("%") else re.escape(part)
                   for part in re.split(r"(%(?:%|[-.0-9*]*(?:ll)?[a-z]))", message))


def main():
    shown = "\n".join(pathlib.Path(path).read_text(errors="replace") for path in sorted(glob.glob(str(HERE / "*.err"))))
    missing, count = 0, 0
    for source in SOURCES:
        for message in messages(source.read_text()):
            if len(message) < 8 or "%" not in message and " " not in message or message in UNSEEN:
                continue
            count += 1
            if not re.search(pattern(message), shown):
                print(f"{source.name}: no .err file shows: {message}")
                missing += 1
    print(f"{count} messages, {missing} without a test")
    return missing > 0 or count < 100


sys.exit(main())
