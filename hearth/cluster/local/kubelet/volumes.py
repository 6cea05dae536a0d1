"""Lay out a pod's volumes as folders, and tell a process where they are.

A process sees the machine's own file system, so nothing can be mounted at `/cache`.  Each volume
is a folder, and `Mounts.translate` replaces a mount path, wherever a path begins with it, by
that folder: in the command, the arguments, the environment (HOME too) and the working directory.

* emptyDir: in the pod's own folder, gone with the pod (Memory is no memory file system).
* persistentVolumeClaim: what the setting `claims` says, else `<state>/claims/<namespace>/<name>`.
* hostPath: the path itself where it exists; else, for the types that create it,
  `<state>/host/<path>`.  So nothing outside the state folder is ever created.
* secret, configMap, projected of these: files in the pod's own folder.

`/dev/shm` stays what it is.  A read-only mount is not enforced: a process is not a container.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hearth.api.meta import Manifest
from hearth.cluster.local.kubelet import environment
from hearth.cluster.local.kubelet.environment import CannotStart

_CREATES = ("", "DirectoryOrCreate", "FileOrCreate")
_SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeLayout:
    """Where the folders of one pod's volumes go."""

    state: Path
    pod: Path
    """The pod's own folder."""
    claims: Mapping[str, Path]
    """What a person chose, by `namespace/name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedObjects:
    """What the cluster knows of the objects that the volumes name; None: not there."""

    secrets: Mapping[str, Manifest | None]
    config_maps: Mapping[str, Manifest | None]
    claims: Mapping[str, Manifest | None]


@dataclass(frozen=True, slots=True)
class Mounts:
    """Mount paths of one container and the folders that stand for them."""

    folders: tuple[tuple[str, str], ...]

    def translate(self, text: str) -> str:
        """`text` with every mount path at the beginning of a path replaced by its folder."""
        if not self.folders:
            return text
        # The longest mount first, so that /cache/hf is not taken for a part of /cache.
        paths = sorted((path for path, _ in self.folders), key=len, reverse=True)
        real = dict(self.folders)
        pattern = (
            r"(?:(?<![\w./-])|(?<=file://))"
            f"(?:{'|'.join(re.escape(path) for path in paths)})"
            r"(?![\w-]|\.\w)"
        )
        return re.sub(pattern, lambda match: real[match[0]], text)


def references(pod: Manifest) -> Iterator[tuple[str, str]]:
    """(kind, name) of each object that the volumes are made from."""
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", claim["claimName"]
        for source in _file_sources(volume):
            if "secret" in source:
                yield "Secret", _name(source["secret"])
            elif "configMap" in source:
                yield "ConfigMap", _name(source["configMap"])


def prepare(
    pod: Manifest, container: Manifest, layout: VolumeLayout, found: ReferencedObjects
) -> Mounts:
    """Create what must be there, and say where it is.  Raises CannotStart (event FailedMount)."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    folders: list[tuple[str, str]] = []
    for mount in container.get("volumeMounts") or ():
        path = mount["mountPath"].rstrip("/")
        if path in (_SHARED_MEMORY, ""):
            continue
        if mount["name"] not in volumes:
            raise _failed(mount["name"], "the pod has no volume of that name")
        try:
            folder = _folder(volumes[mount["name"]], pod, layout, found)
            if inside := mount.get("subPath"):
                folder /= _inside(mount["name"], inside)
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed(mount["name"], f"{error.filename}: {error.strerror}") from error
        folders.append((path, str(folder)))
    return Mounts(tuple(folders))


