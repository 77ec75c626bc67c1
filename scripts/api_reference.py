"""The pages of every public name, made from signatures, docstrings and the comments of fields.

A public name is imported when it is first used (PEP 562); here it is imported, and its source is read for
the annotations as they are written. `scripts/website.py` puts the pages into the site.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import adacompute

__all__ = ["PUBLIC", "write_pages"]

PUBLIC = [name for name in adacompute.__all__ if name != "__version__"]
ORDER = (
    *("serve", "answers", "records", "pool", "problems", "client", "sampling", "score", "solve"),
    *("policies", "replay", "evaluate", "config", "errors"),
)
HEAD = """# Every public name

What `import adacompute as ac` gives: {count} names, with signatures, fields, methods and the examples of
their docstrings. Made from the code by `make site`. The same names in the order of the work, with a text:
[the Python API](../../python.md); what is raised: [errors](../errors.md). A name is imported when it is first
used, so `import adacompute` alone loads nothing else. `ac.__version__` is the version, a text.

| name | what it is |
| --- | --- |
{rows}
"""
Scope = Mapping[str, Any]
WIDTH = 88  # of a signature on one line


def write_pages() -> dict[str, str]:
    """The pages as Markdown, by file name: an index of all names, and one page for each room."""
    pages = {"index.md": _write_index()}
    for room, names in _group_names().items():
        module = importlib.import_module(f"adacompute.{room}")
        head = f"# adacompute.{room}\n\n{_first_sentence(module)}\n\n"
        pages[f"{room}.md"] = head + "\n".join(_describe(name, getattr(adacompute, name)) for name in names)
    return pages


def _write_index() -> str:
    rows = []
    for room, names in _group_names().items():
        about = _first_sentence(importlib.import_module(f"adacompute.{room}"))
        rows.append(f"| [**adacompute.{room}**]({room}.md) | {_cell(about)} |")
        for name in names:
            sentence = _cell(_first_sentence(getattr(adacompute, name)))
            rows.append(f"| [`{name}`]({_place(name)}) | {sentence} |")
    return HEAD.format(count=len(PUBLIC), rows="\n".join(rows))


def _group_names() -> dict[str, list[str]]:
    """Public names by the room they are from, in the order of the work."""
    rooms: dict[str, list[str]] = {}
    for name in PUBLIC:
        rooms.setdefault(_room(name), []).append(name)
    place = {room: i for i, room in enumerate(ORDER)}
    return dict(sorted(rooms.items(), key=lambda entry: place.get(entry[0], len(place))))


def _room(name: str) -> str:
    return str(adacompute._HOMES[name]).split(".")[1]


def _place(name: str) -> str:
    """Where a name is, from another page; `Vote` and `vote` are told apart."""
    return f"{_room(name)}.md#ac.{name}"


def _first_sentence(value: Any) -> str:  # noqa: ANN401 - whatever has a docstring
    text = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[.:]) (?=[A-Z`])", text)[0].rstrip(".:") + "."


def _describe(name: str, value: Any) -> str:  # noqa: ANN401 - whatever is public
    title = f"## `{name}` {{#ac.{name}}}\n\n"
    return title + (
        "\n".join(_describe_class(name, value)) if inspect.isclass(value) else _function(name, value)
    )


def _describe_class(name: str, value: type) -> Iterator[str]:
    if dataclasses.is_dataclass(value):
        yield _record_signature(name, value)
    elif "__init__" in vars(value):
        yield _signature(name, vars(value)["__init__"], result=False)
    yield _docstring(value)
    if dataclasses.is_dataclass(value):
        yield _fields(value)
    members = list(_members(value))
    rows = [row for member, owner in members if (row := _property_row(member, owner))]
    if rows:
        yield "| property | type | |\n| --- | --- | --- |\n" + "".join(rows)
    inherited: dict[str, list[str]] = {}
    for member, owner in members:
        if isinstance(vars(owner)[member], property):
            continue
        if owner is not value and owner.__name__ in PUBLIC:
            inherited.setdefault(owner.__name__, []).append(f"`{member}`")
        else:
            yield f"### `{name}.{member}` {{#ac.{name}.{member}}}\n\n{_method(name, member, owner)}"
    for base, names in inherited.items():
        yield f"As in [`{base}`]({_place(base)}): {', '.join(names)}.\n"


def _record_signature(name: str, value: type) -> str:
    """The fields of a record in the order in which they are given; their types are in the table below."""
    words: list[str] = []
    for field in inspect.signature(value).parameters.values():
        if field.kind is field.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(field.name if field.default is field.empty else f"{field.name}=…")
    return _fence(_fold(name, words, ""))


def _property_row(member: str, owner: type) -> str:
    value = vars(owner)[member]
    if not isinstance(value, property):
        return ""
    node = _parse(value.fget)
    kind = f"`{ast.unparse(node.returns)}`" if node is not None and node.returns is not None else ""
    sentence = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return f"| `{member}` | {_cell(kind)} | {_cell(sentence)} |\n"


def _members(value: type) -> Iterator[tuple[str, type]]:
    """Public methods and properties in the order of the source, those of our own bases included."""
    seen: set[str] = set()
    for owner in value.__mro__:
        if not owner.__module__.startswith("adacompute"):
            continue
        for name, member in vars(owner).items():
            callable_here = inspect.isfunction(member) or isinstance(
                member, classmethod | staticmethod | property
            )
            if callable_here and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, owner


def _method(name: str, member: str, owner: type) -> str:
    value = vars(owner)[member]
    of_class = isinstance(value, classmethod | staticmethod)
    return _function(f"{name}.{member}" if of_class else member, value.__func__ if of_class else value)


def _function(name: str, function: Any) -> str:  # noqa: ANN401
    node = _parse(function)
    with_block = node is not None and any("contextmanager" in ast.unparse(d) for d in node.decorator_list)
    used = "Used in a `with`.\n\n" if with_block else ""
    return _signature(name, function) + used + _docstring(function)


def _signature(name: str, function: Any, *, result: bool = True) -> str:  # noqa: ANN401
    node = _parse(function)
    if node is None:
        return ""
    returns = f" -> {ast.unparse(node.returns)}" if result and node.returns is not None else ""
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _fence(
        _fold(
            f"{start}{name}",
            _arguments(node.args, vars(sys.modules[inspect.unwrap(function).__module__])),
            returns,
        )
    )


def _fold(name: str, words: list[str], returns: str) -> str:
    """A call on one line, or with an argument on each where that is too long."""
    line = f"{name}({', '.join(words)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


def _arguments(args: ast.arguments, scope: Scope) -> list[str]:
    """The arguments as they are written, without `self` and `cls`; `scope` is their module's."""
    plain = [*args.posonlyargs, *args.args]
    missing = len(plain) - len(args.defaults)
    words = [
        _argument(arg, args.defaults[i - missing] if i >= missing else None, scope)
        for i, arg in enumerate(plain)
        if not (i == 0 and arg.arg in ("self", "cls"))
    ]
    if args.vararg:
        words.append(f"*{_argument(args.vararg, None, scope)}")
    elif args.kwonlyargs:
        words.append("*")
    words += [
        _argument(arg, value, scope) for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    return words + ([f"**{_argument(args.kwarg, None, scope)}"] if args.kwarg else [])


def _argument(arg: ast.arg, default: ast.expr | None, scope: Scope) -> str:
    kind = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
    if default is None:
        return f"{arg.arg}{kind}"
    value = _constant(default, scope)
    return f"{arg.arg}{kind} = {value}" if kind else f"{arg.arg}={value}"


def _constant(value: ast.expr, scope: Scope) -> str:
    """An expression as it is written; the name of a constant that is a text or a number as its value."""
    known = scope.get(value.id) if isinstance(value, ast.Name) else None
    return repr(known) if isinstance(known, str | int | float) else ast.unparse(value)


def _parse(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | None:  # noqa: ANN401
    """A function's own syntax tree; None where it has no source."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return None
    node = ast.parse(source).body[0]
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _fields(value: type) -> str:
    """The fields of a record as a table: name, type, default and the comment beside or above each."""
    rows = [row for owner in reversed(value.__mro__) for row in _class_fields(owner)]
    head = "| field | type | default | |\n| --- | --- | --- | --- |\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows) if rows else ""


def _class_fields(owner: type) -> Iterator[tuple[str, str, str, str]]:
    if not owner.__module__.startswith("adacompute"):
        return
    source = textwrap.dedent(inspect.getsource(owner))
    lines = source.split("\n")
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            default = (
                "" if node.value is None else f"`{_default(node.value, vars(sys.modules[owner.__module__]))}`"
            )
            kind = ast.unparse(node.annotation)
            yield f"`{node.target.id}`", _cell(f"`{kind}`"), _cell(default), _cell(_comment(lines, node))


def _default(value: ast.expr, scope: Scope) -> str:
    """A default as a reader wants it: of `field(...)` what it makes."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("field", "dataclasses.field"):
        given = {word.arg: ast.unparse(word.value) for word in value.keywords}
        factory = given.get("default_factory", "")
        return given.get("default") or {"dict": "{}", "list": "[]", "tuple": "()"}.get(
            factory, f"{factory}()"
        )
    if _is_setting(value):
        return _constant(value.args[0], scope)
    return _constant(value, scope)


def _is_setting(value: ast.expr | None) -> TypeGuard[ast.Call]:
    """Whether a field is a setting of ours: `setting(default, "what it is", …)`."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "setting" and len(value.args) == 2


def _comment(lines: list[str], node: ast.AnnAssign) -> str:
    """The comment behind a field, else the lines of comment above it."""
    if _is_setting(node.value) and isinstance(node.value.args[1], ast.Constant):
        return str(node.value.args[1].value)
    assert node.end_lineno is not None
    behind = re.search(r"  # (.+)$", lines[node.end_lineno - 1])
    if behind:
        return re.sub(r"^(noqa|type:).*", "", behind[1])
    above = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("# "):
            break
        above.insert(0, line.strip()[2:])
    return " ".join(above)


def _cell(text: str) -> str:
    """Text of a cell: a bar would end it."""
    return text.replace("|", "&#124;") if not text.startswith("`") else _code_cell(text)


def _code_cell(text: str) -> str:
    """Code with a bar in it, as HTML: in Markdown the bar would end the cell."""
    if "|" not in text:
        return text
    inner = text.strip("`").replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return f"<code>{inner}</code>"


def _docstring(value: Any) -> str:  # noqa: ANN401
    """A docstring as Markdown: examples and indented parts in fences, public names linked."""
    text = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        text = ""  # made by dataclass, from the fields
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith(">>>"):
            blocks.append(f"```pycon\n{block}\n```")
        elif block.startswith("    "):
            blocks.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            blocks.append(re.sub(r"`(\w+)`", _link, block))
    return "\n\n".join(blocks) + "\n\n"


def _link(match: "re.Match[str]") -> str:
    return f"[{match[0]}]({_place(match[1])})" if match[1] in PUBLIC else match[0]


def _fence(code: str) -> str:
    return f"```python\n{code}\n```\n\n"
