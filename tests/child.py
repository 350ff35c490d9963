"""Python code in a process of its own, for what a process does once or must not do at all."""

from __future__ import annotations

import os
import subprocess
import sys


def run(code, *arguments, **environment):
    """Run code that must end well and say nothing on stderr; a variable of None is unset."""
    __tracebackhide__ = True
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env={name: value for name, value in env.items() if value is not None},
        capture_output=True,
        text=True,
    )
    silent = done.returncode == 0 and not done.stderr
    assert silent, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
