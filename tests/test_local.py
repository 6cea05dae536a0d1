"""What `hearth local` cannot do is one line; tests/lifecycle has the rest, as a person runs it."""

import socket

import aiohttp
import pytest

from hearth import local
from hearth.app import App, CannotStart
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.kubelet import orphans
from hearth.host_port import authority
from hearth.proxy.routing.hosts import HostTable
from hearth.settings import LocalSettings


def settings(folder, **fields):
    free = {"gateway_port": 0, "admin_port": 0, "scaler_port": 0}
    mine = {"files": (folder,), "state_dir": folder / "state"}
    return LocalSettings(**(free | mine | fields))


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(CannotStart, match=r"nowhere\.yaml: no such file or folder"):
        local.run(settings(tmp_path, files=(tmp_path / "nowhere.yaml",)))


def test_a_command_that_is_not_closed(tmp_path):
    with pytest.raises(CannotStart, match="the command of image 'engine' is not closed"):
        local.run(settings(tmp_path, images={"engine": "serve 'me"}))


def test_a_state_folder_in_use(tmp_path):
    state = tmp_path / "state"
    with orphans.hold(state), pytest.raises(CannotStart, match="is in use by another hearth"):
        local.run(settings(tmp_path))


def test_a_state_folder_that_cannot_be(tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(CannotStart, match="choose another one with --state-dir"):
        local.run(settings(tmp_path))


def test_field_case_101_the_names_that_need_no_setting():
    names = local.own_hosts("Laptop.corp.example")
    assert {"laptop", "laptop.corp.example", ".localhost"} <= set(names)
    assert {"host.docker.internal", "host.containers.internal"} <= set(names)
    # None of them may be a name that public DNS can lead here.
    table = HostTable(own_hosts=names)
    fixed = [name for name in names if name.startswith(".") or name.endswith(".internal")]
    assert all(HostTable().owns(f"x{name}" if name[0] == "." else name) for name in fixed)
    assert table.owns("laptop") and not table.owns("page.example")


async def test_field_case_101_containers_and_this_machine_reach_it(tmp_path):
    app = App(LocalCluster(), settings(tmp_path), own_hosts=local.own_hosts(socket.gethostname()))
    app.routes.complete = True
    hosts = (
        "host.docker.internal",
        "host.containers.internal",
        "a.localhost",
        socket.gethostname(),
    )
    async with app.listen() as bound, aiohttp.ClientSession() as session:
        for host, status in (*((host, 200) for host in hosts), ("page.example", 404)):
            url = f"http://{authority(*bound.gateway)}/v1/models"
            async with session.get(url, headers={"Host": f"{host}:8080"}) as response:
                assert response.status == status, host
