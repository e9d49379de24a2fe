"""Numbers at the top of the modules that reach verdicts, read from the code."""

import ast
import importlib
import pkgutil
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType

from gputrace.analysis import hypotheses, signs, thresholds

_ROOM = "gputrace.analysis."


@cache
def constants() -> dict[str, float]:
    """Every number that a module of the thresholds, hypotheses or signs defines, by `module.NAME`."""
    found = {f"thresholds.Thresholds.{field.name}": float(field.default) for field in fields(thresholds.Thresholds)}  # type: ignore[arg-type]
    for module in _modules():
        for name in _assigned(module):
            value = getattr(module, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[f"{module.__name__.removeprefix(_ROOM)}.{name}"] = float(value)
    return found


def _modules() -> list[ModuleType]:
    inner = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (hypotheses, signs)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    return [thresholds, *inner]


def _assigned(module: ModuleType) -> list[str]:
    """Names in capitals that the module itself assigns, imports left out."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return [target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper()]
