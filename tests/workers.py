"""What worker processes of the tests run: functions that they find by name, as pickles need."""

from __future__ import annotations

import os

import hzb
from hzb import _core

ONE = {"levels": 1, "algorithm": "per_level"}


def build(depth):
    """Build on the default device."""
    return hzb.build(depth, **ONE)


def build_here(context, depth):
    """Build on a context that came in a pickle; tell how it came."""
    came_as = repr(context)
    return came_as, context.device, context.build(depth, **ONE)


def messages(_):
    return os.getpid(), _core._take_validation_messages()


def serve(indices, results, depths):
    """Build frames by index until told to stop, as the workers of a data loader do."""
    for index in iter(indices.get, None):
        results.put((index, build(depths[index])))
    results.put(messages(None))
