"""verify, mark, backup, repair and rekey as a person gives them: what they say, and how they end."""

from __future__ import annotations

import errno
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.cli.terminal import Exit
from tests.cli.looked import without_store
from tests.threads.wholes import address, change_blob, fill, fingerprint, flip, opened

ONE, TWO = "11" * 32, "22" * 32


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    with opened("sqlite", tmp_path) as hf:
        fill(hf)
    path = tmp_path / "store.db"
    monkeypatch.setenv("HOLDFAST_STORE", str(path))
    return path


def damage(store: Path) -> None:
    change_blob(store, "checkpoint", "skeleton", "row_key & 4294967295 = 8", flip)


class Said:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(words)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return code, out, without_store(err)

    def json(self, *words: str) -> tuple[int, Any]:
        code, out, _ = self(*words, "--json")
        return code, json.loads(out)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def test_verify_says_that_nothing_is_wrong(store: Path, said: Said) -> None:
    for words in ((), ("--deep",), ("--quick",)):
        assert said("verify", *words) == (Exit.OK, "4 threads, 12 checkpoints: no problems\n", "")
    assert said.json("verify") == (Exit.OK, {"ok": True, "threads": 4, "checkpoints": 12, "problems": []})


def test_verify_says_what_is_damaged(store: Path, said: Said) -> None:
    damage(store)
    code, out, _ = said("verify")
    assert code == Exit.ERROR
    assert "thread 't', checkpoint 8: " in out
    assert out.endswith(": 1 problem\n")
    code, found = said.json("verify")
    assert code == Exit.ERROR
    assert not found["ok"]
    assert {"t"} == {problem["thread"] for problem in found["problems"]}


def test_a_name_cannot_talk_to_the_terminal(store: Path, said: Said) -> None:
    with opened("sqlite", store.parent) as hf:
        hf.thread("a\x1b[2J\u202eb").save({"n": 1})
        mark = hf.fingerprint()
        hf.thread("a\x1b[2J\u202eb").drop()
    (store.parent / "mark").write_text(mark)
    _, out, _ = said("verify", "--fingerprint", str(store.parent / "mark"))
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_marks_are_written_and_compared_with(store: Path, said: Said) -> None:
    file = store.parent / "mark"
    with opened("sqlite", store.parent) as hf:
        hf.thread("later").save({"n": 1})
    code, out, err = said("fingerprint")
    assert (code, err) == (Exit.OK, "")
    file.write_text(out)
    assert said.json("fingerprint")[1]["fingerprint"].startswith("holdfast fingerprint 1 ")
    assert said("verify", "--quick", "--fingerprint", str(file))[0] == Exit.OK
    with opened("sqlite", store.parent) as hf:
        hf.thread("later").drop()
    code, out, _ = said("verify", "--quick", "--fingerprint", str(file))
    assert code == Exit.ERROR
    assert "thread 'later': it is missing" in out
    file.write_text("nonsense")
    code, out, err = said("verify", "--fingerprint", str(file))
    assert (code, out) == (Exit.USAGE, "")
    assert "fingerprint" in err
    assert said("verify", "--fingerprint", str(store.parent / "none"))[0] == Exit.USAGE


def test_backup_copies_and_checks(store: Path, said: Said) -> None:
    target = store.parent / "copy.db"
    code, out, _ = said("backup", str(target))
    assert code == Exit.OK
    assert re.fullmatch(rf"{re.escape(str(target))}: \d+ kB, 4 threads, verified\n", out)
    code, out, err = said("backup", str(target))
    assert (code, out) == (Exit.CONFLICT, "")
    assert "already exists" in err
    assert said("backup", "memory:")[0] == Exit.USAGE
    code, found = said.json("backup", str(store.parent / "second.db"))
    assert code == Exit.OK
    assert found["ok"]


def test_a_file_that_cannot_be_read_at_all(store: Path, said: Said) -> None:
    data = bytearray(store.read_bytes())
    data[100:120] = b"\xff" * 20  # the page that lists the tables
    store.write_bytes(data)
    for (verb, *target), advice in (
        (("verify",), "Try `holdfast repair TARGET`, or restore a backup."),
        (("repair", str(store.parent / "new.db")), "Restore a backup."),
    ):
        code, out, err = said(verb, *target)
        assert (code, out) == (Exit.ERROR, "")
        assert err.startswith(f"holdfast {verb}: {store}: "), err
        assert err.endswith(f"; this command cannot read past it. {advice}\n"), err
    assert said("threads")[2].endswith("; try the command `holdfast repair TARGET`, or restore a backup\n")
    code, out, _ = said("doctor")
    assert code == Exit.ERROR
    assert "hf.verify" not in out


