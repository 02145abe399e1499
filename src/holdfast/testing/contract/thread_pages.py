"""Listings of threads in the order of their names' bytes, with ordinary and hostile names."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidArgument
from holdfast.stores.contract import NumberedThread, Store
from holdfast.testing.contract.build import commit, names_of, numbers_of, saved, summary, texts_of
from holdfast.testing.contract.fixtures import ContractBase
from holdfast.threads.scan import thread_named

HOSTILE = [
    "a" * 10_000,
    "a" * 9_999 + "b",
    "a\0",
    "a\0b",
    "\0",
    "a",
    "A",
    "a ",
    " a",
    "a\n",
    "a\r\n",
    "../a",
    "../../etc/passwd",
    "/a",
    "a/",
    "a/./b",
    "a\\b",
    ".",
    "..",
    "CON",
    "con",
    "nul.txt",
    "NUL.txt",
    "-rf",
    "~",
    "*",
    "?",
    "%",
    "_",
    "%00",
    "'; DROP TABLE threads; --",
    '"; DROP TABLE threads; --',
    "$(touch x)",
    "{0}",
    "%s",
    "\u202eevil\u202c",
    "evil",
    "\u200b",
    "\ufeffa",
    "\u00e9",
    "e\u0301",
    "\u00c9",
    "\u212b",
    "\u00c5",
    "\u0131",
    "i",
    "\u0130",
    "\u00df",
    "ss",
    "\ufb01",
    "fi",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f468",
    "\U0010ffff",
    "\uffff",
    "1",
    "01",
    "1.0",
    "0x1",
    "null",
    "None",
    "true",
]


def in_order(names: list[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode())


LATEST = (1 << 63) - 1
SEARCHED = [
    *HOSTILE,
    "Straße 7",
    "STRASSE 8",
    "\u212aelvin-7",
    "kelvin_7",
    "7%",
    "7\\",
    "\u0149-7",
    "日本-7",
    "\ufb06-7",
    "x7\0y",
]


class ListingContract(ContractBase):
    def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        assert names_of(store) == []
        assert numbers_of(store) == []

    def test_a_listing_shows_the_current_threads(self, store: Store) -> None:
        lines = [saved(store, name, "x", "y") for name in ("b", "c", "a")]
        lines[0].rewind(1)
        store.delete(lines[1].number, [1])
        listed = store.threads(prefix="", after=None, limit=10)
        assert listed == [thread_named(store, name) for name in ("a", "b", "c")]
        assert [row.count for row in listed] == [2, 2, 1]
        assert sorted(numbers_of(store)) == sorted(line.number for line in lines)

    def test_pages_of_threads_by_number(self, store: Store) -> None:
        lines = [saved(store, name, *"x" * last) for name, last in (("b", 2), ("c", 1), ("a", 3))]
        lines[2].rewind(1)
        ordered = sorted(lines, key=lambda line: line.number)
        found = store.numbered(after=None, limit=10)
        assert found == [NumberedThread(line.number, line.name, line.at.last) for line in ordered]
        one, two, three = (line.number for line in ordered)
        assert numbers_of(store, after=0) == numbers_of(store, after=-1) == [one, two, three]
        assert numbers_of(store, limit=0) == numbers_of(store, after=three) == numbers_of(store, after=1 << 70) == []
        assert numbers_of(store, limit=2) == [one, two]
        assert numbers_of(store, after=two, limit=2) == [three]
        for number in (one, two, three):
            assert numbers_of(store, after=number - 1, limit=1) == [number]

    def test_pages_of_threads(self, store: Store) -> None:
        for n in reversed(range(7)):
            saved(store, f"t{n}", "x")
        assert names_of(store, limit=0) == []
        assert names_of(store, limit=3) == ["t0", "t1", "t2"]
        assert names_of(store, after="t2", limit=3) == ["t3", "t4", "t5"]
        assert names_of(store, after="t5", limit=3) == ["t6"]
        assert names_of(store, after="t6", limit=3) == []

    def test_a_page_may_start_after_a_missing_name(self, store: Store) -> None:
        for name in ("a", "c"):
            saved(store, name, "x")
        assert names_of(store, after="") == ["a", "c"]
        assert names_of(store, after="b") == ["c"]
        assert names_of(store, after="c") == []

    def test_threads_by_prefix(self, store: Store) -> None:
        names = [
            "a",
            "ab",
            "abc",
            "abd",
            "aB",
            "b",
            "a%",
            "a%b",
            "a_",
            "a_b",
            "a\\",
            "a\U0010ffff",
            "a\U0010ffffz",
            "aé",
        ]
        for name in names:
            saved(store, name, "x")
        for prefix in ["", "a", "ab", "aB", "a%", "a_", "a\\", "a\U0010ffff", "aé", "c", "abcd", "%", "_", "A"]:
            expected = in_order([name for name in names if name.startswith(prefix)])
            assert names_of(store, prefix=prefix) == expected
            assert names_of(store, prefix=prefix, limit=2) == expected[:2]
            for after in [*names, "0", "zz"]:
                assert names_of(store, prefix=prefix, after=after) == [
                    name for name in expected if name.encode() > after.encode()
                ]

    def test_threads_by_a_part_of_their_names(self, store: Store) -> None:
        for name in SEARCHED:
            saved(store, name, "x")
        texts = [
            "a",
            "A",
            "7",
            "-7",
            "%",
            "_",
            "\\",
            "%0",
            "\0",
            "7\0Y",
            "ss",
            "SS",
            "\u00df",
            "k",
            "\u212a",
            "\u00e9",
            "\u00c9",
        ]
        for text in [
            *texts,
            "n-7",
            "st-7",
            "日本",
            "本-",
            "\u0130",
            "i",
            "fi",
            "DROP TABLE",
            "a" * 9_999,
            "nowhere",
            "\ud800",
        ]:
            expected = in_order([name for name in SEARCHED if text.casefold() in name.casefold()])
            assert names_of(store, contains=text) == expected
            assert names_of(store, contains=text, limit=2) == expected[:2]
            assert names_of(store, contains=text, prefix="a") == [name for name in expected if name.startswith("a")]
            assert sorted(names_of(store, contains=text, newest=LATEST)) == sorted(expected)
            if expected:
                assert names_of(store, contains=text, after=expected[0]) == expected[1:]

    def test_the_newest_threads_first(self, store: Store) -> None:
        times = {"a": 5, "c": 9, "b": 9, "dé": 1, "e": 7, "ab": 5, "f": 0}
        lines = {name: saved(store, name) for name in times}
        for name, time in times.items():
            lines[name].save("x", shows=summary(updated_at=time))
        newest = ["b", "c", "e", "a", "ab", "dé", "f"]
        assert names_of(store, newest=LATEST) == newest
        assert names_of(store, newest=LATEST, limit=0) == []
        assert names_of(store, newest=LATEST, prefix="a") == ["a", "ab"]
        assert names_of(store, newest=LATEST, contains="B") == ["b", "ab"]
        assert names_of(store, newest=LATEST, contains="É") == ["dé"]
        assert names_of(store, newest=7) == newest[2:]
        assert names_of(store, newest=8, after="z") == newest[2:]
        assert names_of(store, newest=-1) == []
        for limit in (1, 2, 3):
            paged: list[str] = []
            at: tuple[int, str | None] = (LATEST, None)
            while page := store.threads(prefix="", after=at[1], limit=limit, newest=at[0]):
                paged += [thread.name for thread in page]
                at = page[-1].summary.updated_at, page[-1].name
            assert paged == newest
        lines["f"].save("x", shows=summary(updated_at=10))
        store.drop(lines["c"].number)
        assert names_of(store, newest=LATEST) == ["f", "b", "e", "a", "ab", "dé"]

    def test_names_are_ordered_by_their_utf_8_bytes(self, store: Store) -> None:
        # Orders by UTF-16, by locale or without case would each differ here.
        names = ["Z", "a", "z", "Ä", "ä", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "a\0", "a!"]
        for name in reversed(names):
            saved(store, name, "x")
        assert names_of(store) == in_order(names)

    def test_hostile_names_are_distinct_threads(self, store: Store) -> None:
        lines = {name: saved(store, name, f"cell-{at}") for at, name in enumerate(HOSTILE)}
        assert len({line.number for line in lines.values()}) == len(HOSTILE)
        assert names_of(store) == in_order(HOSTILE)
        for at, (name, line) in enumerate(lines.items()):
            stored = line.stored()
            assert (stored.name, stored.position) == (name, line.at)
            assert texts_of(store, line.span()) == [[f"cell-{at}"]]
            assert names_of(store, prefix=name, limit=1) == [name]
        for line in list(lines.values())[::2]:
            store.drop(line.number)
        assert names_of(store) == in_order(HOSTILE[1::2])

    @pytest.mark.parametrize("name", ["\ud800", "a\udfffb"])
    def test_a_lone_surrogate_is_a_distinct_name_or_rejected(self, store: Store, name: str) -> None:
        saved(store, "?", "x")
        saved(store, "\ufffd", "x")
        try:
            store.commit(commit(name))
        except InvalidArgument:
            assert names_of(store) == ["?", "\ufffd"]
        else:
            stored = thread_named(store, name)
            assert stored is not None
            assert stored.name == name
            assert names_of(store, prefix=name) == [name]
            store.drop(stored.position.thread)
        assert names_of(store) == ["?", "\ufffd"]
