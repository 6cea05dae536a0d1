"""What a request asks for, by method and path."""

import pytest

from hearth.proxy.errors import Dialect, ErrorCode, GatewayError
from hearth.proxy.routing import api_paths
from hearth.proxy.routing.api_paths import Inference, Models, PassThrough


@pytest.mark.parametrize("path", api_paths.INFERENCE)
def test_inference_routes_take_only_post(path):
    assert isinstance(api_paths.read("POST", path), Inference)
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        with pytest.raises(GatewayError) as caught:
            api_paths.read(method, path)
        assert caught.value.headers()["Allow"] == "POST"


def test_four_routes_stream():
    streams = {path for path, asked in api_paths.INFERENCE.items() if asked.streams}
    names = ("chat/completions", "completions", "responses", "messages")
    assert streams == {f"/v1/{name}" for name in names}


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("GET", "/v1/models", Models()),
        ("HEAD", "/v1/models", Models()),
        ("GET", "/v1/models/", Models()),
        ("GET", "/v1/models/chat", Models("chat")),
        ("GET", "/v1/models/ai/chat", Models("ai/chat")),
        ("GET", "/v1/models/ai%2Fchat", Models("ai/chat")),
        ("GET", "/v1/responses/resp_1", PassThrough()),
        ("DELETE", "/v1/responses/resp_1", PassThrough()),
        ("POST", "/v1/responses/resp_1/cancel", PassThrough()),
        ("POST", "/v1/load_lora_adapter", PassThrough()),
    ],
)
def test_read(method, path, asked):
    assert api_paths.read(method, path) == asked


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/v1/models", ErrorCode.METHOD_NOT_ALLOWED),
        ("PUT", "/v1/responses/resp_1", ErrorCode.METHOD_NOT_ALLOWED),
        ("GET", "/", ErrorCode.UNKNOWN_URL),
        ("GET", "/metrics", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1/", ErrorCode.UNKNOWN_URL),
        ("GET", "//", ErrorCode.UNKNOWN_URL),
        ("POST", "/v1/files/", ErrorCode.UNKNOWN_URL),
        ("POST", "/v1//files", ErrorCode.UNKNOWN_URL),
        ("POST", "/v1/v1/files", ErrorCode.UNKNOWN_URL),
        ("POST", "/v1/./chat/completions", ErrorCode.UNKNOWN_URL),
        ("POST", "/v1/x/../chat/completions", ErrorCode.UNKNOWN_URL),
        ("POST", "/v1%2Fchat/completions", ErrorCode.UNKNOWN_URL),
        ("POST", "//v1/%63hat/completions", ErrorCode.UNKNOWN_URL),
        ("POST", "/V1/chat/completions", ErrorCode.UNKNOWN_URL),
        ("POST", "/v2/v2/rerank", ErrorCode.UNKNOWN_URL),
        ("POST", "/health", ErrorCode.UNKNOWN_URL),
        ("POST", "/sleep", ErrorCode.UNKNOWN_URL),
        ("POST", "/collective_rpc", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1/../metrics", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1/x/..", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1/./x", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1/%2e%2e/metrics", ErrorCode.UNKNOWN_URL),
        ("GET", "/v1/x\\y", ErrorCode.UNKNOWN_URL),
    ],
)
def test_refused(method, path, code):
    with pytest.raises(GatewayError) as caught:
        api_paths.read(method, path)
    assert caught.value.code is code


@pytest.mark.parametrize("path", ["/chat/completions", "//chat/completions"])
def test_a_wrong_base_url_is_told_the_right_one(path):
    with pytest.raises(GatewayError, match=r"Did you mean /v1/chat/completions\?"):
        api_paths.read("POST", path)


def test_a_long_path_is_not_repeated():
    with pytest.raises(GatewayError) as caught:
        api_paths.read("GET", "/" + "x" * 9000)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("//v1/chat/completions", "/v1/chat/completions"),
        ("/v1//chat///completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("//v1//v1/v1/chat/completions//", "/v1/chat/completions"),
        ("//rerank", "/rerank"),
        ("/v1//models", "/v1/models"),
        ("/v1/v1/models/", "/v1/models"),
    ],
)
def test_field_case_126_a_slash_too_much_or_v1_twice_is_the_path_it_can_only_mean(path, meant):
    assert api_paths.canonical(path) == meant
    method = "GET" if meant.endswith("models") else "POST"
    assert api_paths.read(method, path) == api_paths.read(method, meant)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/v1/responses", Dialect.RESPONSES),
        ("/v1/responses/", Dialect.RESPONSES),
        ("//v1/messages", Dialect.MESSAGES),
        ("/v1//messages/count_tokens", Dialect.MESSAGES),
        ("/v1//chat/completions", Dialect.COMPLETIONS),
    ],
)
def test_field_case_126_errors_there_are_those_of_the_path_that_is_meant(path, dialect):
    assert api_paths.dialect(path) is dialect


@pytest.mark.parametrize(
    "path", ["/v1/files/", "//metrics", "/v1/v1/responses/r1", "/v1/models//x", "/v1/../v1/x/", ""]
)
def test_what_is_not_on_the_list_is_left_as_it_is(path):
    assert api_paths.canonical(path) == path


@pytest.mark.parametrize(
    "path",
    ["/tokenize", "/detokenize", "/score", "/rerank", "/v2/rerank", "/v2/embed", "/pooling",
     "/classify", "/generative_scoring", "/invocations"],
)  # fmt: skip
def test_field_case_111_an_engines_own_routes_are_inference(path):
    assert api_paths.read("POST", path) == Inference()
    with pytest.raises(GatewayError) as caught:
        api_paths.read("GET", path)
    assert caught.value.code is ErrorCode.METHOD_NOT_ALLOWED


def test_a_route_of_an_engine_below_v1_is_told_where_it_is():
    with pytest.raises(GatewayError, match=r"Did you mean /v2/rerank\?$"):
        api_paths.read("POST", "/v1/v2/rerank/")


def test_a_path_that_names_no_model_is_told_the_host_that_does():
    found = api_paths.names_no_model("GET", "/v1/files/" + "x" * 300, host="<name>.ai.svc")
    assert found.code is ErrorCode.UNKNOWN_URL
    assert "<name>.ai.svc" in found.message and len(found.message) < 400
