"""Writes the reference of the package's public names from its source. No framework needs to be installed."""

import ast
import pathlib
import re
import textwrap

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "src" / "infill"

#: The modules whose public names users import, in the reference's order.
MODULES = ("infill", "infill.torch", "infill.lightning", "infill.transformers", "infill.keras")

#: Classes whose methods only frameworks or infill itself call.
CLOSED = ("InfillCallback", "Model")

#: Names that stay for older programs, with their present ones.
OLDER = {"live": "infill.torch.Elastic", "run": "infill.launch", "Way": "infill.PlanSpec"}

WIDTH = 120


class Undocumented(Exception):
    """A public name without a text."""


def reference():
    """The whole reference, as Markdown."""
    return "\n\n".join(module_text(module) for module in MODULES) + "\n"


def module_text(module):
    entries = []
    for name in public_names(module):
        if name in OLDER:
            entries.append(item(f"{module}.{name}", f"The older name of `{OLDER[name]}`."))
        elif not name.startswith("__"):
            entries += entry(module, name)
    return "\n".join([f"### {module}", "", *entries])


def public_names(module):
    """`__all__`, else the names that the module defines itself."""
    body = tree_of(module).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def tree_of(module):
    return ast.parse(source_of(module))


def source_of(module):
    parts = module.split(".")[1:]
    path = PACKAGE.joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path.read_text(encoding="utf-8")


def find(module, name):
    """The definition of a name that the module has or imports from within the package, with its module."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            if node.level:
                return find(from_module(module, node), name)
    raise Undocumented(f"{module} has no {name}")


def from_module(module, node):
    """The module that a relative import names."""
    parts = module.split(".")
    is_package = PACKAGE.joinpath(*parts[1:]).is_dir()
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def entry(module, name):
    home, node = find(module, name)
    if module != "infill" and name in public_names("infill"):
        return [item(f"{module}.{name}", f"The same as `infill.{name}`.")]
    if isinstance(node, ast.FunctionDef):
        return [item(f"{module}.{name}{signature(node)}", first_sentence(node))]
    members = dict(public_members(home, node))
    made = members.pop("__init__", None)
    fields = [field for field, value in members.items() if isinstance(value, ast.AnnAssign)]
    is_shown = made is not None and name in ("Elastic", "ElasticSampler", "InfillCallback")
    lines = [item(f"{module}.{name}{signature(made, skip=1) if is_shown else ''}", first_sentence(node))]
    if fields:
        lines.append(item("", ", ".join(f"`{field}`" for field in fields) + ".", depth=1))
    for member, value in members.items():
        if isinstance(value, str):
            lines.append(item(f".{member}", value, depth=1))
        elif isinstance(value, ast.FunctionDef) and name not in CLOSED:
            is_property = any(ast.unparse(d) == "property" for d in value.decorator_list)
            words = member if is_property else member + signature(value, skip=1)
            lines.append(item(f".{words}", first_sentence(value), depth=1))
    return lines


def public_members(module, node):
    """Fields, methods and properties of a class, those of its bases in the package first."""
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id not in ("TypedDict", "NamedTuple"):
            try:
                yield from public_members(*find(module, base.id))
            except Undocumented:
                pass  # It is a framework's.
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_"):
            yield ast.unparse(one.target), one
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            yield from attributes(module, one)
        is_method = isinstance(one, ast.FunctionDef)
        if is_method and (one.name == "__init__" or not one.name.startswith("_") and ast.get_docstring(one)):
            yield one.name, one


def attributes(module, made):
    """The public attributes that an __init__ sets under a comment `#:`, and their comments."""
    lines = source_of(module).splitlines()
    for one in ast.walk(made):
        if not isinstance(one, (ast.Assign, ast.AnnAssign)):
            continue
        targets = one.targets if isinstance(one, ast.Assign) else [one.target]
        names = [name for target in targets for name in re.findall(r"self\.([a-z]\w*)", ast.unparse(target))]
        comment, number = [], one.lineno - 2
        while lines[number].strip().startswith("#: ") or comment and lines[number].strip().startswith("# "):
            comment.insert(0, lines[number].strip().removeprefix("#: "))
            number -= 1
        if names and comment:
            text = re.split(r"(?<=[.])\s+(?=[A-Z])", " ".join(comment))[0]
            yield "`, `.".join(names), text


def signature(node, skip=0):
    """The parameters with their defaults, without types."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    words = [parameter(*pair) for pair in zip(plain, defaults)][skip:]
    if given.posonlyargs:
        words.insert(len(given.posonlyargs) - skip, "/")
    if given.vararg:
        words.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        words.append("*")
    words += [parameter(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        words.append(f"**{given.kwarg.arg}")
    return f"({', '.join(words)})"


def parameter(given, default):
    return given.arg if default is None else f"{given.arg}={ast.unparse(default)}"


def first_sentence(node):
    text = ast.get_docstring(node)
    if not text:
        raise Undocumented(node.name)
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s+(?=[A-Z`])", paragraph)[0]


def item(words, text, depth=0):
    indent = "  " * depth
    whole = f"`{words}`: {text}" if words else text
    return textwrap.fill(
        whole, WIDTH, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


if __name__ == "__main__":
    print(reference(), end="")
