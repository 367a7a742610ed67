"""What came of a program: a status, and a kind, which is the message with names and numbers blanked out."""
import re
from dataclasses import dataclass

# In the order in which a summary lists them.
STATUSES = {
    "ok": "as PyTorch has it",
    "unusable": "rounding alone changes it, or its numbers leave all bounds: thrown away",
    "unstaged": "stages that only schedule = naive can run, and mpc says so",
    "headless": "attention that has no heads to exchange its sequence for, and mpc says so",
    "unchunked": "a loss that cannot be computed in chunks, and mpc says so",
    "wide": "an optimizer whose products would have more than 8 dims, and mpc says so",
    "unlayered": "no product in a repeat for fp8, and mpc says so",
    "untogether": "not so many forward passes to run with the updates, and mpc says so",
    "unrepeated": "nothing of a repeat to offload, and mpc says so",
    "unwritten": "outputs that are not of a record alone, and mpc says so",
    "refused": "refused by mpc check: is that right?",
    "late": "refused after mpc check had accepted it",
    "wrong": "other numbers than PyTorch's",
    "crash": "the compiler or the trainer crashed",
    "hang": "it did not end",
    "verifier": "--verify-passes objects",
    "sanitizer": "ASan or UBSan objects",
}
GOOD = ("ok", "unusable", "unstaged", "headless", "unlayered", "unchunked", "wide", "untogether", "unrepeated", "unwritten")


@dataclass
class Outcome:
    status: str
    kind: str = ""
    detail: str = ""

    @property
    def is_failure(self):
        return self.status not in GOOD

    @property
    def signature(self):
        return f"{self.status}: {self.kind}"


def blanked(message):
    """One line without what differs from program to program."""
    message = re.sub(r"0x[0-9a-f]+", "N", message)
    message = re.sub(r"\S*\.(mdl|c|h|cu)(:\d+)*:", "LOC:", message)
    message = re.sub(r"\[[^\]]*\]", "[..]", message)
    message = re.sub(r"[‘'\"][^’'\"]*[’'\"]", "_", message)
    message = re.sub(r"[@%][\w.]+", "_", message)
    message = re.sub(r" at [\w.]+(\[\.\.\])?[\w.]*:", " at _:", message)
    message = re.sub(r"rank \d+", "rank N", message)
    message = re.sub(r"-?\b\d[\d.]*(e[-+]?\d+)?\b", "N", message)
    return " ".join(message.split())[:160]


SANITIZED = re.compile(r"(ERROR: AddressSanitizer: [\w-]+)|(runtime error: [^\n]*)")


VERIFIED = re.compile("interpreter:|the gradient is wrong|changes the result")


def message_of(output):
    """The line of the output that says what is wrong."""
    lines = output.splitlines()
    patterns = (VERIFIED, re.compile("error:"), re.compile(r"free\(\)|corruption|malloc|signal"))
    for pattern in patterns:
        for line in lines:
            if pattern.search(line) and "ended without a message" not in line:
                return line
    return next((line for line in lines if "error:" in line), lines[-1] if lines else "")


def failure(done, stage, default):
    """What a command that did not succeed means."""
    sanitized = SANITIZED.search(done.output)
    if sanitized:
        return Outcome("sanitizer", f"{stage}: {blanked(sanitized[0])}", done.output)
    if done.status is None:
        return Outcome("hang", stage, done.output)
    message = blanked(message_of(done.output))
    if done.status < 0 or done.status >= 128:
        number = -done.status if done.status < 0 else done.status - 128
        return Outcome("crash", f"{stage}: signal {number} {message}", done.output)
    if "internal:" in done.output or "internal error" in done.output:
        internal = next(line for line in done.output.splitlines() if "internal" in line)
        return Outcome("crash", f"{stage}: {blanked(internal)}", done.output)
    if VERIFIED.search(done.output):
        return Outcome("verifier", f"{stage}: {message}", done.output)
    if "the C compiler failed" in done.output:
        return Outcome("crash", f"{stage}: C compiler: {message}", done.output)
    return Outcome(default, f"{stage}: {message}", done.output)
