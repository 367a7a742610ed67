"""Makes a failing program smaller as long as it fails in the same way."""


def shrink(judge, case, found, seconds):
    return case, found
