"""The command line and what one request may change of it."""

from pathlib import Path

import pytest

from hearth.stub import faults, options
from hearth.stub.options import Options, Play


def parse(*argv, **environ):
    return options.parse(argv, environ)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Options()),
        (["/models/qwen"], Options(models=("/models/qwen",))),
        (["--model", "m"], Options(models=("m",))),
        (["m", "--served-model-name", "a", "b"], Options(models=("a", "b"))),
        (["--host=0.0.0.0", "--port=0"], Options(host="0.0.0.0", port=0)),
        (["--api-key", "k"], Options(api_key="k")),
        (["--load-time", "1500ms", "--listen-late"], Options(load_s=1.5, listen_late=True)),
        (["--never-ready"], Options(never_ready=True)),
        (["--ready-file", "r"], Options(ready_file=Path("r"))),
        (
            ["--crash-at-start", "137", "--crash-until", "f"],
            Options(crash_at_start=137, crash_until=Path("f")),
        ),
        (
            ["--tokens=3", "--token-interval=5ms", "--time-to-first-token=1m", "--text=x"],
            Options(play=Play(tokens=3, token_interval_s=0.005, first_token_s=60, text="x")),
        ),
        (
            ["--fault=reset:2", "--crash-code=9"],
            Options(play=Play(fault=faults.read("reset:2")), crash_code=9),
        ),
        (
            ["--max-concurrent=4", "--max-num-seqs=2", "--record=f", "--drain=3"],
            Options(max_concurrent=4, max_num_seqs=2, record=Path("f"), drain_s=3),
        ),
        (
            ["--ignore-unknown", "m", "--tensor-parallel-size=2", "--enable-prefix-caching"],
            Options(models=("m",)),
        ),
    ],
)
def test_parse(argv, expected):
    assert parse(*argv) == expected


def test_a_pod_listens_on_its_own_address():
    assert parse(POD_IP="10.1.2.3").host == "10.1.2.3"
    assert parse("--host", "::", POD_IP="10.1.2.3").host == "::"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--load-time", "soon"], "'soon' is not a duration; write for example 2s"),
        (["--tokens", "-1"], "'-1' is not a whole number >= 0"),
        (["--max-concurrent", "0"], "'0' is not a whole number >= 1"),
        (["--fault", "explode"], "'explode' is not a fault"),
        (["--tensor-parallel-size=2"], "unrecognized arguments: --tensor-parallel-size=2"),
    ],
)
def test_a_mistake_is_one_message(argv, message, capsys):
    with pytest.raises(SystemExit) as left:
        parse(*argv)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_help_tells_each_fault(capsys):
    with pytest.raises(SystemExit):
        parse("--help")
    shown = capsys.readouterr().out
    assert all(f"    {kind}" in shown for kind in faults.Kind)


PLAY = Play(tokens=9, fault=faults.read("hang"))


@pytest.mark.parametrize(
    ("header", "field", "expected"),
    [
        (None, None, PLAY),
        ("crash:1", None, Play(tokens=9, fault=faults.read("crash:1"))),
        (None, {"tokens": 2, "text": "x"}, Play(tokens=2, text="x", fault=PLAY.fault)),
        (
            None,
            {"token_interval": "5ms", "first_token": 2},
            Play(tokens=9, token_interval_s=0.005, first_token_s=2, fault=PLAY.fault),
        ),
        ("end", {"fault": "crash"}, Play(tokens=9, fault=faults.read("end"))),
    ],
)
def test_one_request_changes_its_own_answer(header, field, expected):
    assert options.play_for(PLAY, header=header, field=field) == expected


@pytest.mark.parametrize(
    ("header", "field", "message"),
    [
        ("explode", None, "not a fault"),
        (None, {"fault": "explode"}, "not a fault"),
        (None, {"tokens": "many"}, "tokens = 'many' is not understood"),
        (None, {"token_interval": "soon"}, "not a duration"),
        (None, {"colour": "red"}, "colour = 'red' is not understood"),
        (None, [], '"stub" is an object'),
    ],
)
def test_a_request_that_asks_wrongly_is_told(header, field, message):
    with pytest.raises(options.BadRequest, match=message):
        options.play_for(PLAY, header=header, field=field)
