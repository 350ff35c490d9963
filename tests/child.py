"""Python code in a process of its own, for what a process does once or must not do at all."""

from __future__ import annotations

import os
import subprocess
import sys


def environment(**changed):
    """Give the variables of a process that finds what this one does; one of None is unset."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **changed}
    return {name: value for name, value in found.items() if value is not None}


def run(code, *arguments, **variables):
    """Run code that must end well and say nothing on stderr, with some variables changed."""
    __tracebackhide__ = True
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env=environment(**variables),
        capture_output=True,
        text=True,
    )
    silent = done.returncode == 0 and not done.stderr
    assert silent, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
