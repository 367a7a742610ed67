"""dearest.py -- a plugin of pytest, which tests/pytest.sh loads where DEAREST=N is set: prints the N tests that took most
seconds of processors, of their own process and of those that it has started and seen end.  What a fixture builds for
several tests counts for the first of them."""
import os
import resource

import pytest

COUNT = int(os.environ.get("DEAREST") or 0)
PROPERTY = "processor seconds"


def seconds_used():
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Meter:
    """Seconds since it was last read."""

    def __init__(self):
        self.last = seconds_used()

    def read(self):
        last, self.last = self.last, seconds_used()
        return self.last - last


def pytest_sessionstart(session):
    session.config.meter = Meter()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    item.config.meter.read()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.user_properties.append((PROPERTY, item.config.meter.read()))  # travels from workers to who prints


def pytest_terminal_summary(terminalreporter):
    seconds = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY:
                    seconds[report.nodeid] = seconds.get(report.nodeid, 0) + value
    terminalreporter.section("dearest tests")
    terminalreporter.line(f"dear {sum(seconds.values()):7.1f} s  of {len(seconds)} tests")
    for nodeid in sorted(seconds, key=seconds.get, reverse=True)[:COUNT]:
        terminalreporter.line(f"dear {seconds[nodeid]:7.1f} s  {nodeid}")
