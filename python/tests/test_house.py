"""Checks the rules of the package: allowed imports between modules, and no use of names with a leading underscore outside their class or module."""

import ast
import pathlib
import sys

import pytest

import lcache

PACKAGE = pathlib.Path(lcache.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def module_of(file):
    """lcache/torch/sampler.py → lcache.torch.sampler; lcache/__init__.py → lcache."""
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): ast.parse(file.read_text()) for file in FILES}
PACKAGES = {module_of(file) for file in FILES if file.name == "__init__.py"}


def imports(name, tree):
    """The modules that a module imports, including imports for types only and imports within functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                above = parts[: len(parts) - node.level + (name in PACKAGES)]
                base = ".".join([*above, *base.split(".")] if base else above)
            for alias in node.names:
                member = f"{base}.{alias.name}"
                found.add(member if member in MODULES else base)
    return found


IMPORTS = {name: imports(name, tree) for name, tree in MODULES.items()}


def cycle(graph):
    """A cycle of a graph as a list of nodes; None if there is none."""
    done = set()

    def visit(node, path):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        found = next(filter(None, (visit(child, [*path, node]) for child in sorted(graph.get(node, ())))), None)
        done.add(node)
        return found

    return next(filter(None, (visit(node, []) for node in sorted(graph))), None)


def test_no_import_cycle():
    assert {"lcache.job", "lcache._client.link", "lcache.torch.loader"} <= set(MODULES)
    assert "lcache._client.link" in IMPORTS["lcache.job"] and "lcache.torch._order.order_ahead" in IMPORTS["lcache.torch.sampler"]
    assert cycle({name: used & set(MODULES) for name, used in IMPORTS.items()}) is None


# The rooms of the package, and the rooms that each may import. A module belongs to the room with the longest prefix of its name.
ROOMS = {
    "lcache._client": set(),
    "lcache": {"lcache._client"},
    "lcache.torch._order": {"lcache", "lcache._client"},
    "lcache.torch": {"lcache.torch._order", "lcache", "lcache._client"},
}
FOR_ALL = "lcache.errors"  # imports nothing of lcache, and every room may import it


def room_of(name):
    return max((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), key=len)


def strays(used_by):
    """The imports from one room to another that ROOMS does not allow, as (importer, imported)."""
    return [(name, used) for name, all_used in sorted(used_by.items()) for used in sorted(all_used & set(MODULES) - {FOR_ALL})
            if room_of(used) != room_of(name) and room_of(used) not in ROOMS[room_of(name)]]


def test_rooms():
    assert {room_of(name) for name in MODULES} == set(ROOMS)
    assert strays(IMPORTS) == [] and cycle(ROOMS) is None
    assert not IMPORTS[FOR_ALL] & set(MODULES)


@pytest.mark.parametrize("name", [name for name in sorted(MODULES) if room_of(name) == "lcache._client"])
def test_client_does_not_import_torch(name):
    assert not [used for used in IMPORTS[name] if used.split(".")[0] == "torch" or used.startswith("lcache.torch")]


def test_strays_are_found():
    assert room_of("lcache.torch") == "lcache.torch" and room_of("lcache.job") == "lcache" and room_of("lcache._client.link") == "lcache._client"
    for importer, imported in [
        ("lcache._client.link", "lcache.job"), ("lcache._client.link", "lcache"), ("lcache.job", "lcache.torch.dataset"),
        ("lcache.torch._order.push", "lcache.torch.dataset"), ("lcache._client.link", "lcache.torch._order.push"),
    ]:
        assert strays({importer: {imported, FOR_ALL}}) == [(importer, imported)]
    assert strays({"lcache.job": {"lcache._client.link"}, "lcache.torch.dataset": {"lcache.torch._order.push", "lcache.job"}}) == []


def test_cycle_is_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


@pytest.mark.parametrize("name", sorted(MODULES))
def test_torch_stays_in_its_package(name):
    if not name.startswith("lcache.torch"):
        others = {"torch", "PIL", "numpy"} - ({"numpy"} if name == "lcache.arrays" else set())
        outside = {used for used in IMPORTS[name] if used.split(".")[0] in others or used.startswith("lcache.torch")}
        assert not outside


@pytest.mark.skipif(sys.version_info < (3, 10), reason="sys.stdlib_module_names is of Python 3.10")
@pytest.mark.parametrize("name", sorted(MODULES))
def test_standard_library_only(name):
    allowed = {"lcache", *sys.stdlib_module_names}
    if name.startswith("lcache.torch"):
        allowed |= {"torch", "PIL"}
    if name == "lcache.torch.torchvisions":
        allowed |= {"torchvision"}  # within a function, at the first use of ImageFolder
    if name == "lcache.arrays":
        allowed |= {"numpy"}  # within a function; without numpy an error says so
    if name == "lcache.neighbour_graph":
        allowed |= {"hnswlib"}  # within a function, as numpy
    if name in ("lcache.torch.arrow_cells", "lcache.torch.arrow_places", "lcache.torch.cached_dataset", "lcache.torch.hugging_face"):
        allowed |= {"datasets", "numpy", "pyarrow"}  # at the first use of lcache.torch.cached, which takes a dataset of the first one
    assert {used.split(".")[0] for used in IMPORTS[name]} <= allowed


# Private names of other packages that the package uses, with the reason.
EXCEPTIONS = {
    ("lcache.torch._order.forked_child", "_exit"): "os._exit, by which a forked child has to end; documented",
    ("lcache.torch._order.frameworks", "_getframe"): "reads the caller of a batch sampler's __iter__; CPython only, and documented",
    ("lcache.torch._order.frameworks", "_sampler"): "Lightning's wrappers of a sampler",
    ("lcache.torch._order.known_samplers", "_version"): "how often a tensor was changed in place; torch's notes on autograd describe it",
    ("lcache.torch.cached_dataset", "_indices"): "the rows that select and shuffle of a datasets.Dataset chose, for which it has no public name",
    ("lcache.torch.ready_batch", "_C"): "torch's documented way (notes on extending torch) to make results of a Tensor subclass plain tensors",
    ("lcache.torch.ready_batch", "_disabled_torch_function_impl"): "the same",
    ("lcache.torch.loader", "_lcache_above"): "is set on other packages' loader classes, so that the prefix keeps it apart from their names",
}
NAMED_TUPLE = {"_replace", "_fields", "_field_defaults", "_asdict", "_make"}  # documented methods of every NamedTuple


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name != "_"


def defined_by(cls):
    """The private names that a class defines: methods, class variables, and attributes of self or of an argument named cls."""
    names = set()
    for node in ast.walk(cls):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
    return names


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def reached(tree):
    """(line, name) of each private name that a module uses of other objects or modules.

    Allowed are self._x and cls._x, and x._y within a class that defines _y itself: another object of the same class.
    """
    found = []

    def visit(node, own):
        if isinstance(node, ast.ClassDef):
            own = own | defined_by(node)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_self(node.value) and node.attr not in own:
            found.append((node.lineno, node.attr))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr", "delattr"):
            target, name = node.args[0], node.args[1]
            if isinstance(name, ast.Constant) and is_private(name.value) and not is_self(target):
                found.append((node.lineno, name.value))
        if isinstance(node, ast.ImportFrom):
            found.extend((node.lineno, alias.name) for alias in node.names if is_private(alias.name))
        for child in ast.iter_child_nodes(node):
            visit(child, own)

    visit(tree, frozenset())
    return found


@pytest.mark.parametrize("name", sorted(MODULES))
def test_private_names_stay_private(name):
    refused = [(line, used) for line, used in reached(MODULES[name]) if used not in NAMED_TUPLE and (name, used) not in EXCEPTIONS]
    assert not refused, f"{name} reaches into other objects: {refused}"


def test_every_exception_is_needed():
    used = {(name, attribute) for name, tree in MODULES.items() for _, attribute in reached(tree)}
    assert set(EXCEPTIONS) <= used


@pytest.mark.parametrize(
    "code, refused",
    [
        ("job._link.path", ["_link"]),
        ("self._link.path", []),
        ("self.job._link", ["_link"]),
        ("getattr(job, '_link')", ["_link"]),
        ("from .job import _check", ["_check"]),
        ("from . import _thread as thread", ["_thread"]),
        ("class A:\n def f(self, other):\n  self._x = other._x", []),
        ("class A:\n def f(self, other):\n  self.x = other._x", ["_x"]),
        ("class A:\n def f(self):\n  self._x = 1\ndef g(a):\n return a._x", ["_x"]),
        ("x.__dict__, type(x).__name__", []),
    ],
)
def test_reached(code, refused):
    assert [name for _, name in reached(ast.parse(code))] == refused
