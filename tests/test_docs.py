"""The documentation is true: its Python runs, its commands exist, its links lead somewhere.

Blocks marked ``python`` of a page run one after the other, as a reader would paste them; blocks marked
``py`` need a facility or a file that is not here. Of the commands in ``bash`` blocks, those in
``RUN`` run too, and the others must name commands and options that exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from puma_coffea import exceptions
from puma_coffea.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("puma-coffea run fileset.json --output out", "puma-coffea report out")

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

# Pages that go on from something the reader has: events, a client, a fileset.
GIVEN = {
    "README.md": """
from distributed import Client, LocalCluster
from puma_coffea import open_events, sample_path
events = open_events(sample_path("zvv_pu140"))
client = Client(LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None))
fileset = {"zvv": {"files": {sample_path("zvv_pu140"): "Delphes"}}}
""",
    "own-method.md": 'open("fileset.json", "w").write("{}")\n',
}


def blocks(page):
    """Language and content of a page's blocks of code."""
    return [match.groups() for match in BLOCK.finditer(page.read_text())]


def commands(page):
    """Every ``puma-coffea`` line of a page's shell blocks, continued lines joined."""
    for language, content in blocks(page):
        if language == "bash":
            lines = content.replace("\\\n", " ").splitlines()
            yield from (line.strip() for line in lines if "puma-coffea " in line)


def script(page):
    """A page's Python, and its commands that can run, as one script."""
    parts = [GIVEN.get(page.name, "")]
    for language, content in blocks(page):
        if language == "python":
            parts.append(content)
        elif language == "bash" and page.name == "tutorial.md":
            wanted = [line for line in content.splitlines() if line in RUN]
            parts += [
                f"import subprocess\nsubprocess.run({shlex.split(w)}, check=True)" for w in wanted
            ]
    body = "\n".join(parts)
    # A cluster's processes import the script again.
    return "if __name__ == '__main__':\n" + "\n".join(f"    {line}" for line in body.splitlines())


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "```python" in p.read_text()], ids=lambda p: p.name
)
def test_the_python_of_a_page_runs(page, tmp_path):
    (tmp_path / "page.py").write_text(script(page))
    commands_here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=os.environ | {"PATH": commands_here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def options(name):
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    command = group.commands[name]
    found = {"--help"}
    for parameter in command.params:
        found |= {*parameter.opts, *parameter.secondary_opts}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_commands_of_a_page_exist(page):
    for line in commands(page):
        words = shlex.split(line.split("puma-coffea ", 1)[1], comments=True)
        given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= options(words[0]), line


def anchors(page):
    """What mkdocs makes of a page's headings."""
    return {
        re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower())
        for h in HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_links_of_a_page_lead_somewhere(page):
    for link in LINK.findall(page.read_text()):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_every_refusal_is_in_the_table_of_errors():
    table = (ROOT / "docs" / "input.md").read_text().split("## Errors and what to do")[1]
    names = {n for n, value in vars(exceptions).items() if isinstance(value, type)}
    assert {n for n in names if f"`{n}`" not in table} <= {"PumaCoffeaError"}
