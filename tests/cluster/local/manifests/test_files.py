"""Real files, the real watcher and the real parser."""

import os
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hearth.api import manifests
from hearth.cluster import kinds
from hearth.cluster.interface import Invalid
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.manifests.files import Files, PathMissing
from tests import hanging

SECRET = """\
apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
stringData: {{key: {key}}}
"""


def secret(name, key="k"):
    return SECRET.format(name=name, key=key)


class Folder:
    """Files under test, what they became and what was reported."""

    def __init__(self, root, paths, cluster):
        self.root = root
        self.cluster = cluster
        self.told = []
        self._reported = anyio.Event()
        self.files = Files(paths, cluster=cluster, parse=manifests.parse, report=self._report)

    def _report(self, line):
        self.told.append(line)
        self._reported.set()

    async def reported(self, count):
        with hanging.guard():
            while len(self.told) < count:
                self._reported = anyio.Event()
                await self._reported.wait()
        return self.told

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def replace(self, name, text):
        """Never seen empty, as a file is that is written anew while it is read."""
        return self.write("aside", text).replace(self.root / name)

    async def secrets(self):
        listing = await self.cluster.list(kinds.SECRET)
        return {m["metadata"]["name"]: m["data"]["key"] for m in listing.items}

    async def until(self, secrets):
        """Wait until exactly these Secrets are there."""
        with hanging.guard():
            stream = self.cluster.watch(kinds.SECRET, since="0")
            async with aclosing(stream):
                async for _ in stream:
                    if await self.secrets() == secrets:
                        return

    @asynccontextmanager
    async def watched(self):
        await self.files.load()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.files.watch)
            yield
            tasks.cancel_scope.cancel()


K, L = "aw==", "bA=="


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path, [tmp_path], LocalCluster())


async def test_folders_are_loaded_recursively(folder):
    folder.write("a.yaml", secret("a") + "---\n" + secret("b"))
    folder.write("deep/er/c.yml", secret("c"))
    folder.write("d.txt", secret("d"))
    folder.write(".hidden.yaml", secret("e"))
    folder.write(".git/f.yaml", secret("f"))
    await folder.files.load()
    assert await folder.secrets() == {"a": K, "b": K, "c": K}
    assert folder.told == []
    made = await folder.cluster.get(kinds.SECRET, "default", "a")
    assert {entry["manager"] for entry in made["metadata"]["managedFields"]} == {"files"}


async def test_path_missing(tmp_path):
    missing = tmp_path / "nowhere.yaml"
    folder = Folder(tmp_path, [missing], LocalCluster())
    with pytest.raises(PathMissing, match=r"nowhere\.yaml: no such file or folder"):
        await folder.files.load()


@pytest.mark.parametrize(
    ("piped", "told"),
    [(secret("a").encode(), []), (b"\xff", ["stdin: cannot be read: it is not UTF-8 text"])],
)
async def test_stdin_is_one_of_the_files(folder, piped, told):
    (folder.root / "b.yaml").write_text(secret("b"))
    folder.files = Files(
        [Path("-"), folder.root],
        cluster=folder.cluster,
        parse=manifests.parse,
        report=folder._report,
        piped=piped,
    )
    async with folder.watched():
        folder.write("c.yaml", secret("c"))
        await folder.until({"b": K, "c": K} | ({} if told else {"a": K}))
    assert folder.told == told


async def test_empty_folder_is_reported(folder):
    await folder.files.load()
    assert folder.told == [f"{folder.root}: no manifests here (*.yaml, *.yml)"]


async def test_changes_are_applied(folder):
    folder.write("a.yaml", secret("a"))
    async with folder.watched():
        folder.write("a.yaml", secret("a", "l"))
        await folder.until({"a": L})
        folder.write("new/b.yaml", secret("b"))
        await folder.until({"a": L, "b": K})
        (folder.root / "a.yaml").unlink()
        await folder.until({"b": K})
        (folder.root / "new").rename(folder.root.with_name("elsewhere"))
        await folder.until({})
    assert folder.told == []


