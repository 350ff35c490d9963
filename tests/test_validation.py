"""The validation layer is on, and what it says fails the test that caused it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import hzb
from hzb import _core

pytestmark = [
    pytest.mark.vulkan,
    pytest.mark.skipif(
        os.environ.get("HZB_VALIDATION") != "1",
        reason="no validation layer; HZB_TEST_VALIDATION=required makes that a failure",
    ),
]

PLANTED = """
import numpy as np
import pytest
from hzb import _core

@pytest.mark.vulkan
def test_at_fault(device):
    _core._provoke_validation_message(device)

def test_after_it(build):
    build(np.ones((5, 7), np.float32))
"""


def test_messages_are_taken_once(device):
    assert _core._take_validation_messages() == []
    _core._provoke_validation_message(device)
    messages = _core._take_validation_messages()
    assert messages
    assert all(isinstance(message, str) and message for message in messages)
    assert _core._take_validation_messages() == []


def test_builds_go_on_after_a_message(device):
    _core._provoke_validation_message(device)
    _core._take_validation_messages()
    assert hzb.build(np.ones((5, 7), np.float32), device=device)[-1] == 1
    assert _core._take_validation_messages() == []


def test_message_fails_the_test_that_caused_it(device, tmp_path):
    (tmp_path / "test_planted.py").write_text(PLANTED)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HZB_TEST_DEVICES": device.driver_name,
        },
        capture_output=True,
        text=True,
    )
    report = done.stdout + done.stderr
    assert done.returncode == 1, report
    failed = [line for line in report.splitlines() if line.startswith("FAILED")]
    assert failed, report
    assert all("::test_at_fault[" in line for line in failed), report
    assert "validation layer complained" in report
    assert "passed" in report
