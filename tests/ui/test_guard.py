"""Who is answered: nobody without the token, nobody who means another server, no form of another page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast, InvalidArgument
from holdfast.ui import app
from tests.cases import for_each
from tests.selection import tries
from tests.ui.conftest import ORIGIN, PORT, TOKEN, Page

PATHS = [
    "/",
    "/threads",
    "/thread?name=x",
    "/state?name=x&at=y",
    "/export?name=x&format=jsonl",
    "/search?q=x",
    "/workers",
    "/store",
    "/static/page.css",
    "/static/page.js",
    "/no",
]


@for_each("path", PATHS)
@for_each("method", ["GET", "HEAD", "POST"])
def test_without_the_token_everything_is_401(page: Page, method: str, path: str) -> None:
    answer = page.ask(method, path, cookies={})
    assert answer.status_code == 401
    assert "writer/book" not in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    assert page.ask(method, "/").status_code == 405
    assert page.ask(method, "/", cookies={}).status_code == 405


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\u0000", "the-token\u00e9"])
def test_a_wrong_token_is_none(page: Page, token: str) -> None:
    assert page.ask("GET", "/", params={"token": token}, cookies={}).status_code == 401
    assert page.ask("GET", "/", cookies={}, headers={"Cookie": f"holdfast-{PORT}=wrong"}).status_code == 401
    assert page.ask("GET", "/", cookies={"holdfast-1": TOKEN}).status_code == 401


def test_the_token_in_the_address_becomes_a_cookie_and_is_gone_from_it(page: Page) -> None:
    answer = page.ask("GET", "/thread", params={"name": "writer/book", "token": TOKEN}, cookies={})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/thread?name=writer%2Fbook"
    cookie = answer.headers["set-cookie"]
    assert f"holdfast-{PORT}={TOKEN}" in cookie
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower(), "with strict a link opened from another site would come without it"


def test_the_token_is_gone_from_the_address_for_whoever_has_the_cookie_already(page: Page) -> None:
    answer = page.ask("GET", "/store", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/store")


@pytest.mark.parametrize("other", ['foo={"a": 1}', "a b=1", "lang=en us", "[x]=1", "x", "é=1", "=", 'q="unclosed'])
def test_cookies_of_other_programs_on_this_machine_lock_nobody_out(page: Page, other: str) -> None:
    headers = {"Cookie": f"{other}; holdfast-{PORT}={TOKEN}; {other}".encode()}
    assert page.ask("GET", "/", cookies={}, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/\\evil.example", "//evil.example/%2e"])
def test_the_way_back_is_never_to_another_server(page: Page, path: str) -> None:
    sent = page.raw(path, f"token={TOKEN}")
    location = dict(sent["headers"])[b"location"].decode()
    assert sent["status"] == 303
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


def test_a_form_cannot_bring_the_token(page: Page) -> None:
    assert page.ask("POST", "/act/verify", params={"token": TOKEN}, cookies={}).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "localhost", ""])
def test_another_host_is_refused_whatever_else_is_right(page: Page, host: str) -> None:
    answer = page.ask("GET", "/", headers={"Host": host})
    assert answer.status_code == 421
    assert page.ask("GET", "/static/page.css", headers={"Host": host}).status_code == 421


def test_every_name_of_this_machine_is_this_server(page: Page) -> None:
    for host in (f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"):
        assert page.ask("GET", "/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(page: Page, method: str, origin: str) -> None:
    answer = page.ask(method, "/store", headers={"Origin": origin})
    assert answer.status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_form_of_another_page_is_refused(writing: Page, site: str) -> None:
    form = {"seal": writing.seal(), "thread": "writer/book", "reason": "x", "confirmed": "yes"}
    assert writing.ask("POST", "/act/cancel", data=form, headers={"Sec-Fetch-Site": site}).status_code == 403


@pytest.mark.parametrize("seal", [None, "", "0" * 64, "é"])
def test_a_form_without_its_seal_is_refused(writing: Page, seal: str | None) -> None:
    form = {"thread": "writer/book", "id": "@-1", "name": "new", "confirmed": "yes"}
    if seal is not None:
        form["seal"] = seal
    assert writing.ask("POST", "/act/fork", data=form, headers={"Origin": ORIGIN}).status_code == 403
    assert writing.hf.thread("new").head() is None


def test_a_seal_of_another_server_is_none(writing: Page, memory: Holdfast) -> None:
    other = Page(memory, allow_write=True)
    form = {"seal": other.seal(), "thread": "writer/book", "id": "@-1", "name": "new", "confirmed": "yes"}
    assert writing.ask("POST", "/act/fork", data=form).status_code == 403


def test_a_form_that_does_not_end_is_not_read(writing: Page) -> None:
    answer = writing.ask("POST", "/act/fork", content=b"x", headers={"Content-Length": str(1 << 40)})
    assert answer.status_code == 413


def test_a_form_of_too_many_fields_is_refused(writing: Page) -> None:
    form = {"seal": writing.seal(), **{f"field{number}": "x" for number in range(60)}}
    answer = writing.ask("POST", "/act/fork", data=form)
    assert answer.status_code == 400
    assert "at most" in answer.text


@for_each("path", [*PATHS, "/act/fork"])
@for_each("cookies", [None, {}])
def test_every_answer_has_the_policy(page: Page, path: str, cookies: dict[str, str] | None) -> None:
    answer = page.ask("GET", path, **({} if cookies is None else {"cookies": cookies}))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] in ("no-store", "private, max-age=3600")
    assert "access-control-allow-origin" not in answer.headers


def test_no_page_needs_what_the_policy_forbids(page: Page) -> None:
    for path in ("/", "/thread?name=writer/book", "/search?q=upon", "/store"):
        text = page.ask("GET", path, follow_redirects=True).text
        assert "style=" not in text
        assert "onclick" not in text
        assert text.count("<script") == 1
        assert "http://" not in text.replace("http://www.w3.org", "")


# -- in a service of somebody's own ------------------------------------------------------------------------------------


def ann(_: HTTPConnection) -> str:
    return "ann"


def nobody(_: HTTPConnection) -> None:
    return None


def to_login(_: HTTPConnection) -> Response:
    return RedirectResponse("https://login.example/")


def test_there_is_no_page_without_somebody_who_authorizes(memory: Holdfast) -> None:
    with pytest.raises(InvalidArgument):
        app(memory, authorize=None)  # type: ignore[arg-type] # what is refused
    with pytest.raises(TypeError):
        app(memory)  # type: ignore[call-arg] # what is refused


@pytest.mark.parametrize("answer", [None, False, ""])
def test_whom_the_service_does_not_know_sees_nothing(memory: Holdfast, answer: object) -> None:
    def unknown(_: HTTPConnection) -> object:
        return answer

    page = Page(memory, authorize=unknown, hosts=None)
    assert page.get("/").status_code == 401


def test_a_service_may_await_who_it_is_and_answer_any_host(memory: Holdfast) -> None:
    async def known(request: HTTPConnection) -> str | None:
        return "ann" if request.headers.get("authorization") == "Bearer ann" else None

    page = Page(memory, authorize=known, hosts=None)
    assert page.get("/").status_code == 401
    headers = {"Authorization": "Bearer ann", "Host": "agents.example"}
    assert page.ask("GET", "/", headers=headers).status_code == 200
    assert page.ask("GET", "/", headers={**headers, "Origin": "http://evil.example"}).status_code == 403
    behind_proxy = {**headers, "Origin": "https://agents.example"}
    assert page.ask("GET", "/", headers=behind_proxy).status_code == 200


def test_the_seal_of_one_person_is_none_of_another(memory: Holdfast) -> None:
    def named(request: HTTPConnection) -> str | None:
        return request.headers.get("x-user")

    page = Page(memory, authorize=named, hosts=None, allow_write=True)
    text = page.ask("GET", "/store", headers={"X-User": "ann"}).text
    seal = text.partition('name="seal" value="')[2].partition('"')[0]
    assert page.ask("POST", "/act/verify", data={"seal": seal}, headers={"X-User": "bob"}).status_code == 403
    assert page.ask("POST", "/act/verify", data={"seal": seal}, headers={"X-User": "ann"}).status_code == 303


def test_a_form_of_one_process_is_taken_by_another_that_has_the_same_secret(memory: Holdfast) -> None:
    one, other, stranger = (
        Page(memory, allow_write=True, authorize=ann, hosts=None, secret=secret)
        for secret in (b"s" * 32, b"s" * 32, b"t" * 32)
    )
    form = {"seal": one.seal(), "thread": "writer/book", "keep_last": "3"}
    assert other.ask("POST", "/act/prune", data=form).status_code == 200
    assert stranger.ask("POST", "/act/prune", data=form).status_code == 403


@pytest.mark.parametrize("secret", [b"", b"short", "a text that is long enough", 1])
def test_a_secret_that_can_be_guessed_is_refused(memory: Holdfast, secret: Any) -> None:
    with pytest.raises(InvalidArgument):
        app(memory, authorize=ann, secret=secret)


def test_a_service_behind_tls_may_say_which_hosts_it_answers(memory: Holdfast) -> None:
    page = Page(memory, allow_write=True, authorize=ann, hosts=frozenset({"agents.example"}))
    for scheme in ("http", "https"):
        headers = {"Host": "agents.example", "Origin": f"{scheme}://agents.example"}
        assert page.ask("GET", "/store", headers=headers).status_code == 200
    headers = {"Host": "agents.example", "Origin": "https://evil.example"}
    assert page.ask("GET", "/store", headers=headers).status_code == 403


def test_a_service_says_itself_what_whoever_it_does_not_know_is_answered(memory: Holdfast) -> None:
    page = Page(memory, authorize=to_login, hosts=None)
    answer = page.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "https://login.example/")
    assert "writer/book" not in answer.text
    refused = Page(memory, authorize=nobody, hosts=None).get("/")
    assert refused.status_code == 401
    assert "holdfast ui" not in refused.text, "there is no address that it printed"


def test_mounted_under_a_path_all_links_stay_there(memory: Holdfast) -> None:
    service = Starlette(routes=[Mount("/agents", app(memory, authorize=lambda _: True))])
    text = TestClient(service).get("/agents/threads").text
    assert 'href="/agents/static/page.css"' in text
    assert 'href="/agents/thread?name=writer%2Fbook"' in text
    assert 'href="/agents/threads?status=saved"' in text
    assert TestClient(service).get("/agents/thread?name=writer%2Fbook").status_code == 200


# -- anything ----------------------------------------------------------------------------------------------------------

words = st.text(max_size=30)
paths = st.lists(st.sampled_from(["static", "act", "thread", "state", "..", "%2e%2e", "page.css", "x", ""]), max_size=5)
headers = st.dictionaries(
    st.sampled_from(["Cookie", "Origin", "Host", "Sec-Fetch-Site", "If-None-Match", "Content-Length"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip),
    max_size=3,
)


@settings(max_examples=tries(150, 50), deadline=None)
@given(
    path=paths,
    query=st.dictionaries(words, words, max_size=3),
    given_headers=headers,
    method=st.sampled_from(["GET", "POST"]),
)
def test_nothing_that_is_asked_without_the_token_is_answered(
    path: list[str], query: dict[str, str], given_headers: dict[str, str], method: str
) -> None:
    with holdfast.open("memory:") as hf:
        hf.thread("seen").save({"a": 1})
        page = Page(hf, allow_write=True)
        query = {name: value for name, value in query.items() if value != TOKEN}
        answer = page.ask(method, "/" + "/".join(path).lstrip("/"), params=query, headers=given_headers, cookies={})
        assert answer.status_code in (401, 403, 405, 421)
        assert "seen" not in answer.text
