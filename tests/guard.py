"""The Vulkan layer of guard_layer.c, built here; environment variables put it under processes."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

NAME = "VK_LAYER_HZB_guard"


def install(folder):
    """Build the layer in a folder and give the variables that make the loader use it."""
    library = folder / "libguard_layer.so"
    sdk = os.environ.get("VULKAN_SDK")
    subprocess.run(
        [
            *sysconfig.get_config_var("CC").split(),
            *("-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"),
            *([f"-I{sdk}/include"] if sdk else []),
            *("-o", str(library), str(Path(__file__).with_name("guard_layer.c"))),
        ],
        check=True,
    )
    manifest = {
        "file_format_version": "1.1.2",
        "layer": {
            "name": NAME,
            "type": "GLOBAL",
            "library_path": str(library),
            "api_version": "1.3.0",
            "implementation_version": "1",
            "description": "Ends processes that break a rule",
        },
    }
    (folder / "guard_layer.json").write_text(json.dumps(manifest))
    return {
        "VK_ADD_LAYER_PATH": str(folder),
        "VK_INSTANCE_LAYERS": NAME,
        "HZB_GUARD_LIBRARY": str(library),
    }
