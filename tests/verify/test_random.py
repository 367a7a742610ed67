"""Random models under random layouts, exactly, for VERIFY_SECONDS (5; with ALL 15), from number VERIFY_FIRST (default 0) on."""
import concurrent.futures
import itertools
import os
import re
import time

import layouts
import random_models

SECONDS, FIRST = int(os.environ.get("VERIFY_SECONDS", 15 if layouts.ALL else 5)), int(os.environ.get("VERIFY_FIRST", 0))


def is_refused(failure):
    """The layout cannot be honoured, or nothing is a product of fp8, and the file's errors say so: nothing has been run."""
    if "error: precision = fp8 is for products" in failure:
        return True
    return re.search(r"\.mdl:\d+:\d+: error: ", failure) and "interpreter" not in failure and "mpc:" not in failure


def test_random_models(tmp_path):
    end, verified, refused, failures = time.monotonic() + SECONDS, 0, 0, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for numbers in (range(first, first + 16) for first in itertools.count(FIRST, 16)):
            def one(number):
                return layouts.verify(tmp_path, f"random-{number}", random_models.model_text(number), [],
                                      "--verify-passes=exact")
            for failure in pool.map(one, numbers):
                if failure and not is_refused(failure):
                    failures.append(failure)
                refused += bool(failure)
                verified += not failure
            if time.monotonic() > end or failures:
                break
    assert not failures, "\n\n".join(failures[:5])
    assert verified > 4 * refused and verified >= 12, f"{refused} of {verified + refused} models were refused"
    print(f"{verified} random models")
