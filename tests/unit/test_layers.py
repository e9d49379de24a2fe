"""The rooms of the package depend on each other in one direction, and what costs time is loaded where it is used."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gputrace

PACKAGE = Path(gputrace.__file__).parent
# From the ground up; a module may import from its own layer and from those below it.
LAYERS = (
    ("schema", "trace", "errors", "resources", "display", "nearest", "printable", "rows"),
    ("ingest", "sampler"),
    ("rebuild",),
    ("analysis", "simulate"),
    ("render", "live", "fleet", "cache"),
    ("chapters",),
    ("loading", "api", "progress", "commands", "cli", "__main__", ""),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room or top module of a module of the package; '' for the package itself."""
    return [*module.split("."), ""][1]


def imported(path: Path, run_time_only: bool = False) -> Iterator[str]:
    """Every module that a file imports, anywhere in it; `if TYPE_CHECKING` blocks are left out if so wished."""
    own = name_of(path).split(".")
    package = own if path.name == "__init__.py" else own[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if run_time_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def users_of(*libraries: str) -> set[str]:
    """Files that import one of these libraries."""
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if any(module.split(".")[0] in libraries for module in imported(path))
    }


def test_every_module_has_a_layer() -> None:
    assert {room_of(name_of(path)) for path in MODULES} - set(RANK) == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_imports_from_a_layer_above(path: Path) -> None:
    own = room_of(name_of(path))
    if own == "":
        pytest.skip("the package itself offers names of every layer")
    above = sorted(
        module
        for module in imported(path)
        if module.startswith("gputrace.")
        # `from gputrace import __version__` is the package itself: below everything.
        and room_of(module) in RANK
        and RANK[room_of(module)] > RANK[own]
    )
    assert above == []


@pytest.mark.parametrize("room", ["ingest", "sampler", "rebuild", "analysis", "fleet", "render", "live"])
def test_no_imports_in_circles_within_a_room(room: str) -> None:
    paths = {name_of(path): path for path in MODULES if room_of(name_of(path)) == room}

    def inner(name: str) -> set[str]:
        found = set()
        for module in imported(paths[name], run_time_only=True):
            # `from a.b import c` names a module or something in one.
            target = module if module in paths else module.rpartition(".")[0]
            if target in paths and target != name:
                found.add(target)
        return found

    left = {name: inner(name) for name in paths}
    while free := [name for name, needs in left.items() if not needs & set(left)]:
        for name in free:
            del left[name]
    assert left == {}


def test_drawing_libraries_are_used_where_html_is_made() -> None:
    assert users_of("jinja2") == {"render/page/document.py", "render/notebook.py"}
    assert {file for file in users_of("altair") if not file.startswith("render/charts/")} == set()
    assert {file for file in users_of("vl_convert") if not file.startswith("render/")} == set()


def test_perfetto_is_used_where_its_packets_are_written() -> None:
    assert users_of("perfetto", "google") == {"render/perfetto/events.py"}


def test_only_the_live_screen_uses_textual() -> None:
    assert users_of("textual") == {"live/app.py", "live/view.py"}


def test_only_the_fleet_uses_clusters_and_stores() -> None:
    assert users_of("dask", "distributed") == {"fleet/engine.py"}
    assert users_of("fsspec", "s3fs") == {"fleet/captures.py"}


def test_nvml_has_one_door() -> None:
    assert users_of("pynvml") == {"sampler/nvml.py"}


def test_only_the_command_line_uses_typer() -> None:
    assert {file for file in users_of("typer") if not file.startswith("commands/")} == {"cli.py"}


def test_only_resources_knows_where_bundled_files_lie() -> None:
    named = {path.relative_to(PACKAGE).as_posix() for path in MODULES if "_bundled" in path.read_text(encoding="utf-8")}
    assert named == {"resources.py"}


def loaded_by(statement: str) -> set[str]:
    """Top-level modules loaded by a statement in a fresh interpreter."""
    script = f"import sys; {statement}; print(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return set(ran.stdout.split())


HEAVY = {
    "textual",
    "polars",
    "numpy",
    "scipy",
    "altair",
    "jinja2",
    "vl_convert",
    "pynvml",
    "zstandard",
    "perfetto",
    "google",
    "dask",
    "distributed",
    "fsspec",
}


def test_the_command_line_loads_no_heavy_library() -> None:
    assert loaded_by("import gputrace.cli") & HEAVY == set()


def test_the_package_loads_no_heavy_library() -> None:
    assert loaded_by("import gputrace") & (HEAVY | {"typer", "rich"}) == set()


def test_recording_loads_no_heavy_library() -> None:
    loaded = loaded_by("import gputrace.cli, gputrace.live.exporter_command, gputrace.sampler.recording")
    assert loaded & HEAVY == set()


def test_only_the_process_that_packs_uses_polars_in_the_sampler() -> None:
    heavy = {user for user in users_of(*(HEAVY - {"pynvml"}), "rich", "typer") if user.startswith("sampler/")}
    assert heavy == {"sampler/compact.py"}


def test_the_sampler_loads_the_standard_library_alone() -> None:
    assert loaded_by("import gputrace.sampler.gpu, gputrace.sampler.loop") & (HEAVY | {"typer", "rich"}) == set()


def test_a_diagnosis_loads_no_drawing_library() -> None:
    loaded = loaded_by("import gputrace; gputrace.load; gputrace.analyze")
    assert loaded & {"altair", "jinja2", "vl_convert", "perfetto", "google"} == set()
