"""Write a shell completion script. It completes commands, options and thread names.

bash: add `eval "$(holdfast completion bash)"` to ~/.bashrc. zsh: add `eval "$(holdfast completion zsh)"` to ~/.zshrc,
after compinit. fish: write the script to ~/.config/fish/completions/holdfast.fish.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from shlex import quote

from holdfast.cli.exits import Exit
from holdfast.cli.findings import put_json
from holdfast.cli.output import write
from holdfast.cli.store import add_store, open_existing
from holdfast.cli.verbs import VERBS
from holdfast.errors import HoldfastError

_MOST = 100  # thread names to offer
_SHELLS = ("bash", "zsh", "fish")
_FISH_THREADS = """\
function __holdfast_threads
    set -l given
    set -l words (commandline -opc)
    for at in (seq 2 (count $words))
        switch $words[$at]
            case --store --namespace
                set -a given $words[$at] $words[(math $at + 1)]
            case '--store=*' '--namespace=*'
                set -a given $words[$at]
        end
    end
    holdfast completion $given threads -- (commandline -ct) 2>/dev/null
end"""


def declare(parser: ArgumentParser) -> None:
    """See `Program`."""
    parser.add_argument("shell", metavar="SHELL", choices=(*_SHELLS, "threads"), help="bash, zsh or fish")
    parser.add_argument(
        "begun", metavar="TEXT", nargs="?", default="", help="used by the scripts: `threads TEXT` lists thread names"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="write the script as a field of a JSON object")


def run(arguments: Namespace) -> int:
    """See `Program`."""
    if arguments.shell == "threads":
        names: list[str] = []
        with suppress(HoldfastError):  # the user pressed Tab; an error would garble the prompt
            names = _threads(arguments)
        if arguments.json:
            put_json({"threads": names})
        else:
            write("".join(f"{name}\n" for name in names))
        return Exit.OK
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]()
    if arguments.json:
        put_json({"shell": arguments.shell, "script": script})
    else:
        write(script)
    return Exit.OK


def _threads(arguments: Namespace) -> list[str]:
    with open_existing(arguments) as hf:
        names = [info.name for info in hf.threads(prefix=arguments.begun, limit=_MOST)]
    return [name for name in names if name.isprintable()]


def _options() -> dict[str, list[str]]:
    """Return the long options of each command."""
    found: dict[str, list[str]] = {}
    for name, verb in VERBS.items():
        parser = ArgumentParser(add_help=True)
        verb.load().declare(parser)
        found[name] = sorted(option for option in parser._option_string_actions if option.startswith("--"))
    return found


def _bash() -> str:
    cases = "\n".join(f'        {verb}) options="{" ".join(options)}" ;;' for verb, options in _options().items())
    return f"""\
# Thread names are quoted and never expanded: they may hold shell syntax.
_holdfast() {{
    # bash also splits words at : and @, which thread names may hold, so read the line itself.
    local line="${{COMP_LINE:0:COMP_POINT}}" word kept="" options="" name at last
    local -a words given=()
    read -ra words <<< "$line"
    case "$line" in *[[:space:]]) words+=("") ;; esac
    last=$((${{#words[@]}} - 1))
    word="${{words[last]}}"
    # bash replaces only the text after the last of these characters.
    case "$word" in *[:@=]*) kept="${{word%"${{word##*[:@=]}}"}}" ;; esac
    COMPREPLY=()
    for ((at = 2; at < last; at++)); do
        case "${{words[at]}}" in
            --store | --namespace) given+=("${{words[at]}}" "${{words[at + 1]}}") ;;
            --store=* | --namespace=*) given+=("${{words[at]}}") ;;
        esac
    done
    if [ "$last" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(VERBS)}" -- "$word"))
        return
    fi
    case "${{words[1]}}" in
{cases}
    esac
    case "${{words[last - 1]}}" in
        --store) return ;;  # a path
    esac
    case "$word" in
        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
        *)
            while IFS= read -r name; do
                name="$(printf '%q' "$name")"
                COMPREPLY+=("${{name#"$kept"}}")
            done < <(holdfast completion "${{given[@]}}" threads -- "$word" 2>/dev/null)
            ;;
    esac
}}
complete -o default -F _holdfast holdfast
"""


def _zsh() -> str:
    verbs = "\n".join(f"        {quote(f'{name}:{verb.summary}')}" for name, verb in VERBS.items())
    cases = "\n".join(f"        {verb}) options=({' '.join(options)}) ;;" for verb, options in _options().items())
    return f"""\
#compdef holdfast
_holdfast() {{
    local -a verbs options threads given
    local at
    verbs=(
{verbs}
    )
    for ((at = 3; at < CURRENT; at++)); do
        case "${{words[at]}}" in
            --store | --namespace) given+=("${{words[at]}}" "${{(Q)words[at + 1]}}") ;;
            --store=* | --namespace=*) given+=("${{(Q)words[at]}}") ;;
        esac
    done
    if (( CURRENT == 2 )); then
        _describe verb verbs
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
    if [[ "${{words[CURRENT]}}" == -* ]]; then
        compadd -- "${{options[@]}}"
    else
        threads=("${{(@f)$(holdfast completion "${{given[@]}}" threads -- "${{words[CURRENT]}}" 2>/dev/null)}}")
        compadd -- "${{threads[@]}}"
        _files
    fi
}}
compdef _holdfast holdfast
"""


def _fish() -> str:
    lines = [_FISH_THREADS]
    lines += [
        f"complete -c holdfast -n __fish_use_subcommand -f -a {name} -d {quote(verb.summary)}"
        for name, verb in VERBS.items()
    ]
    for verb, options in _options().items():
        lines += [
            f"complete -c holdfast -n '__fish_seen_subcommand_from {verb}' -l {option.removeprefix('--')}"
            for option in options
        ]
    lines.append("complete -c holdfast -n 'not __fish_use_subcommand' -a '(__holdfast_threads)'")
    return "\n".join(lines) + "\n"
