// Live updates and keyboard shortcuts. Pages also work without this script, by links and reloading.
"use strict";

// -- loading parts ----------------------------------------------------------------------------------------------------

// The query string is not decoded: names with lone surrogates would change.
function address(part, from) {
  const url = new URL(from || location.href, location.href);
  url.hash = "";
  url.search = `${url.search}${url.search ? "&" : "?"}part=${part}`;
  return url;
}

// Returns a part and its mark, or null if the mark is still current.
async function fetched(part, from, mark) {
  const headers = mark ? { "If-None-Match": `"${mark}"` } : {};
  const answer = await fetch(address(part, from), { headers, credentials: "same-origin", cache: "no-store" });
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error(String(answer.status));
  return { markup: await answer.text(), mark: (answer.headers.get("ETag") || "").replaceAll('"', "") };
}

// The markup comes from our own server, which escapes all text. Scripts in it would not run here either.
function parsed(markup) {
  const holder = document.createElement("template");
  holder.innerHTML = markup;
  return holder.content;
}

// -- updating a part in place -----------------------------------------------------------------------------------------

// A row is identified by the key of its link.
function keyOf(node) {
  if (node.nodeType !== 1) return "";
  const named = ["LI", "TR"].includes(node.nodeName) && !node.dataset.key ? node.querySelector("[data-key]") : node;
  return named?.dataset.key || node.id || "";
}

const isLike = (old, fresh) => old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

// Makes the children of one element equal to those of another. Equal nodes stay, with their focus and open state.
function become(old, fresh) {
  const wanted = [...fresh.childNodes];
  let at = old.firstChild;
  for (const each of wanted) {
    let same = at;
    // A node without a key is not searched for past one with a key, which would be lost.
    while (same && !isLike(same, each) && (keyOf(each) || !keyOf(same))) same = same.nextSibling;
    if (!same || !isLike(same, each)) { old.insertBefore(each, at); continue; }
    while (at !== same) { const gone = at; at = at.nextSibling; gone.remove(); }
    at = same.nextSibling;
    if (each.nodeType !== 1) { if (same.data !== each.data) same.data = each.data; continue; }
    for (const { name } of [...same.attributes]) if (!each.hasAttribute(name) && name !== "open") same.removeAttribute(name);
    for (const { name, value } of [...each.attributes]) if (name !== "open" && same.getAttribute(name) !== value) same.setAttribute(name, value);
    become(same, each);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

// -- live parts -------------------------------------------------------------------------------------------------------

const CONTROLS = "input:not([type=hidden]), textarea, select";

function isChanged(control) {
  if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
  if (control.tagName === "SELECT") return [...control.options].some((each) => each.selected !== each.defaultSelected);
  return control.value !== control.defaultValue;
}

// Returns why a part must not be updated: the user types or selects text in it, or has loaded older steps. Else "".
function busy(element) {
  const active = document.activeElement;
  if (element.dataset.grown) return "paused while older steps are shown";
  if (element.contains(active) && active.matches(`${CONTROLS}, form button`)) return "paused while you type";
  if ([...element.querySelectorAll(CONTROLS)].some(isChanged)) return "paused while you type";
  const marked = getSelection();
  if (marked && !marked.isCollapsed && marked.containsNode(element, true)) return "paused while text is selected";
  return "";
}

const states = new Map();

// The sign shows the worst state of all parts.
function tell(element, said) {
  states.set(element, said);
  const sign = document.getElementById("live");
  if (!sign) return;
  const all = [...states.values()];
  const worst = all.find((each) => each.startsWith("not")) || all.find((each) => each !== "live") || "live";
  sign.hidden = false;
  if (sign.textContent !== worst) sign.textContent = worst;
  sign.classList.toggle("stale", worst.startsWith("not"));
  sign.classList.toggle("paused", worst.startsWith("paused"));
}

function live(element) {
  const every = Number(element.dataset.every) || 2;
  let wait = Math.max(every, 0.1) * 1000;
  let timer = 0;
  const look = async () => {
    if (!element.dataset.live) return;
    const why = busy(element);
    if (why) tell(element, why);
    else if (!document.hidden) {
      const started = performance.now();
      try {
        const part = await fetched(element.dataset.live, null, element.dataset.mark);
        const since = busy(element);  // the user may have started to type meanwhile
        if (part && !since) { become(element, parsed(part.markup)); element.dataset.mark = part.mark; watchMore(); showCopies(); }
        tell(element, since || "live");
        // Slow parts are reloaded less often.
        wait = Math.max(every * 1000, 2000, (performance.now() - started) * 10);
      } catch {
        tell(element, "not connected");
        wait = Math.min(wait * 2, 30000);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(look, wait);
  };
  element.addEventListener("refresh", () => { clearTimeout(timer); look(); });
  timer = setTimeout(look, wait);
}

// Ages are updated without asking the server, in the same form as `age` in text.py.
const UNITS = [[31536000, "y"], [86400, "d"], [3600, "h"], [60, "m"]];

function age(seconds) {
  if (seconds < 1) return `${Math.max(seconds * 1000, 0).toFixed(0)}ms`;
  for (const [unit, name] of UNITS) if (seconds >= unit) return `${Math.floor(seconds / unit)}${name}`;
  return seconds < 10 ? `${seconds.toFixed(1)}s` : `${Math.floor(seconds)}s`;
}

const served = Date.parse(document.documentElement.dataset.now) - performance.now();

function grow() {
  const marked = getSelection();
  for (const each of document.querySelectorAll("time[data-age]")) {
    const said = age((served + performance.now() - Date.parse(each.dateTime)) / 1000);
    const isMarked = marked && !marked.isCollapsed && marked.containsNode(each, true);
    if (each.textContent !== said && !isMarked) each.firstChild ? (each.firstChild.data = said) : each.append(said);
  }
}

// -- the chosen step ---------------------------------------------------------------------------------------------------

// Shows a step in the right pane. The list on the left keeps its place.
async function choose(link, isNew) {
  const pane = document.getElementById("part-chosen");
  const part = await fetched("chosen", link.href);
  pane.replaceChildren(parsed(part.markup));
  stop(pane);  // it no longer follows the head
  if (isNew) history.pushState({}, "", link.href);
  mark(new URL(link.href).searchParams.get("at"));
  showCopies();
  document.getElementById("announced").textContent = `${pane.querySelector("h2").textContent} is shown`;
}

function mark(id) {
  for (const each of document.querySelectorAll("ol.steps a[data-step]")) {
    if (each.dataset.key === id) each.setAttribute("aria-current", "true");
    else each.removeAttribute("aria-current");
  }
  reveal();
}

// Scrolls the list of steps, and nothing else, to the chosen one.
function reveal() {
  const list = document.querySelector("ol.steps");
  const row = list?.querySelector("[aria-current]")?.closest("li");
  if (!row) return;
  const above = row.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (above < 0 || above + row.offsetHeight > list.clientHeight) list.scrollTop += above - list.clientHeight / 3;
}

function stop(element) {
  delete element.dataset.live;
  states.delete(element);
}

addEventListener("popstate", () => location.reload());

// -- filters without a button -----------------------------------------------------------------------------------------

function filter(form) {
  const url = new URL(form.action);
  for (const [name, value] of new FormData(form)) if (value) url.searchParams.set(name, value);
  history.replaceState({}, "", url);
  document.querySelectorAll("[data-live]").forEach((each) => each.dispatchEvent(new Event("refresh")));
}

let typed = 0;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (form) { clearTimeout(typed); typed = setTimeout(() => filter(form), 250); }
});
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-auto]")) { event.preventDefault(); clearTimeout(typed); filter(event.target); }
});

