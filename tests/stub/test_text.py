"""The same words for the same prompt."""
# ruff: noqa: RUF001

import pytest

from hearth.stub import text


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("", []),
        ("Hello, big world!", ["Hello", ",", " big", " world", "!"]),
        ("你好！a你", ["你", "好", "！", "a", "你"]),
        ("a\n\nb", ["a", "\n\n", "b"]),
        (" ☀️", [" ☀", "️"]),
        ("안녕 친구", ["안", "녕", " 친", "구"]),
    ],
)
def test_split_loses_nothing(words, tokens):
    assert text.split(words) == tokens
    assert "".join(tokens) == words


@pytest.mark.parametrize(
    ("prompt", "start", "quote"),
    [
        ("hi  there", "Hello! I was asleep a moment ago", "You said: “hi there”. "),
        ("你好吗", "你好！我刚才还在睡觉", "你问的是：「你好吗」。"),
        ("元気ですか", "こんにちは！", "「元気ですか」と聞かれましたね。"),
        ("x" * 100, "Hello!", f"“{'x' * 60}…”"),
    ],
)
def test_it_answers_in_the_script_of_the_prompt(prompt, start, quote):
    said = "".join(text.say(prompt))
    assert said.startswith(start)
    assert quote in said
    assert text.say(prompt) == text.say(prompt)


def test_an_empty_prompt_is_not_quoted():
    assert "{quote}" not in "".join(text.say(""))


def test_tokens_are_counted_and_told_over_and_over():
    assert text.say("", tokens=0) == []
    assert text.say("", tokens=5, text="one two") == ["one", " two", "\n\n", "one", " two"]
    assert len(text.say("hi", tokens=1000)) == 1000