def test_a_missing_key_is_named_as_commands_take_it(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", f"one:{'11' * 32}")
    assert said("submit", "h", "t", "--start", "{}", "--store", str(tmp_path / "encrypted"))[0] == Exit.OK
    monkeypatch.setenv("HOLDFAST_KEY", f"two:{'22' * 32}")
    assert said("threads", "--store", str(tmp_path / "encrypted"))[2].endswith("Add it to $HOLDFAST_KEY.\n")


def test_a_backup_of_what_is_damaged_says_so(store: Path, said: Said) -> None:
    damage(store)
    code, out, _ = said("backup", str(store.parent / "copy.db"))
    assert code == Exit.ERROR
    assert "thread 't', checkpoint 8: " in out
    assert (store.parent / "copy.db").exists()


def test_repair_says_what_was_lost_and_touches_nothing(store: Path, said: Said) -> None:
    damage(store)
    before = fingerprint(store.parent)
    code, out, _ = said("repair", str(store.parent / "new.db"))
    assert code == Exit.ERROR
    assert "thread 't', checkpoint 8: " in out
    assert out.endswith("4 threads, 11 checkpoints, 3 journal entries copied\n")
    after = fingerprint(store.parent)
    assert {name: after[name] for name in before} == before
    code, found = said.json("repair", f"dir:{store.parent / 'new'}")
    assert code == Exit.ERROR
    assert [(lost["thread"], lost["seqs"]) for lost in found["lost"]] == [("t", [8])]
    assert said("repair", str(store.parent / "new.db"))[0] == Exit.CONFLICT
    assert said("repair", str(store.parent / "nowhere" / "new.db"))[0] == Exit.ERROR
    (store.parent / "folder").mkdir()
    code, _, err = said("repair", str(store.parent / "newer.db"), "--store", str(store.parent / "folder"))
    assert code == Exit.NOT_FOUND
    assert "it is a folder; write a directory store as dir:" in err
    assert not list(store.parent.glob(".holdfast-*"))


def test_a_repair_without_a_place_for_its_copy_says_what_to_do(
    store: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, before = store.parent / "nowhere", sorted(store.parent.iterdir())
    assert said("repair", str(missing / "new.db"))[2] == (
        f"holdfast repair: {missing / 'new.db'}: there is no folder {missing}; nothing was copied. "
        "Create the folder, or name another target.\n"
    )

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    assert said("repair", f"dir:{store.parent / 'new'}")[2] == (
        f"holdfast repair: the folder {store.parent} cannot be written; nothing was copied. "
        "Name a target in another folder (No space left on device).\n"
    )
    assert said("repair", "memory:")[2] == (
        "holdfast repair: the folder for temporary files cannot be written; nothing was copied. "
        "Set TMPDIR to another folder (No space left on device).\n"
    )
    assert sorted(store.parent.iterdir()) == before


def test_repair_leaves_the_wal_of_a_process_that_died(store: Path, said: Said) -> None:
    """To open it as usual would move the WAL into the file."""
    with opened("sqlite", store.parent) as hf:
        hf.thread("late").save({"n": 1})
        saved = {suffix: Path(f"{store}{suffix}").read_bytes() for suffix in ("", "-wal")}
    dead = store.parent / "dead"
    dead.mkdir()
    for suffix, content in saved.items():
        (dead / f"store.db{suffix}").write_bytes(content)
    before = fingerprint(dead)
    code, out, _ = said("repair", str(store.parent / "new.db"), "--store", str(dead / "store.db"))
    assert code == Exit.OK
    assert out.startswith("5 threads")
    assert fingerprint(dead) == before


def test_repair_reads_what_is_left_of_a_file_that_was_cut_off(tmp_path: Path, said: Said) -> None:
    """SQLite reads nothing of a file that is shorter than its header says."""
    with opened("sqlite", tmp_path) as hf:
        for number in range(120):
            hf.thread(f"thread {number % 10}").save({"messages": [f"message {n} " * 9 for n in range(number)]})
    store = tmp_path / "store.db"
    whole = store.read_bytes()
    store.write_bytes(whole[: len(whole) * 9 // 10 + 100])
    before = fingerprint(tmp_path)
    assert said("verify", "--store", str(store))[0] == Exit.ERROR
    code, done = said.json("repair", str(tmp_path / "new.db"), "--store", str(store))
    assert code == Exit.ERROR
    assert done["lost"]
    assert 60 < done["checkpoints"] < 120
    after = fingerprint(tmp_path)
    assert {name: after[name] for name in before} == before
    assert said("verify", "--store", str(tmp_path / "new.db"))[0] == Exit.OK


def test_a_count_of_pages_that_is_damaged_makes_no_huge_copy(store: Path, said: Said) -> None:
    whole = bytearray(store.read_bytes())
    whole[28] |= 0x40
    store.write_bytes(whole)
    code, out, _ = said("repair", str(store.parent / "new.db"))
    assert (code, out) == (Exit.ERROR, "")


def test_repair_does_not_write_to_the_old_store(store: Path, said: Said) -> None:
    before = fingerprint(store.parent)
    code, _, err = said("repair", str(store))
    assert code == Exit.CONFLICT
    assert "the store itself" in err
    with opened("directory", store.parent) as hf:
        fill(hf)
    for verb in ("backup", "repair"):
        code, _, err = said(verb, f"dir:{store.parent}/store/in", "--store", f"dir:{store.parent}/store")
        assert code == Exit.USAGE
        assert "in the folder of the store" in err
    after = fingerprint(store.parent)
    assert {name: after[name] for name in before} == before


def test_where_nothing_can_be_written_that_is_said(store: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    code, out, err = said("repair", str(store.parent / "new.db"))
    assert (code, out) == (Exit.ERROR, "")
    assert "Permission denied" in err


def test_rekey(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.db")
    monkeypatch.setenv("HOLDFAST_KEY", f"one:{ONE}")
    with holdfast.open(path, durability="off") as hf:
        hf.thread("t").save({"n": 1})
    assert said("rekey", "--store", path) == (Exit.OK, "all keys already use the current key\n", "")
    monkeypatch.setenv("HOLDFAST_KEY", f"two:{TWO},one:{ONE}")
    assert said("rekey", "--store", path) == (Exit.OK, "2 keys rewrapped\n", "")
    monkeypatch.setenv("HOLDFAST_KEY", f"two:{TWO}")
    assert said.json("rekey", "--store", path) == (Exit.OK, {"rewrapped": 0})
    assert said("verify", "--store", path)[0] == Exit.OK
    monkeypatch.setenv("HOLDFAST_KEY", f"one:{ONE}")
    code, out, err = said("verify", "--store", path)
    assert (code, out) == (Exit.ERROR, "")
    assert "two" in err
    monkeypatch.delenv("HOLDFAST_KEY")
    code, out, err = said("rekey", "--store", path)
    assert code == Exit.ERROR
    assert "HOLDFAST_KEY" in err


def test_rekey_without_a_cipher_is_refused(store: Path, said: Said) -> None:
    code, out, err = said("rekey")
    assert (code, out) == (Exit.ERROR, "")
    assert "is not encrypted" in err


@pytest.mark.parametrize(
    "verb", [("verify",), ("fingerprint",), ("rekey",), ("backup", "copy.db"), ("repair", "new.db")]
)
def test_a_store_that_is_not_there_is_not_made(
    verb: tuple[str, ...], tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("none.db", "dir:none", f"sqlite:///{tmp_path}/none.db"):
        code, out, err = said(*verb, "--store", url)
        assert (code, out) == (Exit.NOT_FOUND, "")
        assert "there is no store" in err
    assert said(*verb, "--store", "memory:")[0] == Exit.USAGE
    for url in ("~nobody-at-all/a.db", "dir:~nobody-at-all/a", "sqlite:///~nobody-at-all/a.db"):
        assert said(*verb, "--store", url)[0] == Exit.USAGE
    (tmp_path / "empty").touch()
    assert said(*verb, "--store", "empty")[0] == Exit.NOT_FOUND
    assert not (tmp_path / "empty").read_bytes()
    (tmp_path / "empty").unlink()
    (tmp_path / "folder").mkdir()
    assert said(*verb, "--store", "dir:folder")[0] == Exit.NOT_FOUND
    (tmp_path / "folder").rmdir()  # it is still empty
    (tmp_path / "text").write_text("no store " * 200)
    assert said(*verb, "--store", "text")[0] == Exit.ERROR
    assert {path.name for path in tmp_path.iterdir() if "gate" not in path.name and "turn" not in path.name} == {"text"}


def test_backup_of_a_database_names_the_tool_for_it(tmp_path: Path, said: Said) -> None:
    with opened("postgres", tmp_path) as hf:
        hf.thread("t").save({"n": 1})
    words = ("--store", address("postgres", tmp_path))
    code, out, err = said("backup", str(tmp_path / "copy.db"), *words)
    assert (code, out) == (Exit.USAGE, "")
    assert "pg_dump" in err
    assert not list(tmp_path.glob("copy*"))
    assert said("verify", *words) == (Exit.OK, "1 thread, 1 checkpoint: no problems\n", "")
    assert said("repair", str(tmp_path / "copy.db"), *words)[0] == Exit.OK
    assert said("verify", "--store", str(tmp_path / "copy.db"))[0] == Exit.OK


def test_optimize(store: Path, said: Said) -> None:
    code, out, _ = said("optimize")
    assert code == Exit.OK
    assert out.endswith(" merged\n")
    code, told = said.json("optimize")
    assert (code, set(told), told["damaged"]) == (Exit.OK, {"merged", "pruned", "damaged"}, 0)
