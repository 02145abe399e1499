"""The style sheet of HTML transcripts: light and dark, narrow screens, print."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --back: #f7f8fa; --card: #ffffff; --line: #d9dde3; --text: #1a2230; --dim: #566270; --link: #1a5fb4;
  --user: #eaf1fe; --system: #efedf8; --tool: #eaf6ef; --doubt: #8a4b00; --doubtback: #fff1d6; --bad: #b32424;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #12161c; --card: #1b212a; --line: #36404e; --text: #e6eaf0; --dim: #a3b0bf; --link: #7db4ff;
    --user: #1a2740; --system: #252338; --tool: #16291f; --doubt: #f3ba5f; --doubtback: #3a2c10; --bad: #ff8a8a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 1.4rem; margin: .5rem 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .75rem; }
h3 { font-size: .95rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h4 { font-size: .85rem; margin: 0 0 .35rem; color: var(--dim); font-weight: 600; overflow-wrap: anywhere; }
h3 code { font-size: 1em; }
h4 code { color: var(--text); font-size: .95em; }
h4 code.dim { color: var(--dim); }
p { margin: 0 0 .75rem; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.25rem; }
li { overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .85em; }
code { unicode-bidi: isolate; overflow-wrap: anywhere; }
pre, .text { margin: 0 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; }
pre { padding: .5rem .65rem; background: var(--back); border: 1px solid var(--line); border-radius: 6px; }
.dim { color: var(--dim); font-weight: 400; }
.name { unicode-bidi: isolate; }
.facts { margin: 0; padding: .75rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.facts div { display: flex; gap: 1rem; padding: .15rem 0; }
.facts dt { flex: 0 0 7rem; color: var(--dim); }
.facts dd { flex: 1; margin: 0; min-width: 0; overflow-wrap: anywhere; }
.message, .open { margin: 0 0 .75rem; padding: .75rem 1rem; border: 1px solid var(--line); border-radius: 10px; }
.message { background: var(--card); }
.user { background: var(--user); }
.system { background: var(--system); }
.tool { background: var(--tool); }
.message > :last-child, .call :last-child { margin-bottom: 0; }
.call { background: var(--card); }
.call:not(.open) { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: .75rem; margin: .5rem 0 0;
  padding: .65rem; border: 1px solid var(--line); border-radius: 8px; }
.call.doubt { border: 2px solid var(--doubt); background: var(--doubtback); }
.doubt strong { color: var(--doubt); }
.call.failed { border-color: var(--bad); }
.failed > :last-child > h4 { color: var(--bad); }
.outcome { font-style: italic; }
.lost { color: var(--bad); }
details { margin: 0 0 .5rem; }
summary { cursor: pointer; color: var(--link); padding: .15rem 0; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
@media (max-width: 44rem) {
  .call:not(.open) { grid-template-columns: minmax(0, 1fr); }
  .facts div { display: block; padding: .25rem 0; }
  .facts dt { font-size: .85rem; }
}
@media print {
  body { background: #ffffff; color: #000000; }
  .message, .call { break-inside: avoid-page; }
}
"""
