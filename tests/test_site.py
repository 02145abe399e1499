"""The hooks of `make docs`: links to files outside of docs/, and the lines of llms.txt. mkdocs runs in make docs."""

from __future__ import annotations

from scripts import site


def test_links_to_files_outside_of_docs_lead_to_their_copies() -> None:
    text = (
        "[a](../../SECURITY.md#reporting) [b](../../examples/quickstart.py) [c](../how-to/save.md) [d](../../Makefile)"
    )
    assert site.relinked(text, "docs/trust/limits.md", "trust/limits.md") == (
        "[a](security.md#reporting) [b](../examples/quickstart.py.txt) [c](../how-to/save.md) d"
    )


def test_code_is_left_alone() -> None:
    text = "```python\nx = [a](../../SECURITY.md)\n```\n"
    assert site.relinked(text, "docs/trust/limits.md", "trust/limits.md") == text


def test_a_page_from_outside_links_into_the_site() -> None:
    text = "[Guarantees](docs/trust/guarantees.md) and [examples](examples/systemd)"
    assert site.relinked(text, "SECURITY.md", "trust/security.md") == (
        "[Guarantees](guarantees.md) and [examples](../examples/systemd/index.md)"
    )


def test_the_first_sentence_of_a_page() -> None:
    assert site.first_sentence("# Title\n\n![x](y.svg)\n\nA [run](runs.md) is the execution. More.\n") == (
        "A run is the execution."
    )


def test_the_pages_of_a_menu_by_section() -> None:
    menu = [{"Home": "index.md"}, {"How-to": [{"Runs": [{"A": "a.md"}, {"B": "b.md"}]}, {"C": "c.md"}]}]
    assert site.sections(menu) == [("Home", ["index.md"]), ("How-to", ["a.md", "b.md", "c.md"])]