// -- copying ----------------------------------------------------------------------------------------------------------

function showCopies() {
  if (navigator.clipboard) document.querySelectorAll("button.copy[hidden]").forEach((each) => { each.hidden = false; });
}

// -- older steps ------------------------------------------------------------------------------------------------------

async function more(link) {
  const item = link.closest("li");
  if (item.dataset.loading) return;
  item.dataset.loading = "1";
  try {
    const part = await fetched("more", link.href);
    const element = item.closest("[data-live]");
    item.replaceWith(parsed(part.markup));
    if (element) { element.dataset.grown = "1"; tell(element, busy(element)); }
    watchMore();
  } catch {
    delete item.dataset.loading;
  }
}

const nearEnd = new IntersectionObserver((seen) => {
  for (const each of seen) if (each.isIntersecting) { nearEnd.unobserve(each.target); more(each.target); }
}, { rootMargin: "800px" });

function watchMore() {
  document.querySelectorAll("a[data-more]").forEach((link) => nearEnd.observe(link));
}

// -- keys and clicks --------------------------------------------------------------------------------------------------

function move(by) {
  const keys = [...document.querySelectorAll(".list a[data-key]")];
  if (!keys.length) return;
  const at = keys.indexOf(document.activeElement);
  const to = keys[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : keys.length - 1) : at + by, 0), keys.length - 1)];
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const follow = (selector) => { const link = document.querySelector(selector); if (link) { event.preventDefault(); link.click(); } };
  switch (event.key) {
    case "/": { const box = document.getElementById("q") || document.getElementById("against"); if (box) { event.preventDefault(); box.focus(); box.select(); } break; }
    case "j": move(1); break;
    case "k": move(-1); break;
    case "u": follow(document.querySelector("a[data-up]") ? "a[data-up]" : ".crumbs a"); break;
    case "n": follow('a[data-key-press="n"]'); break;
    case "p": follow('a[data-key-press="p"]'); break;
    default: if (/^[1-5]$/.test(event.key)) follow(`.tabs a[data-tab="${event.key}"]`);
  }
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-fetch]");
  if (link) {
    event.preventDefault();
    try {
      const { markup } = await fetched(link.dataset.fetch, link.href);
      link.replaceWith(parsed(markup));
    } catch { location.assign(link.href); }
    return;
  }
  const step = event.target.closest("a[data-step]");
  if (step && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    try { await choose(step, true); } catch { location.assign(step.href); }
    return;
  }
  const copy = event.target.closest("button.copy");
  if (copy) {
    try { await navigator.clipboard.writeText(copy.previousElementSibling.textContent); copy.textContent = "Copied"; } catch { copy.textContent = "Select it by hand"; }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  }
});

// Editing the state of a fork selects it.
document.addEventListener("input", (event) => {
  if (event.target.name === "state") {
    const box = event.target.form.querySelector("[name=edited]");
    if (box) box.checked = true;
  }
});

// A message about an action is shown once.
if (/[?&]done=/.test(location.search)) history.replaceState({}, "", location.pathname + location.search.replace(/[?&]done=\w*/, "").replace(/^&/, "?"));

// -- start ------------------------------------------------------------------------------------------------------------

document.querySelectorAll("[data-live]").forEach(live);
document.querySelectorAll("[data-lazy]").forEach(async (element) => {
  element.textContent = "…";
  try { element.replaceChildren(parsed((await fetched(element.dataset.lazy)).markup)); } catch { element.textContent = "could not be loaded; reload the page"; }
  delete element.dataset.lazy;
  showCopies();
});
watchMore();
showCopies();
reveal();
setInterval(grow, 2000);
document.documentElement.dataset.ready = "1";
