"""The verbs that look: what they write at a fixed width, their JSON, and how they end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

import holdfast
from holdfast.cli.main import main
from holdfast.cli.terminal import Exit
from tests.cli import looked
from tests.cli.conftest import Folder
from tests.cli.looked import VERBS, Say, golden
from tests.inspect.test_commands import words as parted
from tests.ui import scene

say = looked.say  # fixtures are found by where they stand
store = looked.store

DOUBT = "in doubt: post (call 5) has no recorded outcome; settle it with `holdfast settle`"


def test_threads(say: Say) -> None:
    code, out, err = say("threads", "--sort", "name", "--after", "evil~", "--limit", "9")
    assert code == 0
    assert out == (
        "THREAD      STATUS             AGE  STEP  SAVES   SIZE  AGENT\n"
        "invoice     waiting (approve)   1m     0      1    1 B\n"
        "notes       saved               1m     3      4   13 B\n"
        "notes-fork  saved               1m     2      1    4 B\n"
        "shop        in doubt (post)     1m     1      2  140 B  clerk\n"
    ), out
    assert err == ""


def test_a_thread_without_a_run_is_saved_as_its_writer_said(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf:
        hf.thread("notes").save({}, status="failed")
    _, out, _ = say("threads", "notes")
    assert [re.split("  +", line)[1] for line in out.splitlines()[1:]] == ["saved as failed", "saved"]
    assert "\n  saved as failed\n" in say("show", "notes")[1]
    assert "\n  saved\n" in say("show", "notes-fork")[1]
    assert "\n  saved\n" in say("show", "shop@0")[1]  # of its run, only the head tells how that stands


def test_threads_are_cut_to_the_width(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (60, 40, 20):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, _ = say("threads")
        assert code == 0
        assert max(map(cell_len, out.splitlines())) <= width
        assert "\nevil \\x" in out
        if width == 40:  # what fits is whole, and the rest is left out
            assert out.splitlines()[0].split() == ["THREAD", "STATUS", "AGE", "STEP"]
            assert re.search("^invoice +waiting \\(ap… +1m +0$", out, re.MULTILINE), out


def test_threads_by_status_prefix_and_age(say: Say) -> None:
    for words, names in (
        (("--status", "in-doubt"), ["shop"]),
        (("--status", "waiting"), ["invoice"]),
        (("notes",), ["notes-fork", "notes"]),  # the newest first
        (("--older-than", "1d"), []),
        (("--newer-than", "1d", "d"), ["done"]),
        (("--agent", "clerk"), ["shop"]),
        (("--sort", "longest", "--limit", "1"), ["notes"]),
    ):
        code, out, _ = say("threads", *words, "--json")
        assert code == 0
        assert [each["name"] for each in json.loads(out)["threads"]] == names


def test_a_page_of_threads_says_how_to_go_on(say: Say) -> None:
    code, out, err = say("threads", "--sort", "name", "--limit", "2")
    assert (code, len(out.splitlines())) == (0, 3)
    assert re.fullmatch(r"more threads follow: pass --after \$'evil \\x1b.*', or --limit 0 for all\n", err)
    _, out, err = say("threads", "--sort", "name", "--after", "notes", "--limit", "0")
    assert [line.split()[0] for line in out.splitlines()] == ["THREAD", "notes-fork", "shop"]
    assert err == ""
    assert say("threads", "zzz") == (0, "", "no matching threads\n")
    paged: list[str] = []
    given: tuple[str, ...] = ()
    for _ in range(6):
        _, out, err = say("threads", "--limit", "1", *given)
        paged.append(out.splitlines()[1].split()[0])
        told = re.match(r"more threads follow: pass (--after.*), or", err)
        given = tuple(parted(told[1])) if told is not None else ()
    assert given == ()
    assert paged == ["evil", "done", "invoice", "shop", "notes-fork", "notes"]


def test_log(say: Say) -> None:
    code, out, err = say("log", "notes")
    assert (code, err) == (0, "")
    assert out == (
        "@ 00000004  step 3  1m ago  manual  13 B\n"
        "| o 00000003  step 3  1m ago  #t  manual  4 B\n"
        "|/\n"
        "* 00000002  step 2  1m ago  [good]  manual  4 B  forked as notes-fork\n"
        "* 00000001  step 1  1m ago  manual  4 B\n"
    ), out
    _, out, _ = say("log", "notes-fork")
    assert golden(out) == "@ 00000001  step 2  1m ago  [good]  fork  4 B\n  forked from notes@ID-00000002\n"
    _, out, err = say("log", "notes@good", "--limit", "1")
    assert out.startswith("* 00000002")
    assert err == "4 checkpoints in all; --limit 0 shows all\n"


def test_without_a_thread_the_newest_is_shown(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf:
        hf.thread("notes").save({"n": 11})
    assert say("log", "--limit", "1")[1].startswith("@ 00000005")
    for verb in ("log", "show", "effects", "stats"):
        _, _, err = say(verb)
        assert (verb == "stats") == ("thread notes (the newest)\n" not in err)
    assert say("watch", "--until-idle")[2] == "thread notes (the newest)\n"
    code, _, err = say("log", "--namespace", "none")
    assert (code, err) == (3, "holdfast log: the store has no threads\n")


def test_log_with_calls(say: Say) -> None:
    code, out, _ = say("log", "shop", "--calls")
    assert code == 0
    assert golden(out) == (
        "  open step: 1 model call, look_up, post, 1 in doubt\n"
        "    3  model  reply  TIME\n"
        "    4  read  look_up  TIME\n"
        "    5  irreversible  post  TIME  in doubt: TimeoutError: no answer\n"
        "@ 00000002  step 1  1m ago  step  140 B  1 model call, look_up\n"
        "|     1  model  reply  TIME\n"
        "|     2  read  look_up  TIME\n"
        "* 00000001  step 0  1m ago  start  33 B\n"
    ), out


def test_log_marks_crashes_and_resumes(folder: Folder) -> None:
    folder.write(
        "app.py",
        "import os, signal\n"
        "def die(run):\n"
        "    for step in run.steps():\n"
        "        run.model(lambda: 'hello')\n"
        "        if run.attempt == 1:\n"
        "            run.model(os.kill, os.getpid(), signal.SIGKILL.value)\n"
        "        run.finish()\n"
        "handlers = {'h': die}\n",
    )
    with folder.open() as hf:
        hf.submit("h", "t", start={})
    words = ("worker", "app:handlers", "--store", "agent.db", "--until-idle")
    assert folder.run(*words)[0] != 0
    code, out, _ = folder.run("log", "t", "--store", "agent.db", COLUMNS="80")
    assert (code, out.splitlines()[0]) == (0, "! interrupted: its process died")
    assert folder.run(*words)[0] == 0
    code, out, _ = folder.run("log", "t", "--store", "agent.db", COLUMNS="80")
    assert code == 0
    assert re.search(r"^\| ! the process died; resumed \S+ ago, 1 call replayed$", out, re.MULTILINE)


def test_log_says_how_many_resumes_it_cannot_mark(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf:
        for _ in range(30):
            with hf.run("often", start={}):
                pass
    code, out, err = say("log", "often")
    assert (code, out.count("! idle; resumed ")) == (0, 24)
    assert err == "5 of 29 resumes are not shown: only the newest are stored\n"


def test_show_a_chat(say: Say) -> None:
    code, out, err = say("show", "shop")
    assert code == 0
    assert golden(out) == (
        "shop (head)\n"
        "  step 1, checkpoint 2, ID-00000002\n"
        "  MOMENT (1m ago), 140 B, step\n"
        f"  {DOUBT}\n"
        "  agent clerk\n"
        "  recovery: continues after step 1; 2 calls replayed; 1 decision needed first\n"
        '  call 5: post(letter="Dear Sir")\n'
        "  it raised TimeoutError: no answer\n"
        "  Outcome unknown. Did it happen? (Declare a probe to settle this\n"
        "  automatically.)\n"
        "    it happened:      holdfast settle shop 5 --happened RESULT\n"
        "    it did not:       holdfast settle shop 5 --not-done\n"
        "    stays unknown:    holdfast settle shop 5 --give-up\n"
        "\n"
        "[0] user\n"
        "    go\n"
        "\n"
        "[1] assistant\n"
        "    turn 1\n"
        '  > look_up(item="ink")\n'
        "  < 3\n"
        "\n"
    ), out
    assert err == "RESULT in a command is JSON, like true or '\"text\"'\n"
    _, out, _ = say("show", "shop", "--last", "1")
    assert "… 2 earlier messages; --last 0 shows all" in out


def test_show_a_tree_and_raw(say: Say) -> None:
    _, out, _ = say("show", "notes")
    assert out.endswith('\n$: {} 2\n  n: 10\n  text: "new"\n')
    _, out, _ = say("show", "shop", "--tree", "--depth", "1")
    assert out.endswith("\n$: {} 1\n  messages: [] 3\n")
    assert json.loads(say("show", "notes@-2", "--raw")[1]) == {"n": 1}
    assert json.loads(say("show", "notes@1", "--raw")[1]) == {"n": 0}


def test_show_says_that_there_are_no_messages(say: Say) -> None:
    _, out, err = say("show", "notes", "--chat")
    assert err == "this state has no messages\n"
    assert out.endswith('text: "new"\n')


def test_diff(say: Say) -> None:
    assert say("diff", "notes@1", "@-1") == (0, '~ $.n  0 → 10\n+ $.text  "new"\n', "")
    assert say("diff", "notes") == (0, '~ $.n  1 → 10\n+ $.text  "new"\n', "")
    assert say("diff", "notes", "notes-fork") == (0, '- $.text  "new"\n~ $.n  10 → 1\n', "")
    assert say("diff", "notes", "notes") == (0, "", "no differences\n")
    assert say("diff", "notes-fork") == (0, "", "no differences\n")  # from what it was forked from
    code, _, err = say("diff", "notes@1")
    assert (code, err) == (
        3,
        "holdfast diff: 'notes@1' is the first checkpoint of its thread; name a second one to compare it with\n",
    )


def test_effects(say: Say) -> None:
    code, out, err = say("effects", "shop")
    assert (code, err) == (Exit.IN_DOUBT, "1 call in doubt: `holdfast inbox` shows how to settle it\n")
    lines = golden(out).splitlines()
    assert lines[0].split() == ["NO", "STEP", "KIND", "NAME", "STATUS", "KEY", "TOOK", "AGE", "NOTE"]
    assert lines[4].split() == ["2", "1", "read", "look_up", "done", "call_0", "TIME", "1m"]
    assert re.match(r" 5 +2  irreversible  post +in doubt +TIME +1m  TimeoutEr…?", lines[1]), lines[1]
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = say("effects", "shop", "--in-doubt", "--full")
    assert code == Exit.IN_DOUBT
    assert [line.split()[0] for line in out.splitlines()] == ["NO", "5", ">"]
    code, out, _ = say("effects", "shop@1")
    assert [line.split()[0] for line in out.splitlines()] == ["NO", "2", "1"]  # those that led to that checkpoint
    assert say("effects", "shop@0", "--json")[1].endswith('"effects": []\n}\n')
    _, out, err = say("effects", "shop", "--before", "4", "--limit", "2")
    assert [line.split()[0] for line in out.splitlines()] == ["NO", "3", "2"]
    assert err == "more calls follow: pass --before 2, or --limit 0 for all\n"
    assert say("effects", "shop", "--before", "1")[1:] == ("", "no recorded calls\n")
    assert say("effects", "notes") == (0, "", "no recorded calls\n")
    assert say("effects", "invoice", "--in-doubt") == (0, "", "no calls in doubt\n")


def test_stats(say: Say, store: Path) -> None:
    code, out, _ = say("stats")
    assert code == 0
    assert "threads      6\ncheckpoints  11\n" in out
    assert "\nthreads by status of their last save (`holdfast threads` shows the status of runs):\n  completed" in out
    _, out, _ = say("stats", "notes")
    assert out.startswith("threads      1\ncheckpoints  4\n")
    assert "on disk" not in out


def test_doctor(say: Say, store: Path) -> None:
    code, out, _ = say("doctor")
    assert code == 0, out
    assert out.startswith("ok  store ")
    assert all(
        f"\nok  {name}" in out for name in ("read", "write", "settings", "encryption", "clock", "disk", "versions")
    )
    assert "journal_mode wal, synchronous FULL, secure_delete 1" in " ".join(out.split())
    assert holdfast.open(store).verify().ok


def test_doctor_of_what_is_no_store(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, and long enough to be looked at" * 20)
    code, out, _ = say("doctor", "--store", str(path))
    assert code == 1
    assert "BAD open" in out


def test_watch_what_has_ended(say: Say) -> None:
    code, out, _ = say("watch", "done")
    assert (code, out[10:]) == (0, "completed\n")
    code, out, _ = say("watch", "shop", "--until-idle")
    assert code == 0
    assert out[10:] == f"{DOUBT}\n"
    code, out, _ = say("watch", "notes", "--until-idle")  # nobody runs it
    assert (code, out[10:]) == (0, "saved\n")


def test_watch_follows_a_run(folder: Folder) -> None:
    with folder.open() as hf, hf.run("live", start={"messages": []}) as run:
        watching = folder.start("watch", "live", "--store", "agent.db", "--interval", "0.02", "--json")
        watching.wait_until(lambda: '"running"' in watching.out)
        run.model(lambda: "hello")
        watching.wait_until(lambda: '"model"' in watching.out)
        run.finish("ok")
        assert watching.end() == 0
    events = [json.loads(line) for line in watching.out.splitlines()]
    assert [event["status"] for event in events if event["status"]] == ["running", "completed"]
    assert [event["checkpoint"]["step"] for event in events if event["checkpoint"]] == [1]
    assert [event["call"]["kind"] for event in events if event["call"]] == ["model"]


def test_watch_follows_a_thread_that_has_no_run(folder: Folder) -> None:
    with folder.open() as hf:
        hf.thread("plain").save({"n": 0})
        watching = folder.start("watch", "plain", "--store", "agent.db", "--interval", "0.02", "--json")
        watching.wait_until(lambda: '"running"' in watching.out)
        hf.thread("plain").save({"n": 1})
        watching.wait_until(lambda: '"seq": 2' in watching.out)
        with hf.run("plain") as run:  # and on, when one begins
            run.finish()
        assert watching.end() == 0
    events = [json.loads(line) for line in watching.out.splitlines()]
    assert events[-1]["status"] == "completed"


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_every_verb_writes_json(say: Say, words: tuple[str, ...]) -> None:
    _, out, err = say(*words, "--json")
    assert type(json.loads(out)) is dict
    assert err in ("", "no schedules\n")


def test_show_the_result_of_a_completed_run(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf, hf.run("a result", start={}) as run:
        run.finish({"paid": 7})
    assert '\n  result: {"paid":7}\n' in say("show", "a result")[1].replace(": 7", ":7")
    assert json.loads(say("show", "a result", "--json")[1])["recovery"]["result"] == {"paid": 7}


# -- a call of a process that died, and defaults -----------------------------------------------------------------------


def test_a_call_of_a_dead_process_is_in_doubt_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="off") as hf:
        scene.interrupted(hf, "letters")

    def written(*words: str) -> str:
        main([*words, "--store", str(path)])
        return capsys.readouterr().out

    assert re.search(r"stamp +in doubt", written("effects", "letters"))
    assert "look_up, stamp, 1 in doubt" in written("log", "letters")
    assert re.search(r"irreversible  stamp +in doubt", written("log", "letters", "--calls"))
    [effect] = json.loads(written("effects", "letters", "--in-doubt", "--json"))["effects"]
    assert (effect["status"], effect["in_doubt"]) == ("started", True)


def test_diff_without_references_compares_the_head_of_the_newest_thread(say: Say) -> None:
    newest = say("threads", "--json", "--limit", "1")[1]
    name = json.loads(newest)["threads"][0]["name"]
    assert say("diff")[:2] == say("diff", name)[:2]


def test_a_state_whose_list_of_messages_is_empty_is_shown_as_a_tree(say: Say, store: Path) -> None:
    with holdfast.open(store, durability="off") as hf:
        hf.thread("empty").save({"messages": [], "n": 1})
    assert "n: 1" in say("show", "empty")[1]
