import pytest

from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KindMissing,
    NotFound,
    Terminating,
    Unavailable,
)
from hearth.cluster.kube import api_errors
from tests.cluster.scripted import status

UNDECLARED = (
    "failed to create typed patch object (ai/chat; apps/v1, Kind=Deployment):"
    " .spec.foo: field not declared in schema"
)
UID: Manifest = {"causes": [{"field": "metadata.uid", "message": "field is immutable"}]}
GOES: Manifest = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
MORE: Manifest = {"causes": [{"field": "metadata.uid"}, {"field": "spec.selector"}]}
FUTURE: Manifest = {"causes": [{"reason": "ResourceVersionTooLarge"}]}


@pytest.mark.parametrize(
    ("told", "error", "passes"),
    [
        (status(400, "BadRequest"), Invalid, False),
        (status(401, "Unauthorized"), Unavailable, False),
        (status(403, "Forbidden"), Forbidden, False),
        (status(403, "Forbidden", "exceeded quota: gpus"), Forbidden, False),
        (status(403, "Forbidden", "unable to create: namespace is being terminated"), Forbidden,
         False),
        (status(403, "Forbidden", "x because it is being terminated"), Terminating, False),
        (status(403, "Forbidden", "unable to create", **GOES), Terminating, False),
        (status(403, "Forbidden", 'admission webhook "x" denied the request'), Forbidden, False),
        (status(404, "NotFound", name="chat"), NotFound, False),
        (status(404, "NotFound"), KindMissing, False),
        (status(405, "MethodNotAllowed", "definition is terminating"), Unavailable, False),
        (status(409, "AlreadyExists"), AlreadyExists, False),
        (status(409, "Conflict"), Conflict, False),
        (status(410, "Expired"), Expired, False),
        (status(410), Expired, False),
        (status(500, "Expired"), Expired, False),
        (status(500, "InternalError", "etcd event received with PrevKv=nil"), Expired, False),
        (status(504, "Timeout", "Too large resource version", **FUTURE), Expired, False),
        (status(413, "RequestEntityTooLarge"), Invalid, False),
        (status(415, "UnsupportedMediaType"), Invalid, False),
        (status(422, "Invalid"), Invalid, False),
        (status(422, "Invalid", **UID), Conflict, False),
        (status(422, "Invalid", **MORE), Invalid, False),
        (status(429, "TooManyRequests"), Unavailable, True),
        (status(500, message=UNDECLARED), Invalid, False),
        (status(500, "InternalError", "nil pointer"), Unavailable, False),
        (status(500, message="etcdserver: leader changed"), Unavailable, True),
        (status(500, "ServerTimeout", "slow", retryAfterSeconds=1), Unavailable, True),
        (status(500, message='failed calling webhook "x"'), Unavailable, True),
        (status(502), Unavailable, True),
        (status(503, "ServiceUnavailable"), Unavailable, True),
        (status(504, "Timeout"), Unavailable, True),
        (status(302), Unavailable, False),
    ],
)  # fmt: skip
def test_each_status_code_maps_to_one_error(told, error, passes):
    found = api_errors.of_status(told["code"], told, kind=kinds.POD)
    assert type(found) is error
    assert api_errors.passes(told["code"], found) is passes


def test_error_message_is_the_servers():
    body = b'{"kind":"Status","code":403,"message":"pods is forbidden","reason":"Forbidden"}'
    assert str(api_errors.error(403, body, kind=kinds.POD)) == "pods is forbidden"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b"<html>\n<h1>Service   down</h1>",
            "the server answered 503: <html> <h1>Service down</h1>",
        ),
        (b"", "the server answered 503"),
        (b"[1]", "the server answered 503: [1]"),
        (b"x" * 900, "the server answered 503: " + "x" * 200),
        (b"\xff\xfe", "the server answered 503: \ufffd\ufffd"),
    ],
)
def test_error_quotes_a_body_that_is_no_status(body, message):
    assert str(api_errors.error(503, body, kind=kinds.POD)) == message


def test_kind_missing_names_the_kind():
    error = api_errors.error(404, b"404 page not found\n", kind=kinds.SCALED_OBJECT)
    assert type(error) is KindMissing
    assert str(error) == "the cluster does not serve scaledobjects.keda.sh"


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("", {}, None),
        ("3", {}, 3.0),
        ("", {"retryAfterSeconds": 7}, 7.0),
        ("3", {"retryAfterSeconds": 7}, 7.0),
        ("9", {"retryAfterSeconds": 7}, 9.0),
        ("Fri, 01 Jan 2027 00:00:00 GMT", {}, None),
        ("", {"retryAfterSeconds": 0}, None),
        ("", {"retryAfterSeconds": "soon"}, None),
    ],
)
def test_retry_after_is_the_longer_of_header_and_body(header, details, seconds):
    found = api_errors.of_status(429, {"details": details}, kind=kinds.POD, retry_after=header)
    assert isinstance(found, Unavailable)
    assert found.retry_after_s == seconds
