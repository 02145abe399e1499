// What makes the page live and quick to use. Everything works without it, by loading again.
"use strict";

const marks = new Map();

function address(part, from) {
  const url = new URL(from || location.href, location.href);
  url.searchParams.set("part", part);
  return url;
}

async function fetched(part, from) {
  const url = address(part, from);
  const known = marks.get(url.href);
  const headers = known ? { "If-None-Match": known } : {};
  const answer = await fetch(url, { headers, credentials: "same-origin", cache: "no-store" });
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error(String(answer.status));
  marks.set(url.href, answer.headers.get("ETag"));
  return answer.text();
}

// Markup comes from our own server, where every text in it was escaped; scripts in it would not run here either.
function put(element, markup) {
  const open = new Set([...element.querySelectorAll("details")].map((each, at) => (each.open ? at : -1)));
  const had = element.querySelectorAll("details").length;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  element.innerHTML = markup;
  const now = element.querySelectorAll("details");
  if (had === now.length) now.forEach((each, at) => { each.open = open.has(at); });
  if (focused) [...element.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
  watchMore();
}

// Somebody who fills in a form, or has read on, is not disturbed.
function isBusy(element) {
  const active = document.activeElement;
  if (element.dataset.grown) return true;
  return element.contains(active) && ["INPUT", "TEXTAREA", "SELECT"].includes(active.tagName);
}

function live(element) {
  const sign = document.getElementById("live");
  let wait = Math.max(Number(element.dataset.every) || 2, 0.1) * 1000;
  const look = async () => {
    if (!document.hidden && !isBusy(element)) {
      const begun = performance.now();
      try {
        const markup = await fetched(element.dataset.live);
        if (markup !== null) put(element, markup);
        if (sign) { sign.hidden = false; sign.textContent = "live"; sign.classList.remove("stale"); }
        // What takes the server long is asked for less often.
        wait = Math.max((Number(element.dataset.every) || 2) * 1000, 2000, (performance.now() - begun) * 10);
      } catch {
        if (sign) { sign.hidden = false; sign.textContent = "not connected"; sign.classList.add("stale"); }
        wait = Math.min(wait * 2, 30000);
      }
    }
    setTimeout(look, wait);
  };
  setTimeout(look, wait);
}

async function more(link) {
  const item = link.closest("li");
  if (item.dataset.loading) return;
  item.dataset.loading = "1";
  try {
    const markup = await fetched("more", link.href);
    const holder = document.createElement("template");
    holder.innerHTML = markup;
    const part = item.closest("[data-live]");
    if (part) part.dataset.grown = "1";
    item.replaceWith(holder.content);
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
    default: if (/^[1-6]$/.test(event.key)) follow(`.tabs a[data-tab="${event.key}"]`);
  }
});

document.addEventListener("click", async (event) => {
  const code = event.target.closest("code.copy");
  if (code && navigator.clipboard) {
    try { await navigator.clipboard.writeText(code.textContent); code.title = "copied"; } catch { /* select it by hand */ }
  }
});

// Who edits the state of a fork means to use it.
document.addEventListener("input", (event) => {
  if (event.target.name === "state") {
    const box = event.target.form.querySelector("[name=edited]");
    if (box) box.checked = true;
  }
});

document.querySelectorAll("[data-live]").forEach(live);
document.querySelectorAll("[data-lazy]").forEach(async (element) => {
  try { const markup = await fetched(element.dataset.lazy); if (markup !== null) put(element, markup); } catch { element.textContent = "not to be had now"; }
  delete element.dataset.lazy;
});
watchMore();
document.documentElement.dataset.ready = "1";
