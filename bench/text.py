"""Generated text like that of agents: prose, code, logs, JSON results. It is always the same.

It has to compress like real text, or sizes and times would be wrong. So words follow a Zipf-like distribution, each
word has its usual successors, and a text repeats the words of its topic, as in English. A log has few kinds of lines.
Numbers, times and ids do not repeat.
"""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path


def _words() -> dict[str, list[str]]:
    """The word lists by kind. Each is a paragraph of the file, with its kind as the heading."""
    text = Path(__file__).with_name("words.txt").read_text("utf-8")
    parts = (paragraph.split(":") for paragraph in text.split("\n\n"))
    return {kind: words.split() for kind, words in parts}


_EPOCH = datetime(2025, 1, 1)  # noqa: DTZ001 - printed with its zone
_LISTS = _words()
_COMMON = list(dict.fromkeys(_LISTS["common"]))
_NOUNS, _VERBS, _ADJECTIVES = _LISTS["nouns"], _LISTS["verbs"], _LISTS["adjectives"]


def _inflected(verb: str) -> tuple[str, ...]:
    stem = verb.removesuffix("e")
    third = verb + "es" if verb.endswith(("s", "x", "ch", "sh")) else verb + "s"
    return verb, third, stem + "ed", stem + "ing", stem + "er", "re" + stem + "ed"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def _vocabulary(rng: random.Random) -> list[str]:
    """Several thousand words, most frequent first: the short words of English, then the others in a fixed order."""
    rest: list[str] = []
    for noun in _NOUNS:
        rest += (noun, _plural(noun))
    for verb in _VERBS:
        rest += _inflected(verb)
    for adjective in _ADJECTIVES:
        rest += (adjective, adjective + ("ally" if adjective.endswith("ic") else "ly"))
    rest += (f"{a}-{b}" for a, b in zip(rng.sample(_NOUNS, 400), rng.sample(_NOUNS, 400), strict=True))
    known = set(_COMMON)
    rest = [word for word in dict.fromkeys(rest) if word not in known]
    rng.shuffle(rest)
    return _COMMON + rest


class Writer:
    """Generates text of about a given length. Two writers with the same seed generate the same text."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        fixed = random.Random(20)
        self._words = _vocabulary(fixed)
        # Zipf with Mandelbrot's shift, so that the first few words do not dominate.
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(1, len(self._words) + 1)))
        self._successors = {word: fixed.choices(self._words, cum_weights=self._weights, k=12) for word in self._words}
        self._favourite = list(accumulate(1 / rank for rank in range(1, 13)))
        self._content = self._words[len(_COMMON) :]
        self._topic: list[str] = []
        self.turn()

    def turn(self) -> None:
        """Change the topic."""
        self._topic = self._rng.sample(self._content, 40)

    def hex(self, length: int) -> str:
        return f"{self._rng.getrandbits(4 * length):0{length}x}"

    def number(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)

    def sentence(self) -> str:
        rng = self._rng
        count = rng.randint(6, 22)
        fresh = rng.choices(self._words, cum_weights=self._weights, k=count)
        word = fresh[0]
        words = [word.capitalize()]
        for other in fresh[1:]:
            chance = rng.random()
            if chance < 0.4:
                word = rng.choices(self._successors[word], cum_weights=self._favourite)[0]
            elif chance < 0.65:
                word = rng.choice(self._topic)
            else:
                word = other
            words.append(word + "," if rng.random() < 0.06 else word)
        return " ".join(words).rstrip(",") + rng.choice("....?:")

    def prose(self, length: int) -> str:
        parts: list[str] = []
        size = 0
        while size < length:
            sentence = self.sentence()
            size += len(sentence) + 1
            parts.append(sentence + ("\n\n" if self._rng.random() < 0.2 else " "))
        return "".join(parts).rstrip()

    def identifier(self) -> str:
        rng = self._rng
        return "_".join(rng.choice((_NOUNS, _VERBS, _NOUNS, _ADJECTIVES)[i % 4]) for i in range(rng.randint(1, 3)))

    def code(self, length: int) -> str:
        """Functions of one file, which call each other."""
        rng = self._rng
        known = [self.identifier() for _ in range(14)]
        blocks: list[str] = []
        size = 0
        while size < length:
            made, given, option, held = (rng.choice(known) for _ in range(4))
            body = rng.choice(
                (
                    f"    for {option} in {held}:\n        {rng.choice(known)}({option}, {given})",
                    f"    if {option} is None:\n        raise ValueError({self.sentence()!r})",
                    f"    with {rng.choice(known)}({given}) as {option}:\n        {option}.{rng.choice(known)}()",
                )
            )
            block = (
                f'def {made}({given}, {option}=None):\n    """{self.sentence()}"""\n'
                f"    {held} = {given}.{rng.choice(known)}({rng.randint(0, 400)})\n{body}\n"
                f"    return {held}[{option!r}]\n"
            )
            size += len(block) + 1
            blocks.append(block)
        return "\n".join(blocks)

    def records(self, length: int) -> str:
        """A JSON result like that of a search or a query."""
        rng = self._rng
        folders, owners = [self.identifier() for _ in range(3)], [f"user-{self.hex(4)}" for _ in range(4)]
        rows: list[dict[str, object]] = []
        size = 0
        while size < length:
            name = self.identifier()
            row: dict[str, object] = {
                "id": self.hex(12),
                "kind": rng.choice(("file", "issue", "page")),
                "name": name,
                "path": f"src/{rng.choice(folders)}/{name}.py",
                "line": rng.randint(1, 900),
                "owner": rng.choice(owners),
                "status": rng.choice(("open", "closed", "merged")),
                "score": round(rng.random(), 4),
                "updated_at": self.moment(),
                "summary": self.sentence(),
            }
            size += len(json.dumps(row))
            rows.append(row)
        return json.dumps({"total": rng.randint(len(rows), 900), "results": rows})

    def log(self, length: int) -> str:
        rng = self._rng
        kinds = [(f"{self.identifier()}.py:{rng.randint(10, 900)}", self.sentence()) for _ in range(8)]
        lines: list[str] = []
        size = 0
        while size < length:
            level = rng.choices(("INFO", "DEBUG", "WARNING", "ERROR"), (60, 25, 10, 5))[0]
            place, what = rng.choice(kinds)
            lines.append(f"{self.moment()} {level:7} {place} {what} id={self.hex(8)} ({rng.random() * 900:.1f} ms)")
            size += len(lines[-1]) + 1
        return "\n".join(lines)

    def moment(self) -> str:
        rng = self._rng
        return (_EPOCH + timedelta(seconds=rng.randrange(31_000_000))).isoformat() + "Z"

    def reply(self, length: int) -> str:
        """A reply of a model: prose, half of the time with some code."""
        if self._rng.random() < 0.5:
            return self.prose(length)
        return f"{self.prose(length // 2)}\n\n```python\n{self.code(length // 2)}```"

    def output(self, length: int) -> str:
        """A result of a tool."""
        ways = (self.code, self.records, self.log, self.prose)
        return self._rng.choices(ways, (3, 3, 2, 2))[0](length)
