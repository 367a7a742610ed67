"""What a trainer samples: after a prompt, the most likely token by the logits of one sequence.  Of models that predict the next
token in one place, and do not print it as a byte."""
import torch

from tree import Input

BYTES = 256  # of so many tokens each is one


def shifted_inputs(program):
    return {s.name for s in program.model.body if isinstance(s, Input) and s.source}


def tokens_of(evaluation):
    """How many there are: those that the first input takes which is an index or a label, and that have logits."""
    _, logits, dim = evaluation.predicted[0]
    inputs = [s.name for s in evaluation.program.model.body if isinstance(s, Input)]
    return min([logits.size(dim), *[evaluation.fits[name] for name in inputs if name in evaluation.fits][:1]])


def predicts(program, evaluation, is_of_records):
    """Does --sample have logits, and is it sure which?"""
    if is_of_records or len(evaluation.predicted) != 1:
        return False
    return evaluation.predicted[0][0].fed_by <= shifted_inputs(program) and tokens_of(evaluation) != BYTES


def drawn_prompt(stream, length, draw):
    """Shorter than a sequence, one, or longer: the trainer sees its end."""
    return [int(token) for token in stream[:draw.integers(1, length + 3)]]


def prompted(program, shifts, prompt, length):
    """What the inputs get: the end of the prompt from the first token on, then zeros."""
    seen, fed = prompt[-length:], {}
    for statement in program.model.body:
        if isinstance(statement, Input):
            has_rows = len(statement.type.dims) > 1
            row = (seen[shifts[statement.name]:] + [0] * length)[:length if has_rows else 1]
            fed[statement.name] = torch.tensor([row] if has_rows else row)
    return fed


def next_logits(evaluation, prompt, length):
    """After the loss of what the prompt gives: those at its last token."""
    labels, logits, dim = evaluation.predicted[0]
    rows = logits.ordered((*labels.dims, dim)).data.detach().reshape(-1, logits.size(dim))
    return rows[min(len(prompt), length) - 1][:tokens_of(evaluation)].numpy()
