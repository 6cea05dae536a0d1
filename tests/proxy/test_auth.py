"""Is this request allowed to use this service."""

import pytest
from multidict import CIMultiDict

from hearth.api.meta import ServiceKey
from hearth.proxy import auth
from hearth.proxy.answers import Code, Problem
from hearth.proxy.keys import Keys
from hearth.routes import KeyRef, Route

OPEN = Route(key=ServiceKey("ai", "chat"), uid="u", created=1, phase="Ready")
LOCKED = Route(
    key=ServiceKey("ai", "chat"),
    uid="u",
    created=1,
    phase="Ready",
    authentication=KeyRef(secret="s", key="k"),
)


async def read(namespace: str, name: str):
    return {"k": b"sesame"} if (namespace, name) == ("ai", "s") else None


@pytest.mark.parametrize(
    ("headers", "anthropic", "key"),
    [
        ({"Authorization": "Bearer sesame"}, False, "sesame"),
        ({"authorization": "bearer  sesame "}, False, "sesame"),
        ({"Authorization": "Bearer"}, False, None),
        ({"Authorization": "Bearer "}, False, None),
        ({"Authorization": "Basic sesame"}, False, None),
        ({"Authorization": "sesame"}, False, None),
        ({}, False, None),
        ({"x-api-key": "sesame"}, False, None),
        ({"X-Api-Key": " sesame"}, True, "sesame"),
        ({"x-api-key": ""}, True, None),
        ({"Authorization": "Bearer a", "x-api-key": "b"}, True, "a"),
    ],
)
def test_offered(headers, anthropic, key):
    assert auth.offered(CIMultiDict(headers), anthropic=anthropic) == key


async def test_an_open_service_wants_no_key():
    await auth.check(OPEN, None, Keys(read))
    assert await auth.listed(OPEN, None, Keys(read))


async def test_the_key_opens():
    await auth.check(LOCKED, "sesame", Keys(read))
    assert await auth.listed(LOCKED, "sesame", Keys(read))


@pytest.mark.parametrize("key", [None, "wrong", "sesam", "sesame1", "SESAME"])
async def test_no_other_key_does(key):
    with pytest.raises(Problem) as caught:
        await auth.check(LOCKED, key, Keys(read))
    assert caught.value.code is Code.INVALID_API_KEY
    assert not await auth.listed(LOCKED, key, Keys(read))


async def test_an_unreadable_key_hides_the_service_from_listings():
    async def nothing(_namespace: str, _name: str):
        return None

    assert not await auth.listed(LOCKED, "sesame", Keys(nothing))
