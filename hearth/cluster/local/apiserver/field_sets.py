"""Sets of fields of a manifest: what is in it, what differs, what a merge or a removal leaves.

A path is a tuple of steps as `fieldsV1` spells them: `f:spec`, `k:{"name":"serving"}`, `v:"x"`.
"""

import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from hearth.cluster.interface import Invalid
from hearth.cluster.local.apiserver import merge_schema
from hearth.cluster.local.apiserver.merge_schema import Schema

Path = tuple[str, ...]
Fields = frozenset[Path]

NONE: Fields = frozenset()


def of(value: Any, rules: Schema, *, path: Path = (), field: str = "") -> set[Path]:
    """Every field that `value` holds.  Raises Invalid where a keyed list names an item twice."""
    found: set[Path] = set()
    _collect(value, rules, path, field, found)
    return found


def _collect(value: Any, rules: Schema, path: Path, field: str, found: set[Path]) -> None:
    if isinstance(value, dict):
        if (not value and path) or rules.atomic(field):
            found.add(path)
            return
        for name, child in value.items():
            _collect(child, rules, (*path, f"f:{name}"), name, found)
        return
    if isinstance(value, list) and (items := _by_key(value, rules, field)) is not None:
        for key, item in items.items():
            found.add((*path, key))
            if isinstance(item, dict):
                _collect(item, rules, (*path, key), "", found)
        return
    found.add(path)


def differ(
    old: Any, new: Any, rules: Schema, *, path: Path = (), field: str = ""
) -> tuple[set[Path], set[Path]]:
    """Fields that are new or have another value in `new`, and fields that are only in `old`."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare(old, new, rules, path, field, changed, removed)
    return changed, removed


def _compare(
    old: Any,
    new: Any,
    rules: Schema,
    path: Path,
    field: str,
    changed: set[Path],
    removed: set[Path],
) -> None:
    if old is new or old == new:
        return
    before = _parts(old, rules, field)
    after = _parts(new, rules, field)
    if before is None or after is None:
        if before is not None:
            removed |= of(old, rules, path=path, field=field)
        changed |= of(new, rules, path=path, field=field)
        return
    for step, value in after.items():
        at = (*path, step)
        if step not in before:
            changed |= of(value, rules, path=at, field=_field(step))
            if not step.startswith("f:"):
                changed.add(at)
        else:
            _compare(before[step], value, rules, at, _field(step), changed, removed)
    for step, value in before.items():
        if step not in after:
            at = (*path, step)
            removed |= of(value, rules, path=at, field=_field(step))
            removed.add(at)


def merge(live: Any, applied: Any, rules: Schema, *, field: str = "") -> Any:
    """`live` with everything that `applied` holds; neither is changed."""
    if isinstance(live, dict) and isinstance(applied, dict) and not rules.atomic(field):
        merged = dict(live)
        for name, value in applied.items():
            merged[name] = merge(live[name], value, rules, field=name) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(applied, list):
        before = _by_key(live, rules, field)
        after = _by_key(applied, rules, field)
        if before is not None and after is not None:
            return _merge_items(before, after, rules)
    return applied


def _merge_items(before: dict[str, Any], after: dict[str, Any], rules: Schema) -> list[Any]:
    """Applied items in their own order; what only `before` has keeps its place among them."""
    merged: list[Any] = []
    old, new = deque(before), deque(after)
    shared = deque(key for key in after if key in before)
    done: set[str] = set()
    while old or new:
        if old and old[0] not in after:
            merged.append(before[old.popleft()])
            continue
        if old and (old[0] in done or (shared and shared[0] != old[0])):
            old.popleft()  # its place is where the applier has it
            continue
        key = new.popleft()
        merged.append(merge(before[key], after[key], rules) if key in before else after[key])
        done.add(key)
        if shared and shared[0] == key:
            shared.popleft()
    return merged


def without(value: Any, gone: Iterable[Path], rules: Schema) -> Any:
    """`value` without those fields (each with all below it); it is not changed."""
    return _prune(value, to_tree(gone), rules, "")


def _prune(value: Any, tree: dict[str, Any], rules: Schema, field: str) -> Any:
    if isinstance(value, dict):
        kept = {}
        for name, child in value.items():
            node = tree.get(f"f:{name}")
            if node is None:
                kept[name] = child
            elif not _is_member(node):
                kept[name] = _prune(child, node, rules, name)
        return kept
    if isinstance(value, list) and (items := _by_key(value, rules, field)) is not None:
        left = []
        for key, item in items.items():
            node = tree.get(key)
            if node is None:
                left.append(item)
            elif not _is_member(node):
                left.append(_prune(item, node, rules, ""))
        return left
    return value


def with_parents(owned: Iterable[Path]) -> set[Path]:
    """Those fields and the named fields around them: who owns a part keeps the whole alive."""
    closed: set[Path] = set()
    for path in owned:
        closed.add(path)
        closed.update(path[:n] for n in range(1, len(path)) if path[n - 1].startswith("f:"))
    return closed


def to_tree(paths: Iterable[Path]) -> dict[str, Any]:
    """Paths in the form of `fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return _without_lone_dots(tree)


def _without_lone_dots(node: dict[str, Any]) -> dict[str, Any]:
    if node.keys() == {"."}:
        return {}
    return {step: _without_lone_dots(child) if step != "." else {} for step, child in node.items()}


def _is_member(node: dict[str, Any]) -> bool:
    return not node or "." in node


def from_tree(tree: dict[str, Any]) -> Fields:
    """The paths of a `fieldsV1`."""
    found: set[Path] = set()

    def walk(node: dict[str, Any], path: Path) -> None:
        if path and _is_member(node):
            found.add(path)
        for step, child in node.items():
            if step != ".":
                walk(child, (*path, step))

    walk(tree, ())
    return frozenset(found)


def format_path(path: Path) -> str:
    """A path as people read it: `.spec.containers[name="serving"].image`."""
    text = ""
    for step in path:
        kind, rest = step[:1], step[2:]
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = json.loads(rest)
            text += "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in keys.items()) + "]"
        else:
            text += f"[={rest}]"
    return text


def _field(step: str) -> str:
    return step[2:] if step.startswith("f:") else ""


def _parts(value: Any, rules: Schema, field: str) -> dict[str, Any] | None:
    """What `value` is merged by; None where it is one value."""
    if isinstance(value, dict):
        return None if rules.atomic(field) else {f"f:{name}": v for name, v in value.items()}
    return _by_key(value, rules, field) if isinstance(value, list) else None


def _by_key(value: list[Any], rules: Schema, field: str) -> dict[str, Any] | None:
    keys = rules.keys(field)
    if keys is None:
        return None
    items: dict[str, Any] = {}
    for item in value:
        key = merge_schema.item_key(item, keys)
        if key is None:
            return None
        if keys == merge_schema.SET:
            step = f"v:{json.dumps(item)}"
        else:
            named = dict(sorted(zip(keys, key, strict=True)))
            step = f"k:{json.dumps(named, separators=(',', ':'))}"
        if step in items:
            raise Invalid(f"{field}: {item_name(step)} is there twice; name each item once")
        items[step] = item
    return items


def item_name(step: str) -> str:
    """An item of a list as people read it: `name="X"`."""
    return format_path((step,)).strip("[]")
