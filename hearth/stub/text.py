"""What the stub says: the same words for the same prompt, in the prompt's script."""
# ruff: noqa: RUF001 - Chinese and Japanese have their own punctuation

import itertools
import re

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_PIECE = re.compile(rf" ?[^\W{_CJK}]+|\s?.|\s", re.DOTALL)
_KANA = re.compile("[\u3040-\u30ff]")
_HAN = re.compile("[\u3400-\u9fff]")
_QUOTED = 60

_ENGLISH = (
    "Hello! I was asleep a moment ago, and your request woke me up. {quote}"
    "I am a stub: I have no weights and no opinions, but I load, stream, fail and fall asleep "
    "like a real engine. When nobody asks for a while I go back to sleep, and the accelerator "
    "I would be using is free for somebody else. Ask again whenever you like — I wake up "
    "quickly ☀️"
)
_CHINESE = (
    "你好！我刚才还在睡觉，是你的请求把我叫醒了。{quote}"
    "我只是一个替身：没有权重，也没有观点，但我像真正的推理引擎一样加载、逐字输出、出错和休眠。"
    "如果一段时间没有人提问，我就会重新入睡，把加速卡留给别人。随时再来找我吧 ☀️"
)
_JAPANESE = (
    "こんにちは！さっきまで眠っていましたが、あなたのリクエストで目が覚めました。{quote}"
    "私は代役です。重みはありませんが、本物のエンジンのように読み込み、一文字ずつ答え、そして眠ります。"
    "しばらく呼ばれなければまた眠り、アクセラレータを他の人に譲ります。いつでもどうぞ ☀️"
)


def split(text: str) -> list[str]:
    """Tokens as a tokenizer might cut them: words with the space before, CJK by character."""
    return _PIECE.findall(text)


def say(prompt: str, *, tokens: int | None = None, text: str | None = None) -> list[str]:
    """The tokens of an answer: all of it, or exactly `tokens` of them, told over and over.

    `text` replaces the stub's own words.
    """
    pieces = split(text if text else _answer(prompt))
    if tokens is None:
        return pieces
    return list(itertools.islice(itertools.cycle([*pieces, "\n\n"]), tokens))


def _answer(prompt: str) -> str:
    shown = " ".join(prompt.split())
    if len(shown) > _QUOTED:
        shown = f"{shown[:_QUOTED].rstrip()}…"
    if _KANA.search(prompt):
        return _JAPANESE.replace("{quote}", f"「{shown}」と聞かれましたね。" if shown else "")
    if _HAN.search(prompt):
        return _CHINESE.replace("{quote}", f"你问的是：「{shown}」。" if shown else "")
    return _ENGLISH.replace("{quote}", f"You said: “{shown}”. " if shown else "")
