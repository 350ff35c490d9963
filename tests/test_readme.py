"""What the documents say is true: examples run, links and commands lead somewhere."""

import doctest
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hzb

ROOT = Path(__file__).parent.parent
DEPTH = ROOT / "tests" / "data" / "depth" / "gltf_rotunda_reversedz_1264x808.npz"
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/algorithms.md",
    "docs/environment.md",
    "docs/rules.md",
)


def blocks(document, language):
    """Give the code blocks of a language: the number of the first line, and the lines."""
    found, inside = [], None
    for number, line in enumerate((ROOT / document).read_text(encoding="utf-8").splitlines()):
        if inside is None and line == f"```{language}":
            inside = []
            found.append((number + 1, inside))
        elif line == "```":
            inside = None
        elif inside is not None:
            inside.append(line)
    return found


def commands(document):
    """Give the commands of console blocks, as words, and what stands there as their output."""
    for _, lines in blocks(document, "console"):
        for part in re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield shlex.split(command, comments=True), output


def words_of(first):
    """Give the commands of all documents that begin with a word, without it."""
    found = [
        command[1:]
        for document in DOCUMENTS
        for command, _ in commands(document)
        if command[0] == first
    ]
    assert found, f"no document shows a command of {first}"
    return found


@pytest.fixture
def desk(tmp_path, spec, monkeypatch):
    """Give a folder with the depth buffer that the examples speak of, and choose the device."""
    with np.load(DEPTH) as file:
        np.save(tmp_path / "depth.npy", file["depth"])
    (tmp_path / "docs" / "images").mkdir(parents=True)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.setenv("HZB_DEVICE", spec)
    return tmp_path


@pytest.mark.parametrize("document", ["README.md", "docs/rules.md"])
def test_python_examples_run(document, desk):
    # At their own line numbers, so that a traceback leads to them.
    script = []
    for first, lines in blocks(document, "python"):
        script += [""] * (first - len(script)) + lines
    assert script
    (desk / "example.py").write_text("\n".join(script), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=desk, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_command_lines_print_what_is_shown(desk):
    shown = [
        (command, output)
        for document in DOCUMENTS
        for command, output in commands(document)
        if command[:3] == ["python", "-m", "hzb"]
    ]
    assert shown
    for command, output in shown:
        done = subprocess.run(
            [sys.executable, *command[1:]], cwd=desk, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        if output:
            matches = doctest.OutputChecker().check_output(
                output + "\n", done.stdout, doctest.ELLIPSIS
            )
            assert matches, done.stdout


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, *_ in words_of("make"):
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def test_packages_are_those_that_make_installs():
    script = (ROOT / "tools" / "ensure_system_packages.sh").read_text(encoding="utf-8")
    for action, *packages in words_of("apt-get"):
        assert action == "install"
        for package in packages:
            assert re.search(rf"need(_of_python)? {package.removeprefix('python3-')} ", script), (
                package
            )


def test_extras_exist():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for action, what in words_of("pip"):
        assert action == "install"
        for extra in re.fullmatch(r"\.\[(.+)\]", what).group(1).split(","):
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if not target.startswith(("https://", "#")):
            assert (ROOT / document).parent.joinpath(target).exists(), target


def options_table():
    """Give the names of the options and the words of their values, row by row."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| option |")[1].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, names, values, *_ = row.split("|")
        yield re.findall(r"`(\w+)`", names), re.findall(r'"\w+"', values)


def test_the_options_table_is_that_of_build():
    names = {name for names, _ in options_table() for name in names}
    assert names == set(inspect.signature(hzb.build).parameters) - {"depth"}


def test_the_words_of_options_are_those_that_build_takes():
    listed = {names[0]: words for names, words in options_table() if words}
    assert set(listed) == {"bounds", "sizing", "rounding", "nan", "algorithm"}
    for name, words in listed.items():
        with pytest.raises(ValueError, match="must be one of") as refusal:
            hzb.build(np.zeros((2, 2)), device="cpu", **{name: "?"})
        assert str(refusal.value) == f'{name} must be one of {", ".join(words)}, not "?"'
        assert f"{name} : {{{', '.join(words)}}}\n" in hzb.build.__doc__


def test_every_algorithm_is_described():
    words = {names[0]: words for names, words in options_table()}["algorithm"]
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert re.findall(r'^\| `("\w+")` \|', text, re.MULTILINE) == words[1:]
    shown = subprocess.run(
        [sys.executable, "-m", "hzb", "build", "--help"], capture_output=True, text=True
    ).stdout
    assert all(word.strip('"') in shown for word in words)


def test_every_environment_variable_is_documented():
    pattern = re.compile(r"""(?:getenv\(|environ\.get\()"(HZB_\w+|VULKAN_SDK)""")
    sources = [*ROOT.glob("csrc/**/*.c"), ROOT / "setup.py", ROOT / "tests" / "conftest.py"]
    read = {
        name for source in sources for name in pattern.findall(source.read_text(encoding="utf-8"))
    }
    listed = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert {name for name in read if f"| `{name}` |" not in listed} == set()
    assert "HZB_DEVICE" in read