def _folder(
    volume: Manifest, pod: Manifest, layout: VolumeLayout, found: ReferencedObjects
) -> Path:
    name = volume["name"]
    if host := volume.get("hostPath"):
        return _host_path(name, host, layout)
    if claim := volume.get("persistentVolumeClaim"):
        key = f"{pod['metadata'].get('namespace', '')}/{claim['claimName']}"
        return _claim(name, key, layout, known=found.claims.get(claim["claimName"]) is not None)
    folder: Path = layout.pod / "volumes" / name
    folder.mkdir(parents=True, exist_ok=True)
    if "emptyDir" in volume:
        return folder
    sources = list(_file_sources(volume))
    if not sources:
        kind = next((key for key in volume if key != "name"), "nothing")
        raise _failed(name, f"a volume of type {kind} cannot be had without a cluster")
    for source in sources:
        for path, content, mode in _files(name, source, found):
            _write(folder / path, content, mode)
    return folder


def _host_path(name: str, host: Manifest, layout: VolumeLayout) -> Path:
    path, kind = Path(str(host["path"])), str(host.get("type") or "")
    if path.exists():
        return path
    if kind not in _CREATES:
        raise _failed(name, f"hostPath type check failed: {path} is not a {kind.lower()}")
    inside = layout.state / "host" / os.path.normpath(path).lstrip("/")
    if kind == "FileOrCreate":
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.touch()
    else:
        inside.mkdir(parents=True, exist_ok=True)
    return inside


def _claim(name: str, key: str, layout: VolumeLayout, *, known: bool) -> Path:
    if key in layout.claims:
        chosen: Path = layout.claims[key].expanduser().absolute()
        if not chosen.is_dir():
            raise _failed(
                name, f"{chosen}, the folder that --claims gives claim {key}, is not a folder"
            )
        return chosen
    folder = layout.state / "claims" / key
    if not folder.is_dir():
        if not known:
            raise _failed(
                name,
                f'persistentvolumeclaim "{key.partition("/")[2]}" not found: say where its files'
                f" are with --claims {key}=FOLDER, or put them into {folder}",
            )
        folder.mkdir(parents=True)
    return folder


def _file_sources(volume: Manifest) -> Iterator[Manifest]:
    """Sources of files, each in the shape that `projected` has."""
    if secret := volume.get("secret"):
        yield {"secret": secret, "mode": secret.get("defaultMode")}
    if config_map := volume.get("configMap"):
        yield {"configMap": config_map, "mode": config_map.get("defaultMode")}
    if projected := volume.get("projected"):
        for source in projected.get("sources") or ():
            yield {**source, "mode": projected.get("defaultMode")}


def _name(reference: Manifest) -> str:
    return str(reference.get("secretName") or reference.get("name") or "")


def _files(
    volume: str, source: Manifest, found: ReferencedObjects
) -> Iterator[tuple[str, bytes, int]]:
    kind, key = ("Secret", "secret") if "secret" in source else ("ConfigMap", "configMap")
    if key not in source:
        raise _failed(volume, "of projected sources only secret and configMap can be had here")
    reference, name = source[key], _name(source[key])
    manifest = (found.secrets if kind == "Secret" else found.config_maps).get(name)
    if manifest is None:
        if reference.get("optional"):
            return
        raise _failed(volume, f'{kind.lower()} "{name}" not found')
    files = environment.content(kind, manifest)
    mode = 0o644 if source.get("mode") is None else source["mode"]
    items = reference.get("items")
    for item in [{"key": key, "path": key} for key in files] if items is None else items:
        if item["key"] in files:
            yield _inside(volume, item["path"]), files[item["key"]], int(item.get("mode", mode))
        elif not reference.get("optional"):
            raise _failed(volume, f'{kind.lower()} "{name}" has no key {item["key"]!r}')


def _inside(volume: str, path: str) -> str:
    plain = os.path.normpath(path)
    if os.path.isabs(plain) or plain.split(os.sep)[0] == "..":
        raise _failed(volume, f"path {path!r} leads out of the volume")
    return plain


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    path.chmod(mode)


def _failed(volume: str, why: str) -> CannotStart:
    return CannotStart(
        "CreateContainerConfigError",
        f'MountVolume.SetUp failed for volume "{volume}": {why}',
        event="FailedMount",
    )