async def test_changes_between_load_and_watch_are_not_missed(folder):
    folder.write("a.yaml", secret("a"))
    await folder.files.load()
    folder.write("a.yaml", secret("a", "l"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(folder.files.watch)
        await folder.until({"a": L})
        tasks.cancel_scope.cancel()


async def test_a_single_file_is_watched_through_a_rename(tmp_path):
    """As editors write: the old file goes aside and another one takes its name."""
    path = tmp_path / "a.yaml"
    path.write_text(secret("a"))
    folder = Folder(tmp_path, [path], LocalCluster())
    async with folder.watched():
        since = (await folder.cluster.list(kinds.SECRET)).version
        folder.write("other.yaml", secret("other"))
        path.rename(tmp_path / "a.yaml~")
        folder.write("a.new", secret("a", "l"))
        os.replace(tmp_path / "a.new", path)
        await folder.until({"a": L})
        stream = folder.cluster.watch(kinds.SECRET, since=since)
        async with aclosing(stream):
            assert (await anext(stream)).type == "MODIFIED"


async def test_invalid_edit_is_reported_and_changes_nothing(folder):
    path = folder.write("a.yaml", secret("a"))
    async with folder.watched():
        folder.write("a.yaml", secret("a").replace("key: k", "key: [1]"))
        [told] = await folder.reported(1)
        assert told.startswith(f"{path}:4: Secret default/a: stringData.key: ")
        folder.replace("a.yaml", "{")
        told = (await folder.reported(2))[1]
        assert told.startswith(f"{path}:")
        assert await folder.secrets() == {"a": K}
        folder.replace("a.yaml", secret("a", "l"))
        await folder.until({"a": L})
        assert len(folder.told) == 2


async def test_object_in_two_files_is_reported(folder):
    first = folder.write("a.yaml", secret("a"))
    second = folder.write("b.yaml", secret("a", "l"))
    async with folder.watched():
        [told] = folder.told
        assert told.startswith(f"{second}: Secret default/a: is in {first} already")
        assert await folder.secrets() == {"a": K}
        first.unlink()
        await folder.until({"a": L})


async def test_file_that_is_not_utf8(folder):
    path = folder.write("a.yaml", secret("a"))
    (folder.root / "b.yaml").write_bytes(b"\xff\xfe\x00")
    await folder.files.load()
    assert folder.told == [f"{folder.root / 'b.yaml'}: cannot be read: it is not UTF-8 text"]
    assert await folder.secrets() == {"a": K}
    path.write_bytes(b"\xff")
    async with folder.watched():
        assert len(folder.told) == 2
        assert await folder.secrets() == {"a": K}


async def test_named_pipe_is_not_read(folder):
    folder.write("a.yaml", secret("a"))
    os.mkfifo(folder.root / "b.yaml")
    with hanging.guard():
        await folder.files.load()
    assert folder.told == [f"{folder.root / 'b.yaml'}: cannot be read: it is not a file"]
    assert await folder.secrets() == {"a": K}


async def test_rejected_apply_is_reported_and_retried(tmp_path):
    refused = [Invalid("not today")]

    class Grumpy(LocalCluster):
        async def apply(self, manifest, *, manager, force=True):
            if manifest["metadata"]["name"] == "a" and refused:
                raise refused.pop()
            return await super().apply(manifest, manager=manager, force=force)

    folder = Folder(tmp_path, [tmp_path], Grumpy())
    path = folder.write("a.yaml", secret("a") + "---\n" + secret("b"))
    async with folder.watched():
        assert folder.told == [f"{path}: Secret default/a: not today"]
        await folder.until({"a": K, "b": K})


async def test_watch_error_is_reported(tmp_path):
    root = tmp_path / "manifests"
    folder = Folder(root, [root / "a.yaml"], LocalCluster())
    folder.write("a.yaml", secret("a"))
    await folder.files.load()
    root.rename(tmp_path / "elsewhere")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(folder.files.watch)
        [told] = await folder.reported(1)
        assert told.startswith(f"{root}: changes are not followed any more: ")
        tasks.cancel_scope.cancel()
